// Package plan compares declared resources with observed ones. Diff is a pure function: the same declarations and the
// same observations give the same plan. Every row carries the facts that must still hold when it is committed.
//
// The package reads no file, talks to no server, and uses neither a clock nor random numbers.
package plan
