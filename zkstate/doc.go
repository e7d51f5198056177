// Package zkstate reads jobs out of ZooKeeper as a plan.State, and commits a change of a plan as one transaction.
//
// A Reader has no method that writes: plan, status and drift get one. A Store adds Commit, the apply lock, the marks of
// applied plans and the collection of what removed generations leave behind. Neither ever guesses: what it did not
// read it does not write, and after a lost connection it reads before it answers.
package zkstate
