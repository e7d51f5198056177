// Package cli is the command line: it parses arguments, calls the packages below it, prints the results and returns an
// exit code.
//
// One file holds one command: an options struct, a constructor of the cobra command, and a run function. Run takes the
// arguments, the environment and the streams of the process, so tests call it as a user would; nothing else reads the
// environment. The package decides nothing about jobs: package plan decides what differs, package zkstate what may be
// written, package report how it looks. One switch, in exit.go, makes an exit code of an error.
package cli
