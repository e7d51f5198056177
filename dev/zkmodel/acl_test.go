package zkmodel

import (
	"reflect"
	"testing"
)

// annAnd is the ACL that lets everybody use perms and the user ann do all. Hash as of ZooKeeper's own generator.
func annAnd(perms int32) []ACL {
	return []ACL{{perms, "world", "anyone"}, {permAll, "digest", "a:3OptnM09ILoVSfbZtd3mB0IViII="}}
}

// TestPermissions: what each request needs, of the znode or of its parent.
func TestPermissions(t *testing.T) {
	requests := []struct {
		o     operation
		needs int32 // one of these
		child bool  // of the parent
	}{
		{operation{OpGetData, []any{"/p", false}}, permRead, false},
		{operation{OpGetChildren, []any{"/p", false}}, permRead, false},
		{operation{OpGetChildren2, []any{"/p", false}}, permRead, false},
		{operation{OpGetACL, []any{"/p"}}, permRead | permAdmin, false},
		{operation{OpExists, []any{"/p", false}}, permAll, false},
		{operation{OpSync, []any{"/p"}}, permAll, false},
		{set("/p", "", -1), permWrite, false},
		{operation{OpSetACL, []any{"/p", worldAll, -1}}, permAdmin, false},
		{create("/p/new", 0), permCreate, true},
		{remove("/p/c", -1), permDelete, true},
	}
	for _, r := range requests {
		for perm := permRead; perm <= permAdmin; perm <<= 1 {
			for _, ann := range []bool{false, true} {
				c := begin(t, New(Options{}))
				c.create("/p", 0)
				c.must(OpCreate, "/p/c", []byte{}, []ACL{{0, "world", "anyone"}}, 0) // its own ACL does not count
				c.must(OpSetACL, "/p", annAnd(perm), -1)
				if ann {
					c.must(OpAuth, 0, "digest", []byte("a:b"))
				}
				allowed := ann || perm&r.needs != 0 || r.needs == permAll
				if code := c.do(r.o.op, r.o.body...).code; (code == OK) != allowed || !allowed && code != NoAuth {
					t.Errorf("%s with permission %d, as ann: %v: %s", r.o.op, perm, ann, code)
				}
			}
		}
	}
	c := begin(t, New(Options{}))
	c.must(OpCreate, "/p", []byte{}, annAnd(permWrite), 0)
	if codes, _ := c.multi(check("/p", 7)); codes[0] != NoAuth {
		t.Errorf("check without permission to read: %s", codes[0])
	}
}

// TestStoredACL: doubles are dropped, auth becomes the client's identities, and only who may change an ACL sees hashes.
func TestStoredACL(t *testing.T) {
	s := New(Options{})
	c := begin(t, s)
	for range 2 {
		c.must(OpAuth, 0, "digest", []byte("a:b"))
	}
	c.must(OpAuth, 0, "digest", []byte("c:d"))
	asked := []ACL{{permRead, "auth", ""}, {permRead, "world", "anyone"}, {permRead, "world", "anyone"}}
	c.must(OpCreate, "/a", []byte{}, asked, 0)
	want := []ACL{{permRead, "digest", "a:3OptnM09ILoVSfbZtd3mB0IViII="},
		{permRead, "digest", "c:JW0uwAqVIVi/U/OdKDCihoUkdus="}, {permRead, "world", "anyone"}}
	if got := s.tree.nodes["/a"].acl; !reflect.DeepEqual(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
	r := begin(t, s).must(OpGetACL, "/a")
	hidden := []ACL{{permRead, "digest", "a:x"}, {permRead, "digest", "c:x"}, {permRead, "world", "anyone"}}
	if got := r.body.acl(); !reflect.DeepEqual(got, hidden) || r.body.stat().Czxid == 0 {
		t.Errorf("shown %v, want %v", got, hidden)
	}
	c.must(OpCreate, "/b", []byte{}, annAnd(0), 0)
	r = c.must(OpGetACL, "/b")
	if got := r.body.acl(); !reflect.DeepEqual(got, annAnd(0)) {
		t.Errorf("shown to who may change it %v", got)
	}
}

// TestInvalidACL: schemes and ids that the model does not know.
func TestInvalidACL(t *testing.T) {
	c := begin(t, New(Options{}))
	for _, a := range []ACL{{31, "auth", ""}, {31, "world", "me"}, {31, "digest", "a"}, {31, "digest", "a:"},
		{31, "digest", "a:b:c"}, {31, "ip", "10.0.0.1"}, {31, "x509", "CN=a"}, {31, "", ""}} {
		if code := c.do(OpCreate, "/a", []byte{}, []ACL{a}, 0).code; code != InvalidACL {
			t.Errorf("%v: %s", a, code)
		}
		if code := c.do(OpSetACL, "/", []ACL{a}, -1).code; code != InvalidACL {
			t.Errorf("%v: %s", a, code)
		}
	}
	c.must(OpCreate, "/a", []byte{}, []ACL{{31, "digest", "a:b::"}}, 0) // odd, but so is ZooKeeper
}

// TestRefusedCredential: it ends the connection, and the session goes on.
func TestRefusedCredential(t *testing.T) {
	s := New(Options{})
	for _, body := range [][]any{{0, "ip", []byte("a:b")}, {0, "digest", []byte(nil)}, {0, "digest", []byte("\xff:a")}} {
		c := begin(t, s)
		if r := c.do(OpAuth, body...); r.code != AuthFailed || r.zxid != 0 || !c.gone || s.sessions[c.id] == nil {
			t.Errorf("%v: %s, zxid %d, closed: %v", body, r.code, r.zxid, c.gone)
		}
	}
	c := begin(t, s)
	if c.send(OpAuth, 0); !c.gone || len(c.got) > 0 {
		t.Error("half a credential is answered")
	}
}
