package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dom is what a browser holds: the children of each slot, and the HTML of each fragment.
type dom struct {
	children map[string][]string
	html     map[string]string
}

func domOf(r Rendered) dom {
	d := dom{map[string][]string{}, map[string]string{}}
	for _, f := range r.Fragments {
		d.children[f.In] = append(d.children[f.In], f.ID)
		d.html[f.ID] = f.HTML
	}
	return d
}

// take takes a fragment from where it is.
func (d dom) take(id string) {
	for slot, ids := range d.children {
		d.children[slot] = slices.DeleteFunc(slices.Clone(ids), func(one string) bool { return one == id })
		if len(d.children[slot]) == 0 {
			delete(d.children, slot)
		}
	}
	delete(d.html, id)
}

// apply does what page.js does.
func (d dom) apply(t *testing.T, p patchData) {
	for _, id := range p.Remove {
		d.take(id)
	}
	for _, s := range p.Set {
		d.take(s.ID)
		at := 0
		if s.After != "" {
			if at = slices.Index(d.children[s.In], s.After) + 1; at == 0 {
				t.Fatalf("%s comes after %s, which is not in %s", s.ID, s.After, s.In)
			}
		}
		d.children[s.In] = slices.Insert(slices.Clone(d.children[s.In]), at, s.ID)
		d.html[s.ID] = s.HTML
	}
}

// parsePatch reads an event of a stream.
func parsePatch(t *testing.T, event []byte) patchData {
	t.Helper()
	text, ok := bytes.CutPrefix(event, []byte("event: patch\ndata: "))
	text, ended := bytes.CutSuffix(text, []byte("\n\n"))
	if !ok || !ended || bytes.ContainsAny(text, "\r\n") {
		t.Fatalf("not one event: %q", event)
	}
	var p patchData
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPatchesTurnOneViewIntoTheNext: any view can become any other one.
func TestPatchesTurnOneViewIntoTheNext(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	view := func() Rendered {
		var r Rendered
		for _, i := range random.Perm(12)[:random.IntN(12)] {
			r.Fragments = append(r.Fragments, Fragment{
				ID: fmt.Sprint("f", i), In: fmt.Sprint("slot", random.IntN(2)), HTML: fmt.Sprint("<p>\n", random.IntN(3)),
			})
		}
		return r
	}
	old := view()
	have := domOf(old)
	for round := range 2000 {
		next := view()
		next.Version = uint64(round + 1)
		if event := patchEvent(old, next); event != nil {
			p := parsePatch(t, event)
			if p.Version != next.Version {
				t.Fatalf("the patch is to version %d, not %d", p.Version, next.Version)
			}
			have.apply(t, p)
		}
		if d := cmp.Diff(domOf(next), have, cmp.AllowUnexported(dom{})); d != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, d)
		}
		old = next
	}
}

// TestAPatchHoldsOnlyWhatChanged: one changed row of many is one row; a row that moves is one row.
func TestAPatchHoldsOnlyWhatChanged(t *testing.T) {
	rows := func(names string) (r Rendered) {
		for _, name := range strings.Fields(names) {
			r.Fragments = append(r.Fragments, Fragment{ID: strings.ToLower(name), In: "rows", HTML: name})
		}
		return r
	}
	for _, c := range []struct{ name, old, next, set, remove string }{
		{"nothing", "a b c", "a b c", "", ""},
		{"changed", "a b c", "a B c", "b", ""},
		{"moved", "a b c d", "d a b c", "d", ""},
		{"inserted", "a b c", "a x b c", "x", ""},
		{"removed", "a b c", "a c", "", "b"},
		{"replaced", "a b c", "x y", "x y", "a b c"},
	} {
		set, remove := diff(rows(c.old), rows(c.next))
		var ids []string
		for _, s := range set {
			ids = append(ids, s.ID)
		}
		if got := strings.Join(ids, " "); got != c.set || strings.Join(remove, " ") != c.remove {
			t.Errorf("%s: set %q, remove %q; want %q and %q", c.name, got, remove, c.set, c.remove)
		}
	}
}
