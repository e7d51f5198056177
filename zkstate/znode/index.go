package znode

import (
	"fmt"
	"slices"

	"muster/resource"
)

// Index is the body of a stack's znode: every root in which the stack has declared something, so that nothing of it is
// ever out of sight.
type Index struct {
	Roots []string `json:"roots"` // sorted
	// Leaving are roots that seemed to hold nothing of the stack any more. Whoever creates something there lists it again
	// among Roots first.
	Leaving []string `json:"leaving,omitempty"` // sorted
}

// EncodeIndex writes an index.
func EncodeIndex(i Index) ([]byte, error) {
	slices.Sort(i.Roots)
	slices.Sort(i.Leaving)
	i.Roots = append([]string{}, slices.Compact(i.Roots)...)
	if err := i.check(); err != nil {
		return nil, err
	}
	return encodeJSON("index of a stack", i)
}

// DecodeIndex reads an index and checks it.
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
