package zkmodel

import (
	"slices"
	"testing"
)

// TestEvents: what each write says to each kind of watch, once.
func TestEvents(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  []operation
		want []string // to a client that watches the data and children of /a and the existence of /a/n
	}{
		{"set", []operation{set("/a", "x", -1), set("/a", "y", -1)}, []string{"changed /a"}},
		{"create", []operation{create("/a/n", 0), create("/a/m", 0)}, []string{"created /a/n", "children /a"}},
		{"create other", []operation{create("/a/m", 0)}, []string{"children /a"}},
		{"delete child", []operation{remove("/a/c", 0)}, []string{"children /a"}},
		{"delete", []operation{remove("/a/c", 0), create("/x", 0), remove("/a", 0)}, []string{"children /a", "deleted /a"}},
		{"delete both", []operation{set("/a", "", 0), remove("/a/c", 0), remove("/a", -1)},
			[]string{"changed /a", "children /a"}},
		{"create and delete", []operation{create("/a/n", 0), remove("/a/n", 0)}, []string{"created /a/n", "children /a"}},
		{"in order", []operation{create("/a/n", 0), set("/a", "", -1)},
			[]string{"created /a/n", "children /a", "changed /a"}},
	} {
		for _, together := range []bool{false, true} {
			s := New(Options{})
			writer, watcher := begin(t, s), begin(t, s)
			writer.create("/a", 0)
			writer.create("/a/c", 0)
			for range 2 { // twice is as once
				watcher.must(OpGetData, "/a", true)
				watcher.must(OpGetChildren2, "/a", true)
				watcher.do(OpExists, "/a/n", true)
			}
			if together {
				writer.multi(c.ops...)
			} else {
				for _, o := range c.ops {
					writer.must(o.op, o.body...)
				}
			}
			if got := watcher.events(); !slices.Equal(got, c.want) {
				t.Errorf("%s, one transaction: %v: %q, want %q", c.name, together, got, c.want)
			}
			if got := writer.events(); got != nil {
				t.Errorf("%s: the writer gets %q", c.name, got)
			}
		}
	}
}

// TestWatchAgain: each watch gives one event, also the next one of the same path.
func TestWatchAgain(t *testing.T) {
	s := New(Options{})
	writer, watcher := begin(t, s), begin(t, s)
	writer.create("/a", 0)
	for round := range 3 {
		watcher.must(OpGetData, "/a", true)
		for range 2 {
			writer.must(OpSetData, "/a", []byte{}, -1)
		}
		if got := watcher.events(); !slices.Equal(got, []string{"changed /a"}) {
			t.Errorf("round %d: events %q", round, got)
		}
	}
}

// TestEventsNeedPermission: who may not read a znode gets no event of it, and the watch is used up all the same. It is
// the parent's ACL that permits events of its children.
func TestEventsNeedPermission(t *testing.T) {
	s := New(Options{})
	writer, stranger, ann := begin(t, s), begin(t, s), begin(t, s)
	writer.must(OpAuth, 0, "digest", []byte("a:b"))
	ann.must(OpAuth, 0, "digest", []byte("a:b"))
	writer.create("/p", 0)
	for _, step := range []struct {
		o             operation
		ann, stranger []string
	}{
		{operation{OpCreate, []any{"/p/a", []byte{}, annAnd(permWrite), 0}}, []string{"created /p/a", "children /p"},
			[]string{"children /p"}},
		{set("/p/a", "", 0), []string{"changed /p/a"}, nil},
		{remove("/p/a", 1), []string{"deleted /p/a", "children /p"}, []string{"children /p"}},
	} {
		for _, c := range []*client{stranger, ann} {
			c.do(OpExists, "/p/a", true)
			c.must(OpGetChildren, "/p", true)
		}
		writer.must(step.o.op, step.o.body...)
		if got := ann.events(); !slices.Equal(got, step.ann) {
			t.Errorf("%s: who may read gets %q, want %q", step.o.op, got, step.ann)
		}
		if got := stranger.events(); !slices.Equal(got, step.stranger) {
			t.Errorf("%s: who may read only the parent gets %q, want %q", step.o.op, got, step.stranger)
		}
	}
	if writer.create("/p/a", 0); stranger.events() != nil {
		t.Error("a watch whose event was not sent is still there")
	}
}

// TestEventOfDelete: one event for a watch of the data and one of the children, two for two clients.
func TestEventOfDelete(t *testing.T) {
	s := New(Options{})
	writer, both, child := begin(t, s), begin(t, s), begin(t, s)
	writer.create("/a", 0)
	both.must(OpGetData, "/a", true)
	both.must(OpGetChildren, "/a", true)
	child.must(OpGetChildren, "/a", true)
	writer.must(OpDelete, "/a", 0)
	for _, c := range []*client{both, child} {
		if got := c.events(); !slices.Equal(got, []string{"deleted /a"}) {
			t.Errorf("events %q", got)
		}
	}
	writer.create("/a", 0)
	writer.must(OpDelete, "/a", 0)
	if got := append(both.events(), child.events()...); got != nil {
		t.Errorf("watches that have fired fire again: %q", got)
	}
}

