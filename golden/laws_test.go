package golden

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/job"
	"muster/plan"
	"muster/report"
)

var seed = flag.Uint64("seed", 0, "seed of the property test; 0: a new one")

// checkLaws checks what holds for every declaration and every observation.
func checkLaws(t *testing.T, want plan.Want, have plan.State) {
	t.Helper()
	p := plan.Diff(want, have)
	for _, r := range plan.Diff(want, p.After(have)).Rows {
		if r.Action().Changes() {
			t.Errorf("after the plan was applied, %s still has to %s (%s)", r.Address(), r.Title(), r.Reason)
		}
	}
	shuffled := want
	shuffled.Jobs = slices.Clone(want.Jobs)
	rand.Shuffle(len(shuffled.Jobs), func(i, j int) {
		shuffled.Jobs[i], shuffled.Jobs[j] = shuffled.Jobs[j], shuffled.Jobs[i]
	})
	if d := cmp.Diff(p, plan.Diff(shuffled, have)); d != "" {
		t.Errorf("the plan of shuffled declarations (-plan +shuffled):\n%s", d)
	}
	survivesJSON(t, p, have)
	checkSafety(t, want, have, p)
}

// survivesJSON: a plan and a state that were written to a file are read back as they were.
func survivesJSON(t *testing.T, p plan.Plan, have plan.State) {
	t.Helper()
	p.ID = "p1" // a saved plan needs an id
	file, err := plan.Encode(plan.Saved{Plan: p})
	if err != nil {
		t.Fatal(err)
	}
	saved, err := plan.Decode(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	if d := cmp.Diff(p, saved.Plan, cmpopts.EquateEmpty(), everyFact()); d != "" {
		t.Errorf("plan (-written +read):\n%s", d)
	}
	body, err := json.Marshal(have)
	if err != nil {
		t.Fatal(err)
	}
	var state plan.State
	if err := json.Unmarshal(body, &state); err != nil {
		t.Fatal(err)
	}
	// The record of a job does not say where the job was declared.
	if d := cmp.Diff(have, state, cmpopts.EquateEmpty(), everyFact(), cmpopts.IgnoreFields(job.Job{}, "At")); d != "" {
		t.Errorf("state (-written +read):\n%s", d)
	}
}

// everyFact makes cmp compare every field of what was observed. The method Equal, which cmp would call, compares less.
func everyFact() cmp.Option {
	type fields plan.Observed
	return cmp.Transformer("fields", func(o plan.Observed) fields { return fields(o) })
}

// checkSafety checks what no plan may do, whatever the tables of actions say.
func checkSafety(t *testing.T, want plan.Want, have plan.State, p plan.Plan) {
	t.Helper()
	rows := map[string]plan.Row{}
	for _, r := range p.Rows {
		if _, twice := rows[r.Path]; twice {
			t.Errorf("%s has two rows", r.Path)
		}
		rows[r.Path] = r
		deletes := r.Action() == plan.Replace || r.Action() == plan.Delete
		switch {
		case r.Action().Changes() && r.Old != nil && (r.Old.Foreign || r.Old.Problem != ""):
			t.Errorf("%s is %s and would be changed: %s", r.Path, r.Old.Status(), r.Title())
		case r.Action().Changes() && r.New == nil && (r.Old.Record == nil || r.Old.Record.Stack != want.Stack):
			t.Errorf("%s is not ours and would be changed: %s", r.Path, r.Title())
		case deletes && r.Old.Live > 0:
			t.Errorf("%s has %d children and would be deleted: %s", r.Path, r.Old.Live, r.Title())
		case deletes && r.New != nil && r.New.Lifecycle.Protect:
			t.Errorf("%s is protected and would be deleted: %s", r.Path, r.Title())
		case r.Action() == plan.Update && slices.ContainsFunc(r.Changes(), immutable):
			t.Errorf("%s would have an immutable field changed", r.Path)
		case r.Action() == plan.Blocked && r.Proceed() == "":
			t.Errorf("%s is blocked (%s) and nothing says how to proceed", r.Path, r.Reason)
		}
	}
	for _, j := range want.Jobs {
		if rows[j.Path()].New == nil {
			t.Errorf("%s is declared and has no row", j.Path())
		}
	}
	for path := range have.Jobs {
		if rows[path].Old == nil {
			t.Errorf("%s was observed and has no row", path)
		}
	}
	if err := report.Plan(io.Discard, p, report.Options{All: true}); err != nil {
		t.Error(err)
	}
}

func immutable(c job.Change) bool { return c.Immutable }

// TestLawsHoldForAnything checks the laws on random declarations and observations. The flag -seed repeats a failure.
func TestLawsHoldForAnything(t *testing.T) {
	const rounds = 3000
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	r := dice{rand.New(rand.NewPCG(*seed, 0))}
	for round := range rounds {
		checkLaws(t, r.want(), r.have())
		if t.Failed() {
			t.Fatalf("in round %d; repeat with -seed %d", round, *seed)
		}
	}
	t.Logf("%d rounds with -seed %d", rounds, *seed)
}

// dice makes random declarations and observations. They have so few names and values that many of them meet.
type dice struct{ *rand.Rand }

func (r dice) one(in int) bool { return r.IntN(in) == 0 }

func pick[T any](r dice, from ...T) T { return from[r.IntN(len(from))] }

// job makes a job whose address others may have too, and whose fields often have the usual values.
func (r dice) job(name string) job.Job {
	j := job.Default()
	j.Name, j.Root, j.Address = name, "/r", fmt.Sprintf("job.%s[%q]", name, pick(r, "a", "b"))
	j.Workers = pick(r, 1, 3, 3, 3)
	j.RollFormat = pick(r, job.Protobuf, job.Protobuf, job.Protobuf, job.Text)
	j.Timeouts.Stale = pick(r, job.DefaultStaleTimeout, job.DefaultStaleTimeout, job.Duration(time.Minute))
	j.Lifecycle = job.Lifecycle{
		OnComplete: pick(r, job.Reset, job.Remove, job.Retain),
		OnRunning:  pick(r, job.Keep, job.Keep, job.Fail), Protect: r.one(5),
	}
	if r.one(3) {
		j.Labels = map[string]string{pick(r, "team", "env"): pick(r, "", "data", "-> \x1b[2J\u202e\u2028 </script>")}
	}
	return j
}

func (r dice) want() plan.Want {
	w := plan.Want{Stack: "ours"}
	if r.one(2) {
		w.TakeOver = []string{"old"}
	}
	for i := range 6 {
		if r.one(2) {
			j := r.job(fmt.Sprint("j", i))
			j.At = fmt.Sprintf("jobs.hcl:%d", r.IntN(9))
			w.Jobs = append(w.Jobs, j)
		}
	}
	return w
}

func (r dice) have() plan.State {
	s := plan.State{Ensemble: pick(r, "", "e1"), Jobs: map[string]plan.Observed{}}
	for i := range 6 {
		if name := fmt.Sprint("j", i); !r.one(3) {
			s.Jobs["/r/"+name] = r.observed(name)
		}
	}
	return s
}

// observed makes any mixture of facts, also some that no reader should report.
func (r dice) observed(name string) plan.Observed {
	n := pick(r, 1, 3, 3)
	o := plan.Observed{Version: int32(r.IntN(3)), Pzxid: r.Int64(), Joined: pick(r, 0, 0, r.IntN(n+1), n)}
	o.Done = pick(r, 0, 0, r.IntN(o.Joined+1), o.Joined)
	o.Live = pick(r, 0, 0, r.IntN(n+1), o.Joined-o.Done)
	if o.Live > 0 && r.one(4) {
		o.Strangers = []string{"notes"}
	}
	if o.Live > 1 && r.one(2) {
		o.Workers = []string{"10.0.0.1:7000"}
	}
	switch r.IntN(10) {
	case 0:
		o.Foreign, o.Problem = true, "it holds neither a record nor a roll"
		return o
	case 1:
		o.Problem = pick(r, "", "no permission")
		return o
	case 2:
		o.Classic, o.Companions = true, []string{"/r/" + name + "-lock"}
		return o
	}
	rec := job.Record{
		Job: r.job(name), Stack: pick(r, "ours", "ours", "ours", "old", "theirs"),
		Generation: fmt.Sprint("g", r.IntN(1000)), State: pick(r, job.Open, job.Open, job.Open, job.Terminating),
		Op: "op", By: pick(r, "", "ann@host"),
	}
	rec.Job.Workers = pick(r, n, n, rec.Job.Workers)
	rec.Digest = rec.Sum()
	if r.one(4) {
		rec.ACL, rec.Last = []string{"auth::cdrwa"}, &job.Run{Generation: "g0", Completed: "2026-01-01T00:00:00Z"}
		rec.NoRoll = "g0"
	}
	o.Record = &rec
	if r.one(15) {
		o.Problem = "there is a record but no job znode"
	}
	return o
}
