package znode

import (
	"fmt"
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

// EncodeIndex encodes an index.
func EncodeIndex(i Index) ([]byte, error) {
	slices.Sort(i.Roots)
	slices.Sort(i.Leaving)
	i.Roots = append([]string{}, slices.Compact(i.Roots)...)
	if err := i.check(); err != nil {
		return nil, err
	}
	return encodeJSON("index of a stack", i)
}

// DecodeIndex decodes an index and checks it.
func DecodeIndex(data []byte) (Index, error) {
	var i Index
	if err := decodeJSON("index of a stack", data, &i); err != nil {
		return Index{}, err
	}
	return i, i.check()
}

func (i Index) check() error {
	for _, root := range slices.Concat(i.Roots, i.Leaving) {
		if err := resource.CheckRoot(root); err != nil {
			return fmt.Errorf("index of a stack: %w", err)
		}
	}
	return nil
}
