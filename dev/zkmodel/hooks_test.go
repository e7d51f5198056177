package zkmodel

import (
	"fmt"
	"slices"
	"testing"
)

// TestApplied gets each transaction in order, with what came of it.
func TestApplied(t *testing.T) {
	var got []string
	var s *Server
	s = New(Options{Applied: func(t *Txn) {
		text := fmt.Sprintf("%d %v %s:", t.Zxid, t.Multi, t.Err)
		for _, o := range t.Ops {
			_, _, there := s.Get(o.Path) // the hook sees the state after the transaction
			text += fmt.Sprintf(" %s %s %q %d %d %s %v", o.Type, o.Path, o.Data, o.Version, o.Flags, o.Err, there)
		}
		got = append(got, text)
	}})
	c := begin(t, s) // 1
	c.must(OpCreate, "/s-", []byte("x"), worldAll, Sequential|Ephemeral)
	c.do(OpDelete, "/s-0000000000", 3)
	c.multi(set("/s-0000000000", "y", 0), create("/n", 0), check("/none", 2), remove("/n", 0))
	c.multi(check("/s-0000000000", 0))
	c.must(OpGetData, "/", false)
	c.do(OpDelete)
	want := []string{
		`2 false ok: create /s-0000000000 "x" -1 3 ok true`,
		`3 false bad version: delete /s-0000000000 "" 3 0 bad version true`,
		`4 true no node: setData /s-0000000000 "y" 0 0 ok true create /n "" -1 0 ok false` +
			` check /none "" 2 0 no node false delete /n "" 0 0 another operation was refused false`,
		`5 true ok: check /s-0000000000 "" 0 0 ok true`,
		`6 false marshalling error:`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// TestIgnore: a mutant does not look at the guard, and only at that one.
func TestIgnore(t *testing.T) {
	var ignored string
	var asked []string
	s := New(Options{Ignore: func(t *Txn, op int) bool {
		guard := t.Ops[op].Type.String() + " " + t.Ops[op].Path
		asked = append(asked, guard)
		return guard == ignored
	}})
	c := begin(t, s)
	c.create("/a", 0)
	guards := map[string]operation{
		"check /a": check("/a", 9), "check /none": check("/none", -1), "setData /a": set("/a", "", 9),
		"delete /b": remove("/b", 9),
	}
	for guard, o := range guards {
		for _, ignored = range []string{guard, "check /other"} {
			c.do(OpCreate, "/b", []byte{}, worldAll, 0)
			want := OK
			if ignored != guard {
				want = map[string]Code{"check /none": NoNode}[guard]
				if want == OK {
					want = BadVersion
				}
			}
			if codes, _ := c.multi(o); codes[0] != want {
				t.Errorf("%s with %s ignored: %s, want %s", guard, ignored, codes[0], want)
			}
		}
	}
	asked = nil
	c.multi(set("/a", "", -1), create("/c", 0), remove("/c", -1), check("/a", -1))
	if !slices.Equal(asked, []string{"check /a"}) {
		t.Errorf("guards asked for: %q", asked)
	}
	ignored = "delete /none"
	if code := c.do(OpDelete, "/none", 3).code; code != NoNode {
		t.Errorf("a delete without its version of what does not exist: %s", code)
	}
}
