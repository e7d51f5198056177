// Package redisserver runs real Redis servers on this machine for development, tests and benchmarks: one, or a primary
// with a replica and sentinels, on 127.0.0.1, from the installed Redis. Servers can be paused, killed and restarted
// with their data.
//
// The package downloads and installs nothing: without Redis 7, Start returns [ErrNotInstalled] with the command that
// installs it. It mocks nothing: faults are signals and killed processes. It listens only on the loopback interface,
// signals only processes that it started, and removes only a directory that it created.
package redisserver
