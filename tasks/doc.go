// Package tasks is a process's side of a queue: it submits batches, executes their tasks, or watches for completed
// batches. ZooKeeper says who is there and which batches exist; Redis (package store) holds tasks and results.
//
// A [Process] is a live executor or watcher. Everything that it holds ends with Process.Context. It takes nothing while
// ZooKeeper is silent, and keeps working until its session has ended.
//
// The process with the smallest seat also looks after the queue: it shuts the seats of processes that are gone, and
// finishes what others began and did not end.
//
// The package runs no commands and prints nothing; package wrap does. It makes up no data that Redis lost.
package tasks
