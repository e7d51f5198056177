// Package zkstate reads resources from ZooKeeper as a plan.State, and commits each change of a plan in one transaction.
//
// A Reader has no method that writes; plan, status and drift use one. A Store adds Commit, the apply lock, the marks of
// applied plans and the removal of old generations. A transaction is based only on what was read, and checks that it
// still holds. After a lost connection the Store reads again before it returns a result.
package zkstate
