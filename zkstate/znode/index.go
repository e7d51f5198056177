package znode

import (
	"slices"

	"muster/resource"
)

// Index is the body of a stack's znode. It lists every root in which the stack owns something, or once did, so that
// muster always finds all of it.
type Index struct {
	Roots []string `json:"roots"` // sorted
}

func (i *Index) check() error {
	slices.Sort(i.Roots)
	i.Roots = append([]string{}, slices.Compact(i.Roots)...)
	for _, root := range i.Roots {
		if err := resource.CheckRoot(root); err != nil {
			return err
		}
	}
	return nil
}
