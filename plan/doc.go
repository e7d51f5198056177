// Package plan compares declared jobs with observed ones. Diff is a function: the same declarations and the same
// observations give the same plan, and every row carries the facts that must still hold when it is committed.
//
// The package reads no file, talks to no server, and knows neither the time nor chance.
package plan
