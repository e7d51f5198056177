// Package spec reads a directory of HCL files and returns the jobs, groups and queues they declare, or diagnostics.
// Each has a stable code, a place in the source, the values that led to it, and what to do.
//
// It reads files below that directory and the variable files it is given, and nothing else: no environment but the one
// passed in, no network, no clock. The same inputs give the same Config on every machine.
//
// A problem in HCL is always a Diagnostic, never an error. One run reports all of them, each once, and none that only
// follows from another: what depends on a bad value is not looked at.
package spec
