// Package report writes plans, outcomes and statuses for eyes and for tools.
//
// Every text is a function of its arguments: the same plan gives the same bytes. Nothing that came from ZooKeeper or a
// configuration reaches the writer with control characters in it. The package decides nothing: what a row means is
// plan's, what became of it is apply's. It returns the writer's error and writes nothing after it.
package report
