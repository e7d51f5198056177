// Package daemon runs programs on this machine, for packages zkserver and redisserver and for tests: it starts, pauses
// and kills one, keeps the last of what it wrote, and keeps its port free while it does not run.
//
// It knows no server. It signals only processes that it started. On Linux a process ends with the one that started it.
package daemon
