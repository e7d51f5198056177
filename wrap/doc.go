// Package wrap runs a command as a member of a job: it joins, waits if asked to, starts the command with what it should know
// in its environment, passes signals on, keeps the membership over lost sessions, and leaves as the command has ended.
//
// The exit code is the command's whenever the command has ended by itself or by a signal; a worker's own codes are for what
// kept the command from running or took the membership away. When it returns, nothing of the command's process group is left.
//
// It knows jobs only through package worker, and opens no session itself. As process 1 it takes the status of every child
// process there is, so the command must be the only one.
package wrap
