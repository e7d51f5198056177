// Package worker is a process's side of a job. A process joins, waits for the other workers, meets them at barriers,
// and is live until it leaves or its session ends.
//
// Each recipe is a file. Its first comment names the znodes that it uses, who makes and removes them, and what
// happens if the process dies at any step. Every write is one transaction, which checks the gate of the generation
// that was joined. After the join it also checks that the claim of the identity is as this process last wrote it. So
// a process that was replaced, or whose generation is gone, cannot write anything (ErrFenced). Nothing is polled, and
// the clocks of two machines are never compared.
//
// The package never creates a job. It changes or deletes one only for the last of N workers to complete, as the
// declaration says. It never opens or closes a session: that is up to its caller.
package worker
