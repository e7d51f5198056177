package znode

import (
	"slices"

	"muster/resource"
)

// Index is the body of a stack's znode. It lists every root in which the stack owns something, so that muster always
// finds all of it.
type Index struct {
	Roots []string `json:"roots"` // sorted
	// Leaving are roots that no longer held anything of the stack when they were read, sorted. An apply that creates
	// something there moves them back to Roots first.
	Leaving []string `json:"leaving,omitempty"`
}

func (i *Index) check() error {
	slices.Sort(i.Roots)
	slices.Sort(i.Leaving)
	i.Roots = append([]string{}, slices.Compact(i.Roots)...)
	for _, root := range slices.Concat(i.Roots, i.Leaving) {
		if err := resource.CheckRoot(root); err != nil {
			return err
		}
	}
	return nil
}