// TestEventBeforeReply: a client gets an event before the reply to any request that could show the change.
func TestEventBeforeReply(t *testing.T) {
	c := begin(t, New(Options{}))
	c.create("/a", 0)
	c.must(OpGetData, "/a", true)
	c.send(OpSetData, "/a", []byte("x"), 0)
	first, second := c.next(), c.next()
	if event(&first) != "changed /a" || second.xid != 7 {
		t.Errorf("first %+v, then %+v", first, second)
	}
}

// TestFailedReadSetsNoWatch: but exists watches what is not there.
func TestFailedReadSetsNoWatch(t *testing.T) {
	c := begin(t, New(Options{}))
	if c.do(OpGetData, "/a", true).code != NoNode || c.do(OpGetChildren, "/a", true).code != NoNode {
		t.Error("a znode is there")
	}
	c.create("/a", 0)
	if got := c.events(); got != nil {
		t.Errorf("events %q", got)
	}
}

// TestSetWatches: a client that connects again gets the events of changes after the zxid that it names, and its other
// watches are set.
func TestSetWatches(t *testing.T) {
	s := New(Options{})
	writer, c := begin(t, s), begin(t, s)
	for _, path := range []string{"/set", "/children", "/deleted", "/deletedChild", "/same"} {
		writer.create(path, 0)
	}
	relative := s.zxid
	writer.must(OpSetData, "/set", []byte{}, -1)
	writer.create("/children/c", 0)
	writer.must(OpDelete, "/deleted", -1)
	writer.must(OpDelete, "/deletedChild", -1)
	writer.create("/created", 0)
	c.send(OpSetWatches, relative, []string{"/same", "/set", "/deleted", "/children"}, []string{"/created", "/later"},
		[]string{"/same", "/set", "/children", "/deletedChild"})
	reply := c.got[len(c.got)-1]
	c.got = c.got[:len(c.got)-1]
	if d := (decoder{b: reply}); d.int32() != 7 || d.int64() != s.zxid || d.int32() != 0 || len(d.b) > 0 {
		t.Error("the reply is not the last frame")
	}
	missed := []string{"changed /set", "deleted /deleted", "created /created", "children /children",
		"deleted /deletedChild"}
	if got := c.events(); !slices.Equal(got, missed) {
		t.Errorf("events %q, want %q", got, missed)
	}
	for _, o := range []operation{set("/same", "", -1), create("/same/c", 0), create("/later", 0), create("/set/c", 0),
		set("/children", "", -1), set("/set", "", -1), create("/children/d", 0)} {
		writer.must(o.op, o.body...)
	}
	later := []string{"changed /same", "children /same", "created /later", "children /set", "changed /children"}
	if got := c.events(); !slices.Equal(got, later) {
		t.Errorf("later events %q, want %q", got, later)
	}
}

// TestSetWatchesThatCannotBeRead uses up no zxid, as no read does.
func TestSetWatchesThatCannotBeRead(t *testing.T) {
	s := New(Options{})
	c := begin(t, s)
	for _, length := range []int{-5, 1<<31 - 1} {
		if r := c.do(OpSetWatches, int64(0), length); r.code != MarshallingError || r.zxid != 1 {
			t.Errorf("a list of %d: %s, zxid %d", length, r.code, r.zxid)
		}
	}
}

// TestWatchesEndWithTheConnection: those of another connection stay.
func TestWatchesEndWithTheConnection(t *testing.T) {
	s := New(Options{})
	a, b := begin(t, s), begin(t, s)
	a.create("/a", 0)
	for _, c := range []*client{a, b} {
		c.must(OpGetData, "/a", true)
		c.must(OpGetChildren, "/a", true)
	}
	a.p.Lost()
	b.must(OpGetData, "/a", true)
	again := connect(t, s, 0, a.id, a.key)
	again.create("/a/b", 0)
	again.must(OpSetData, "/a", []byte{}, 0)
	if got := append(a.events(), again.events()...); got != nil {
		t.Errorf("events %q", got)
	}
	if got := b.events(); !slices.Equal(got, []string{"children /a", "changed /a"}) {
		t.Errorf("events of the other %q", got)
	}
	if again.p.Lost(); len(s.data.peers)+len(s.child.peers)+len(s.data.paths[a.p])+len(s.child.paths[a.p]) > 0 {
		t.Error("watches are left")
	}
}
