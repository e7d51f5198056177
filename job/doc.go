// Package job is the kind of things that are distributed jobs: the fields of one, their limits and defaults, which of them
// may change while it runs, and what the facts found about it mean.
//
// There is one Job: HCL declares it, ZooKeeper records it and a worker reads it. The package holds plain data and rules
// about it; it reads no file and talks to no server.
package job
