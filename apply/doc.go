// Package apply applies a plan: it waits for the apply lock, checks that a saved plan still holds, commits the changes,
// several at a time, and removes what they leave behind.
//
// It decides the order of the commits and when to wait. It never decides whether a change is safe: the transaction of
// the Committer does. It retries nothing. The next plan reads whether a commit with an unknown outcome succeeded.
package apply
