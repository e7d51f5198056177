package zkstate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/job"
	"muster/plan"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Two users, whose password is "secret", and what ZooKeeper calls them.
const (
	deployerID = "digest:deployer:iuIgXRnHEhynFJBU9JUWTmWEwAM="
	workerID   = "digest:worker:omHNdNC4yTDmMuU4WLRCMsPiS0Y="
)

func digestOf(user string) zkconn.Auth {
	return zkconn.Auth{Scheme: "digest", Data: []byte(user + ":secret")}
}

// TestRecordNamesWhoDeployed in the place of auth, and goes on to do so when workers, who are others, reset the job.
// A record of an older muster, which says auth, is mended by the next update.
func TestRecordNamesWhoDeployed(t *testing.T) {
	b := newBed(t)
	b.session = b.dial(digestOf("deployer"))
	b.store = b.newStore(b.session, "auth::cdrwa", workerID+":cdrwa")
	asWorker := b.dial(digestOf("worker"))
	want := []string{deployerID + ":cdrwa", workerID + ":cdrwa"}
	recorded := func(when string, want ...string) {
		t.Helper()
		o, err := b.store.Look(t.Context(), b.root+"/jobs/a")
		if err != nil || o == nil || o.Record == nil {
			t.Fatalf("after %s: %v, %+v", when, err, o)
		}
		if d := cmp.Diff(want, o.Record.ACL); d != "" || o.Record.Edited() {
			t.Errorf("after %s, edited %v, the record names (-want +got):\n%s", when, o.Record.Edited(), d)
		}
	}
	j := b.declare("a", 1)
	b.apply(j)
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
	b.sayAuth(j)
	recorded("an apply of an older muster", "auth::cdrwa", workerID+":cdrwa")
	j.Labels = map[string]string{"team": "data"}
	b.apply(j)
	recorded("an update", want...)

	b.sayAuth(j)
	j.Workers = 2
	b.apply(j)
	recorded("a replace", want...)
	b.apply()
	b.expect(map[string]plan.Reason{})
}

// sayAuth makes the Record of j one of an older muster.
func (b *bed) sayAuth(j job.Job) {
	b.t.Helper()
	o, err := b.store.Look(b.t.Context(), j.Path())
	if err != nil {
		b.t.Fatal(err)
	}
	rec := *o.Record
	rec.ACL = []string{"auth::cdrwa", workerID + ":cdrwa"}
	rec.Sign()
	ops, err := zkstate.SetRecordOps(rec, o.RecordVersion)
	if err == nil {
		_, err = b.session.Multi(b.t.Context(), ops...)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
