// Package job says what a job is: its fields, their limits and defaults, which of them may change while
// the job runs, and the record of it that ZooKeeper keeps.
//
// There is one Job: HCL declares it, ZooKeeper records it, plan compares it and a worker reads it. The
// package holds plain data and rules about it; it reads no file and talks to no server.
package job
