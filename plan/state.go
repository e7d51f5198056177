package plan

import "muster/resource"

// State is what was read from ZooKeeper below a set of roots.
type State struct {
	Ensemble string                       // random id of the ensemble; empty before its first apply
	Found    map[string]resource.Observed // by znode path
	// Unlisted are the roots that could not be listed, sorted. Undeclared resources there are not in Found.
	Unlisted []string
	// Unindexed says why the index of stacks could not be read; empty if it was read. The index tells in which other
	// roots the stack owns something.
	Unindexed string
}
