// Package job is the kind of distributed jobs: the fields of a job, their limits and defaults, which of them may change
// while it runs, and what the facts found about it mean.
//
// One type Job serves all: HCL declares it, ZooKeeper records it and a worker reads it. The package holds plain data
// and rules about it; it reads no file and talks to no server.
package job
