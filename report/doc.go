// Package report writes plans, outcomes and statuses for people and for tools.
//
// Every text is a pure function of its arguments: the same plan gives the same bytes. The package escapes control
// characters in everything that came from ZooKeeper or a configuration. It decides nothing: plan says what a row means,
// apply says what its result is. After an error of the writer it writes nothing more and returns that error.
package report
