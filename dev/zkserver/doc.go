// Package zkserver runs real ZooKeeper servers on this machine for development, tests and benchmarks: one or three on
// 127.0.0.1, from the installed ZooKeeper. Servers can be paused, killed and restarted with their data. A [Proxy]
// between client and server causes faults on demand.
//
// The package downloads and installs nothing: without Java or ZooKeeper, Start returns [ErrNotInstalled] with the
// command that installs them. It mocks nothing: faults are signals, killed processes and broken connections. It listens
// only on the loopback interface, signals only processes that it started, and removes only a directory that it created.
// Its servers skip fsync: they keep data after kill -9, but not after a power cut.
//
// On Linux a server ends with the process that started it. On other Unix systems servers keep running if that process
// is killed before it calls Stop. Windows is not supported.
package zkserver
