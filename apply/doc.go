// Package apply commits the changes of a plan, several at a time, and reports the outcome of each.
//
// It decides the order and the waiting, never whether a change is safe: that is the committer's one transaction. It
// retries nothing; an unknown outcome is for the next plan to read.
package apply
