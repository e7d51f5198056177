package worker_test

import (
	"fmt"
	"strings"
	"testing"

	"muster/resource/job"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// TestNoRollKeepsWhatANewerMusterWrote: the worker that notes in the Record that the roll is too large leaves every
// field in it that it does not know, and the Record verifies.
func TestNoRollKeepsWhatANewerMusterWrote(t *testing.T) {
	t.Parallel()
	const n = 60
	j, store := newJob(t, n)
	s := dial(t)
	at := znode.Record(job.KindName, j.Root, j.Name)
	body, _, err := s.Get(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	unknown := []string{`"quota":{"cpu":4}`, `"priority":[3,"high"]`, `"drain":{"soft":"5s"}`}
	newer := strings.NewReplacer(
		`"job":{`, unknown[0]+`,"job":{`, `"workers":`, unknown[1]+`,"workers":`, `"session":`, unknown[2]+`,"session":`,
	).Replace(string(body))
	rec, err := znode.DecodeRecord(job.Kind(), []byte(newer))
	if err != nil {
		t.Fatal(err)
	}
	rec.Sign()
	ops, err := zkstate.SetRecordOps(rec, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Multi(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}

	large := map[string]int{}
	for i := range 60 {
		large[strings.Repeat("x", 250)+fmt.Sprint(i)] = 1
	}
	var last *worker.Member
	for i := range n {
		c := config(j, fmt.Sprint("w-", i))
		c.Info.Ports = large
		if last, err = worker.Join(t.Context(), s, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := last.WriteRoll(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := look(t, store, j)
	if job.NoRoll(o.Record) != last.Generation || o.Record.Edited() {
		t.Errorf("no_roll is %q; edited: %v", job.NoRoll(o.Record), o.Record.Edited())
	}
	for _, path := range []string{at, znode.Run(j.Root, last.Generation)} {
		body, _, err := s.Get(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range unknown {
			if strings.Count(string(body), field) != 1 {
				t.Errorf("%s has not %s once:\n%s", path, field, body)
			}
		}
	}
}
