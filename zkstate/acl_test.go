package zkstate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The ids that ZooKeeper gives to two users with the password "secret".
const (
	deployerID = "digest:deployer:iuIgXRnHEhynFJBU9JUWTmWEwAM="
	workerID   = "digest:worker:omHNdNC4yTDmMuU4WLRCMsPiS0Y="
)

func digestOf(user string) zkconn.Auth {
	return zkconn.Auth{Scheme: "digest", Data: []byte(user + ":secret")}
}

// TestRecordedACLNamesTheDeployer: it has the deployer's id in place of auth, also after workers with another id reset
// the job. The next update replaces auth in a Record of an older muster.
func TestRecordedACLNamesTheDeployer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.session = f.dial(digestOf("deployer"))
	f.store = f.newStore(f.session, "auth::cdrwa", workerID+":cdrwa")
	asWorker := f.dial(digestOf("worker"))
	want := []string{deployerID + ":cdrwa", workerID + ":cdrwa"}
	recorded := func(when string, want ...string) {
		t.Helper()
		o, err := f.store.Look(t.Context(), f.root+"/jobs/a")
		if err != nil || o == nil || o.Record == nil {
			t.Fatalf("after %s: %v, %+v", when, err, o)
		}
		if d := cmp.Diff(want, o.Record.ACL); d != "" || o.Record.Edited() {
			t.Errorf("after %s, edited %v, the record names (-want +got):\n%s", when, o.Record.Edited(), d)
		}
	}
	j := f.declare("a", 1)
	f.apply(j)
	recorded("a create", want...)
	for range 2 {
		m, err := worker.Join(t.Context(), asWorker, worker.Config{
			Root: j.Root, Job: j.Name, Identity: "w", Info: znode.Worker{IP: "127.0.0.1", Port: 7000},
		})
		if err == nil {
			err = m.Complete(t.Context(), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		recorded("a run", want...)
	}
	j.Labels = map[string]string{"team": "data"}
	f.apply(j)
	recorded("an update", want...)

	j.Workers = 2
	f.apply(j)
	recorded("a replace", want...)
	f.apply()
	f.expect(map[string]plan.Reason{})
}
