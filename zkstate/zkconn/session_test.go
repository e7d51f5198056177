package zkconn_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/zkstate/zkconn"
)

func TestReadsSeeWrites(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	s := dial(t, zkconn.Config{})
	a := must(s.Create(ctx, dir+"/a", []byte("one"), zkconn.Persistent, open))(t)
	data, before, err := s.Get(ctx, a)
	if err != nil || string(data) != "one" || before.Version != 0 || before.DataLength != 3 {
		t.Fatalf("get: %q %+v %v", data, before, err)
	}
	after := must(s.Set(ctx, a, []byte("two"), before.Version))(t)
	if after.Version != 1 || after.Czxid != before.Czxid || after.Mzxid <= before.Mzxid {
		t.Errorf("set: before %+v after %+v", before, after)
	}
	must(s.Create(ctx, dir+"/c", nil, zkconn.Ephemeral, open))(t)
	b := must(s.Create(ctx, dir+"/b-", nil, zkconn.EphemeralSequential, open))(t)
	names, stat, err := s.Children(ctx, dir)
	if d := cmp.Diff([]string{"a", b[len(dir)+1:], "c"}, names); d != "" || err != nil || stat.NumChildren != 3 {
		t.Errorf("children %+v %v (-want +got):\n%s", stat, err, d)
	}
	if stat, ok, err := s.Exists(ctx, b); err != nil || !ok || stat.EphemeralOwner != s.ID() {
		t.Errorf("exists: %+v %v %v; session %d", stat, ok, err, s.ID())
	}
	if _, ok, err := s.Exists(ctx, dir+"/nothing"); ok || err != nil {
		t.Errorf("exists of nothing: %v %v", ok, err)
	}
	acl, _, err := s.ACL(ctx, a)
	if d := cmp.Diff(open, acl); d != "" || err != nil {
		t.Errorf("acl %v (-want +got):\n%s", err, d)
	}
	if err := s.Delete(ctx, a, 1); err != nil {
		t.Error(err)
	}
}

func TestErrorsNameOperationPathAndReason(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	s := dial(t, zkconn.Config{})
	must(s.Create(ctx, dir+"/a", nil, zkconn.Persistent, open))(t)
	must(s.Create(ctx, dir+"/a/b", nil, zkconn.Ephemeral, open))(t)
	_, _, missing := s.Get(ctx, dir+"/x")
	_, exists := s.Create(ctx, dir+"/a", nil, zkconn.Persistent, open)
	_, moved := s.Set(ctx, dir+"/a", nil, 7)
	full := s.Delete(ctx, dir+"/a", 0)
	_, acl := s.Create(ctx, dir+"/c", nil, zkconn.Persistent, []zkconn.ACL{{Perms: zkconn.PermAll, Scheme: "auth"}})
	_, parent := s.Create(ctx, dir+"/a/b/c", nil, zkconn.Persistent, open)
	_, _, invalid := s.Get(ctx, "no/slash")
	for _, c := range []struct {
		err  error
		is   error
		text string
	}{
		{missing, zkconn.ErrNoNode, "get " + dir + "/x: no such znode"},
		{exists, zkconn.ErrNodeExists, "create " + dir + "/a: znode exists already"},
		{moved, zkconn.ErrBadVersion, "set " + dir + "/a: znode has changed"},
		{full, zkconn.ErrNotEmpty, "delete " + dir + "/a: znode has children"},
		{acl, zkconn.ErrInvalidACL, "create " + dir + "/c: invalid ACL"},
		{parent, nil, "create " + dir + "/a/b/c: an ephemeral znode cannot have children"},
		{invalid, nil, "get no/slash: invalid path"},
	} {
		var e *zkconn.Error
		if c.err == nil || !errors.As(c.err, &e) || c.is != nil && !errors.Is(c.err, c.is) {
			t.Errorf("%v: want *Error with %v", c.err, c.is)
			continue
		}
		if d := cmp.Diff(c.text, c.err.Error()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

func TestNilAndEmptyDataAreTheSame(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	s := dial(t, zkconn.Config{})
	for name, data := range map[string][]byte{"nil": nil, "empty": {}} {
		path := must(s.Create(ctx, dir+"/"+name, data, zkconn.Persistent, open))(t)
		got, stat, err := s.Get(ctx, path)
		if err != nil || got != nil || stat.DataLength != 0 {
			t.Errorf("%s: %#v %+v %v", name, got, stat, err)
		}
		if _, err := s.Multi(ctx, zkconn.SetOp(path, data, 0)); err != nil {
			t.Error(err)
		}
		if got, _, err := s.Get(ctx, path); err != nil || got != nil {
			t.Errorf("%s after a transaction: %#v %v", name, got, err)
		}
	}
}

func TestTransactionErrorNamesTheOperation(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	s := dial(t, zkconn.Config{})
	results := must(s.Multi(ctx,
		zkconn.CreateOp(dir+"/a", []byte("1"), zkconn.Persistent, open),
		zkconn.CreateOp(dir+"/n-", nil, zkconn.PersistentSequential, open),
		zkconn.SetOp(dir+"/a", []byte("2"), 0),
		zkconn.CheckOp(dir+"/a", 1),
		zkconn.DeleteOp(dir+"/a", 1)))(t)
	if len(results) != 5 || results[0].Path != dir+"/a" || results[1].Path != dir+"/n-0000000001" ||
		results[2].Stat.Version != 1 {
		t.Errorf("results: %+v", results)
	}
	_, err := s.Multi(ctx,
		zkconn.CreateOp(dir+"/b", nil, zkconn.Persistent, open),
		zkconn.DeleteOp(dir+"/gone", 0),
		zkconn.CheckOp(dir+"/b", 9))
	if d := cmp.Diff("delete "+dir+"/gone: no such znode", err.Error()); d != "" || !errors.Is(err, zkconn.ErrNoNode) {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, ok, err := s.Exists(ctx, dir+"/b"); ok || err != nil {
		t.Errorf("the refused transaction created a znode: %v", err)
	}
	_, err = s.Multi(ctx, zkconn.CreateOp("bad", nil, zkconn.Persistent, open))
	if err == nil || errors.Is(err, zkconn.ErrUnknown) {
		t.Errorf("invalid path: %v", err)
	}
	if r, err := s.Multi(ctx); r != nil || err != nil {
		t.Errorf("empty: %v %v", r, err)
	}
}

func TestWatchClosesAtAnyEvent(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	s, other := dial(t, zkconn.Config{}), dial(t, zkconn.Config{})
	_, _, created, err := s.ExistsW(ctx, dir+"/a")
	if err != nil {
		t.Fatal(err)
	}
	_, _, child, err := s.ChildrenW(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	must(other.Create(ctx, dir+"/a", nil, zkconn.Persistent, open))(t)
	closes(t, created, 5*time.Second)
	closes(t, child, 5*time.Second)
	_, _, changed, err := s.GetW(ctx, dir+"/a")
	if err != nil {
		t.Fatal(err)
	}
	_, _, both, err := s.ExistsW(ctx, dir+"/a")
	if err != nil {
		t.Fatal(err)
	}
	must(other.Set(ctx, dir+"/a", []byte("x"), 0))(t)
	closes(t, changed, 5*time.Second)
	closes(t, both, 5*time.Second)
	_, _, last, err := s.ChildrenW(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	closes(t, last, time.Second)
	if _, _, ch, err := s.GetW(ctx, dir); !errors.Is(err, zkconn.ErrSessionLost) || ch != nil {
		t.Errorf("after close: %v", err)
	}
}
