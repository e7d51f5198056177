// Package cli is the command line: it turns arguments into calls of the packages below it, prints what they answer, and
// turns the answer into an exit code.
//
// One file holds one command: an options struct, a constructor of the cobra command, and a run function. The whole
// process is a parameter of Run, so that a test drives it as a user would. The package decides nothing about jobs: what
// differs is package plan's, what may be written is package zkstate's, how it looks is package report's. It reads the
// environment only from what Run was given, and knows one place where an error becomes an exit code.
package cli
