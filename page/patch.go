package page

import (
	"bytes"
	"encoding/json"
	"sort"
)

// patch is what changed in a view between two versions, as an event of a stream.
type patch struct {
	from  uint64 // the version that it changes
	event []byte
}

// patchData is the data of the event.
type patchData struct {
	Version uint64     `json:"v"`
	Title   string     `json:"title"`
	Set     []patchSet `json:"set,omitempty"`
	Remove  []string   `json:"remove,omitempty"`
}

// patchSet puts a fragment where it belongs: into In, after the sibling After, or first if After is empty.
type patchSet struct {
	ID    string `json:"id"`
	In    string `json:"in"`
	After string `json:"after"`
	HTML  string `json:"html"`
}

// diff says what turns old into next: what to remove, and then what to set, in this order. What keeps its place among
// its siblings and its HTML is left out. What is equal at the begin and at the end, usually nearly all, costs little.
func diff(old, next Rendered) (set []patchSet, remove []string) {
	was, is := old.Fragments, next.Fragments
	last := map[string]string{} // id of the last fragment by parent
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		if len(is) == 1 || is[1].In != is[0].In {
			last[is[0].In] = is[0].ID
		}
		was, is = was[1:], is[1:]
	}
	if begin := len(next.Fragments) - len(is); begin > 0 {
		before := next.Fragments[begin-1]
		last[before.In] = before.ID
	}
	for len(was) > 0 && len(is) > 0 && was[len(was)-1] == is[len(is)-1] {
		was, is = was[:len(was)-1], is[:len(is)-1]
	}
	before := make(map[string]Fragment, len(was))
	position := make(map[string]int, len(was))
	for i, f := range was {
		before[f.ID], position[f.ID] = f, i
	}
	stay := staying(is, before, position)
	there := make(map[string]bool, len(is))
	for _, f := range is {
		there[f.ID] = true
		after := last[f.In]
		last[f.In] = f.ID
		if !stay[f.ID] || before[f.ID].HTML != f.HTML {
			set = append(set, patchSet{f.ID, f.In, after, f.HTML})
		}
	}
	for _, f := range was {
		if !there[f.ID] {
			remove = append(remove, f.ID)
		}
	}
	return set, remove
}

// staying returns the fragments that need not move: for each parent as many as possible of those that were there
// before, in the same order.
func staying(next []Fragment, before map[string]Fragment, position map[string]int) map[string]bool {
	siblings := map[string][]string{} // by parent, those that were there before
	for _, f := range next {
		if old, ok := before[f.ID]; ok && old.In == f.In {
			siblings[f.In] = append(siblings[f.In], f.ID)
		}
	}
	stay := make(map[string]bool, len(before))
	for _, ids := range siblings {
		at := make([]int, len(ids))
		for i, id := range ids {
			at[i] = position[id]
		}
		for _, i := range longestRise(at) {
			stay[ids[i]] = true
		}
	}
	return stay
}

// longestRise returns the indexes of a longest increasing subsequence.
func longestRise(of []int) []int {
	ends := []int{} // the index of the smallest end of a rise, by its length - 1
	before := make([]int, len(of))
	for i, value := range of {
		n := sort.Search(len(ends), func(k int) bool { return of[ends[k]] >= value })
		before[i] = -1
		if n > 0 {
			before[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	rise := make([]int, len(ends))
	if len(ends) == 0 {
		return rise
	}
	for i, k := ends[len(ends)-1], len(ends)-1; k >= 0; i, k = before[i], k-1 {
		rise[k] = i
	}
	return rise
}

// patchEvent is the event that brings a page from old to next; nil if nothing has changed.
func patchEvent(old, next Rendered) []byte {
	set, remove := diff(old, next)
	if len(set) == 0 && len(remove) == 0 && old.Title == next.Title {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("event: patch\ndata: ")
	e := json.NewEncoder(&b) // writes no line break inside, and one at the end
	e.SetEscapeHTML(false)   // it is not in HTML
	_ = e.Encode(patchData{next.Version, next.Title, set, remove})
	b.WriteString("\n") // the empty line that ends the event
	return b.Bytes()
}
