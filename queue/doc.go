// Package queue is the kind of queues: batches of small tasks, which processes share and execute, and whose results
// other processes collect. It holds the fields of a queue, their limits and defaults, what names a Redis and a batch,
// and what the facts found about a queue mean.
//
// One type Queue serves all: HCL declares it, ZooKeeper records it and a process reads it. The package holds plain data
// and rules about it; it talks to no server, and it refuses a password in the address of a Redis.
package queue
