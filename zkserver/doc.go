// Package zkserver runs real ZooKeeper servers on this machine for development, tests and benches: one or three of them on
// 127.0.0.1, from the ZooKeeper that the distribution's package manager installed. Servers can be paused, killed and restarted on
// their data, and a [Proxy] between client and server misbehaves on demand.
//
// It refuses to be more than that. It downloads and installs nothing: without Java or ZooKeeper, Start returns [ErrNotInstalled] with
// the command that installs them. It is no mock: there is no hook in a server, faults are signals, lost processes and a broken
// wire. It listens on the loopback interface only, it signals only processes that it started, and it removes only a directory
// that it made. Its servers skip fsync, so they survive kill -9 but not a power cut: they are not a place for data that matters.
//
// On Linux a server dies with the process that started it, however that ends. Elsewhere on Unix a process that is killed before it called
// Stop leaves its servers behind. Windows is not supported.
package zkserver
