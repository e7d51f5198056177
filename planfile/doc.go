// Package planfile writes a plan into a file and reads it back, byte for byte: what was approved is what runs.
//
// A file that is not exactly what Encode wrote is refused. The package talks to no server; the kinds that a file may hold
// are given by its caller.
package planfile
