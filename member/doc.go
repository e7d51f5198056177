// Package member is a process's side of a group: it takes a seat, does what the assigner gives it, and is the assigner
// when its turn comes.
//
// Everything that a member holds ends with a context: the membership with Member.Context, a duty with Hold.Context.
// Every write is guarded by the version of what it depends on, so a process that was replaced cannot write.
//
// The package runs no commands and prints nothing; package wrap does. It does not keep anything exclusive outside of
// ZooKeeper: a machine that was frozen and goes on may still act for a moment. Systems outside fence it by the epoch.
package member
