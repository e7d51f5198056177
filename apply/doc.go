// Package apply takes a plan its whole way: it waits for the apply lock, makes sure that a saved plan still holds, commits
// the changes, several at a time, and removes what they leave behind.
//
// It decides the order and the waiting, never whether a change is safe: that is the committer's one transaction. It
// retries nothing; an unknown outcome is for the next plan to read.
package apply
