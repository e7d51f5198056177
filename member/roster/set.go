package roster

import (
	"iter"
	"math/bits"
	"slices"
)

// set is a set of small numbers, here of indices of members: one bit each. Sets that meet in an operation have the same
// length.
type set []uint64

const wordBits = 64

// newSet returns an empty set of numbers below n.
func newSet(n int) set { return make(set, (n+wordBits-1)/wordBits) }

func (s set) add(i int)      { s[i/wordBits] |= 1 << (i % wordBits) }
func (s set) remove(i int)   { s[i/wordBits] &^= 1 << (i % wordBits) }
func (s set) has(i int) bool { return s[i/wordBits]&(1<<(i%wordBits)) != 0 }

// addAll adds the members of t.
func (s set) addAll(t set) {
	for i := range s {
		s[i] |= t[i]
	}
}

// and returns the numbers that are in both.
func (s set) and(t set) set {
	both := slices.Clone(s)
	for i := range both {
		both[i] &= t[i]
	}
	return both
}

// minus returns the numbers of s that are not in t.
func (s set) minus(t set) set {
	rest := slices.Clone(s)
	rest.removeAll(t)
	return rest
}

// removeAll removes the members of t.
func (s set) removeAll(t set) {
	for i := range s {
		s[i] &^= t[i]
	}
}

// firstOf returns the smallest number that is in both; none if there is none.
func (s set) firstOf(t set) int {
	for i := range s {
		if both := s[i] & t[i]; both != 0 {
			return i*wordBits + bits.TrailingZeros64(both)
		}
	}
	return none
}

// with returns s and i.
func (s set) with(i int) set {
	more := slices.Clone(s)
	more.add(i)
	return more
}

// without returns s but for i.
func (s set) without(i int) set {
	less := slices.Clone(s)
	less.remove(i)
	return less
}

func (s set) empty() bool {
	return !slices.ContainsFunc(s, func(w uint64) bool { return w != 0 })
}

func (s set) size() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// all yields the numbers in ascending order.
func (s set) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s {
			for ; w != 0; w &= w - 1 {
				if !yield(i*wordBits + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}
