package cli_test

import (
	"fmt"
	"testing"

	"muster/zkstate/zkconn"
)

// TestFarMoreClaimsThanWorkers: a participant may write any number of claims. Status reads a bounded number of them,
// those of live workers first, and says how many it leaves out.
func TestFarMoreClaimsThanWorkers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "")
	f.mustApply(t)
	s := groupTest{f, t}.session()
	run := groupTest{f, t}.runOf(s)
	acl := zkconn.World(zkconn.PermAll)
	var ops []zkconn.Op
	for _, folder := range []string{"id", "by", "end", "barrier"} {
		ops = append(ops, zkconn.CreateOp(run+"/"+folder, nil, zkconn.Persistent, acl))
	}
	claim := []byte(`{"nonce":"0123456789abcdef0123456789abcdef","lives":1,"state":"in"}`)
	const claims = 1500
	for i := range claims {
		ops = append(ops, zkconn.CreateOp(fmt.Sprintf("%s/by/w-%04d", run, i), claim, zkconn.Persistent, acl))
	}
	last := fmt.Sprintf("w-%04d", claims-1)
	ops = append(ops, zkconn.CreateOp(run+"/id/n-", nil, zkconn.PersistentSequential, acl),
		zkconn.CreateOp(f.root+"/j0/"+last, nil, zkconn.Ephemeral, acl))
	if _, err := s.Multi(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	got := result(f.command(servers.Connect(), "status", f.root+"/j0"))
	expect(t, got, 0, "498 more have claims", last+"    -        live", "w-0000")
}
