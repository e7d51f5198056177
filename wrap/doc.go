// Package wrap runs a command as a member of a job. It waits for ZooKeeper, opens a session and joins. It then starts
// the command, passes signals on, joins again when a session is lost, and leaves as the command has ended.
//
// The exit code is the command's whenever the command has ended by itself or by a signal. A worker's own codes say
// what kept the command from running or took the membership away. When Run returns, nothing of the command's process
// group is left.
//
// The package knows neither flags nor servers: its caller says how to open a session and how to create a missing job.
// As process 1 it reaps every child process, so the command must be the only one that it has.
package wrap
