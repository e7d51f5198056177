// Package worker is a process's side of a job: it joins, waits for its peers and meets them, and is live until its session
// ends or it leaves.
//
// Each recipe is a file, whose first comment names the znodes that it uses, who makes and removes them, and what happens if
// the process dies at any step. Every write is one transaction that checks the gate of the generation that was joined, and
// after the join that the claim of the identity is as this process last wrote it: a process that was replaced, or whose
// generation is gone, cannot write anything (ErrFenced). Nothing is polled, and no clocks of two machines are compared.
//
// The package never creates a job. It changes or deletes one only as the last of N workers to complete, as the declaration
// says. It never opens or closes a session: that is its caller's.
package worker
