package plan

import "muster/resource"

// State is what was read from ZooKeeper below a set of roots.
type State struct {
	Ensemble string                       // random id of the ensemble; empty before its first apply
	Found    map[string]resource.Observed // by znode path
	Unlisted []string                     // roots that could not be listed, sorted: undeclared things there are unseen
	// Unindexed says why the index of stacks could not be read: what is below a root that nobody names is unseen.
	Unindexed string
}
