package golden

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/plan"
	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
)

var seed = flag.Uint64("seed", 0, "seed of the property test; 0: a new one")

// checkLaws checks what holds for every declaration and every observation.
func checkLaws(t *testing.T, want plan.Want, have plan.State) {
	t.Helper()
	p := plan.Diff(want, have)
	after := stateAfter(p, have)
	if slices.ContainsFunc(p.Rows, func(r plan.Row) bool { return r.Reason == plan.IsDamaged }) {
		after = stateAfter(plan.Diff(want, after), after) // a repair comes first, the rest in the next plan
	}
	for _, r := range plan.Diff(want, after).Rows {
		if r.Action().Changes() {
			t.Errorf("after the plan was applied, %s still has to %s (%s)", r.Address(), r.Title(), r.Reason)
		}
	}
	shuffled := want
	shuffled.Declared = slices.Clone(want.Declared)
	rand.Shuffle(len(shuffled.Declared), func(i, j int) {
		shuffled.Declared[i], shuffled.Declared[j] = shuffled.Declared[j], shuffled.Declared[i]
	})
	if d := cmp.Diff(p, plan.Diff(shuffled, have)); d != "" {
		t.Errorf("the plan of shuffled declarations (-plan +shuffled):\n%s", d)
	}
	survivesJSON(t, p)
	checkSafety(t, want, have, p)
}

// stateAfter is s after every change of p is committed. Generations, versions and times are empty, since the commit
// sets them. A repaired resource has the counts that were observed.
func stateAfter(p plan.Plan, s plan.State) plan.State {
	found := map[string]resource.Observed{}
	maps.Copy(found, s.Found)
	for _, r := range p.Rows {
		rec := &resource.Record{}
		switch r.Action() {
		case plan.Create, plan.Replace:
			found[r.Path] = resource.Observed{Record: rec}
		case plan.Update:
			o := *r.Old
			*rec, o.Record = *o.Record, rec
			if r.Reason != plan.IsDamaged {
				o.Saved = nil // of what is left, nothing is about to be deleted
			} else if o.Lost = slices.DeleteFunc(slices.Clone(o.Lost), resource.Part.CanBePutBack); inPlace(rec) {
				o.Lost, o.BeyondRepair = nil, ""
			}
			found[r.Path] = o
		case plan.Delete:
			delete(found, r.Path)
			continue
		default:
			continue
		}
		if r.Reason != plan.IsDamaged {
			rec.Stack, rec.Home, rec.State = p.Stack, p.Home, resource.StateOpen
			_ = rec.Declare(r.New) // a declaration always encodes
		}
	}
	s.Found = found
	return s
}

func inPlace(r *resource.Record) bool { return r.Declaration.Policy().InPlace }

// survivesJSON checks that a plan file is read as it was written.
func survivesJSON(t *testing.T, p plan.Plan) {
	t.Helper()
	p.ID = "p1" // a saved plan needs an id
	file, err := planfile.Encode(kinds(), planfile.Saved{Plan: p})
	if err != nil {
		t.Fatal(err)
	}
	saved, err := planfile.Decode(kinds(), file)
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	if d := cmp.Diff(p, saved.Plan, cmpopts.EquateEmpty(), everyFact()); d != "" {
		t.Errorf("plan (-written +read):\n%s", d)
	}
}

// everyFact makes cmp compare every field of what was observed: the method Equal, which cmp would call, compares less.
// Of a record it compares what a plan file holds, which is not its bytes, but whether somebody edited them.
func everyFact() cmp.Option {
	type facts resource.Observed // without its method Equal
	type fields struct {
		Facts  facts
		Counts string
	}
	type record struct {
		resource.Record
		Edited bool
	}
	return cmp.Options{
		cmp.Transformer("fields", func(o resource.Observed) fields {
			counts := maps.Clone(o.Counts)
			maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
			o.Counts = nil
			return fields{facts(o), fmt.Sprint(counts)}
		}),
		cmp.FilterPath(func(p cmp.Path) bool { return p.Last().Type() == reflect.TypeFor[*resource.Record]() },
			cmp.Transformer("record", func(r *resource.Record) *record {
				if r == nil {
					return nil
				}
				return &record{*r, r.Edited()}
			})),
		cmp.Transformer("json", func(body json.RawMessage) (v any) {
			_ = json.Unmarshal(body, &v) // a body that cannot be decoded is nil
			return v
		}),
		cmpopts.IgnoreFields(resource.Record{}, "Body"), cmpopts.IgnoreUnexported(resource.Record{}),
	}
}

// checkSafety checks what no plan may do, without the tables of actions.
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
		case deletes && r.Old.Record != nil && r.Old.Count(r.Old.Record.Declaration.Kind().Unfinished.Count) > 0:
			t.Errorf("%s has unfinished work and would be deleted: %s", r.Path, r.Title())
		case r.Action() == plan.Replace && r.Old.Record != nil && r.Old.Record.Declaration.Policy().InPlace &&
			!slices.ContainsFunc(r.Changes(), func(c resource.Change) bool { return c.Immutable }):
			t.Errorf("%s would lose what was saved in its generation: %s", r.Path, r.Title())
		case r.Deletes() != (r.Action() == plan.Delete || r.LossText() != ""):
			t.Errorf("%s deletes something (%v) and loses %q", r.Path, r.Deletes(), r.LossText())
		case deletes && r.New != nil && r.New.Policy().Protect:
			t.Errorf("%s is protected and would be deleted: %s", r.Path, r.Title())
		case r.Action() == plan.Update && r.Reason != plan.IsDamaged && slices.ContainsFunc(r.Changes(), immutable):
			t.Errorf("%s would have an immutable field changed", r.Path)
		case r.Action() == plan.Blocked && r.Proceed() == "":
			t.Errorf("%s is blocked (%s) and nothing says how to proceed", r.Path, r.Reason)
		}
	}
	for _, d := range want.Declared {
		if at := d.ID().Path(); rows[at].New == nil {
			t.Errorf("%s is declared and has no row", at)
		}
	}
	for path := range have.Found {
		if rows[path].Old == nil {
			t.Errorf("%s was observed and has no row", path)
		}
	}
	if err := report.Plan(io.Discard, p, report.Options{All: true}); err != nil {
		t.Error(err)
	}
}

func immutable(c resource.Change) bool { return c.Immutable }

// TestLawsHoldForAnything checks the laws on random declarations and observations; with MUSTER_SOAK=1 on more of them.
// To repeat a failure, use -seed.
func TestLawsHoldForAnything(t *testing.T) {
	rounds := 1000
	if os.Getenv("MUSTER_SOAK") != "" {
		rounds = 100_000
	}
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

// dice makes random declarations and observations. There are few names and values, so that many of them are equal.
type dice struct{ *rand.Rand }

func (r dice) one(in int) bool { return r.IntN(in) == 0 }

func pick[T any](r dice, from ...T) T { return from[r.IntN(len(from))] }

// job makes a job. Another job may have its address, and many fields have their defaults.
func (r dice) job(name string) job.Job {
	j := job.Default()
	j.Name, j.Root, j.Address = name, "/r", fmt.Sprintf("job.%s[%q]", name, pick(r, "a", "b"))
	j.Workers = pick(r, 1, 3, 3, 3)
	j.RollFormat = pick(r, job.Protobuf, job.Protobuf, job.Protobuf, job.Text)
	j.Timeouts.Stale = resource.Duration(pick(r, 30*time.Second, 30*time.Second, time.Minute))
	j.Lifecycle = job.Lifecycle{
		OnComplete: pick(r, job.Reset, job.Remove, job.Retain),
		OnRunning:  pick(r, job.Keep, job.Keep, job.Fail), Protect: r.one(5),
	}
	if r.one(3) {
		j.Labels = map[string]string{pick(r, "team", "env"): pick(r, "", "data", "-> \x1b[2J\u202e\u2028 </script>")}
	}
	return j
}

// declaration makes a job, a group or a queue. at is its place in the source.
func (r dice) declaration(name, at string) resource.Declaration {
	if r.one(3) {
		g := r.group(name)
		g.At = at
		return g
	}
	if r.one(3) {
		q := r.queue(name)
		q.At = at
		return q
	}
	j := r.job(name)
	j.At = at
	return j
}

func (r dice) queue(name string) queue.Queue {
	q := queue.Default()
	q.Name, q.Root, q.Address = name, "/r", fmt.Sprintf("queue.%s[%q]", name, pick(r, "a", "b"))
	q.Redis = pick(r, "redis://redis-1", "redis://redis-1:6379/0", "rediss://redis-2")
	q.MaxTask = pick(r, q.MaxTask, 1<<20)
	q.Timeouts.Stale = resource.Duration(pick(r, 30*time.Second, 30*time.Second, time.Minute))
	q.Lifecycle.Protect = r.one(5)
	return q
}

func (r dice) group(name string) group.Group {
	g := group.Default()
	g.Name, g.Root, g.Address = name, "/r", fmt.Sprintf("group.%s[%q]", name, pick(r, "a", "b"))
	g.Timeouts.Stale = resource.Duration(pick(r, 30*time.Second, 30*time.Second, time.Minute))
	g.Lifecycle.Protect = r.one(5)
	for _, duty := range []string{"a", "a.b"} {
		switch r.IntN(4) {
		case 0:
			g.Add(group.NewDuty(group.Leader, duty))
		case 1, 2:
			d := group.NewDuty(group.Cron, duty)
			d.Schedule, d.Keep = pick(r, "@daily", "0 2 * * *"), pick(r, 20, 20, 5)
			g.Add(d)
		}
	}
	return g
}

// saved is what members have saved for some of the duties of g.
func (r dice) saved(g group.Group) []resource.Saved {
	var all []resource.Saved
	for _, d := range g.Duties {
		if r.one(2) {
			all = append(all, resource.Saved{Section: d.Section(), Keys: 1 + r.IntN(3), Bytes: r.Int64N(1 << 40)})
		}
	}
	if len(all) > 0 && r.one(2) {
		all[0].Open = []string{"checkpoint"}
	}
	return all
}

func (r dice) want() plan.Want {
	w := plan.Want{Stack: "ours", Home: "/.muster"}
	if r.one(2) {
		w.TakeOver = []string{"old"}
	}
	for i := range 6 {
		if r.one(2) {
			w.Declared = append(w.Declared, r.declaration(fmt.Sprint("j", i), fmt.Sprintf("jobs.hcl:%d", r.IntN(9))))
		}
	}
	return w
}

func (r dice) have() plan.State {
	s := plan.State{Ensemble: pick(r, "", "e1"), Found: map[string]resource.Observed{}}
	for i := range 6 {
		if name := fmt.Sprint("j", i); !r.one(3) {
			s.Found["/r/"+name] = r.observed(name)
		}
	}
	return s
}

// observed makes any mixture of facts, also one that no reader returns.
func (r dice) observed(name string) resource.Observed {
	n := pick(r, 1, 3, 3)
	joined := pick(r, 0, 0, r.IntN(n+1), n)
	done := pick(r, 0, 0, r.IntN(joined+1), joined)
	o := resource.Observed{Version: int32(r.IntN(3)), Pzxid: r.Int64(), Counts: job.Counts(joined, done)}
	o.Live = pick(r, 0, 0, r.IntN(n+1), joined-done)
	if o.Live > 0 && r.one(4) {
		o.Strangers = []string{"notes"}
	}
	if o.Live > 1 && r.one(2) {
		o.Members = []string{"10.0.0.1:7000"}
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
	recorded := r.declaration(name, "")
	if g, ok := recorded.(group.Group); ok {
		o.Counts, o.Saved = group.Counts(r.IntN(3), 0, 0), r.saved(g)
	}
	if _, ok := recorded.(queue.Queue); ok {
		o.Counts = queue.Found{
			Executors: r.IntN(2), Batches: r.IntN(3), Waiting: r.IntN(2), Lost: r.IntN(2), Refused: r.one(4),
			Full: r.one(4),
		}.Counts()
	}
	if j, ok := recorded.(job.Job); ok {
		j.Workers = pick(r, n, n, j.Workers)
		recorded = j
	}
	rec := resource.Record{
		Stack: pick(r, "ours", "ours", "ours", "old", "theirs"), Home: pick(r, "", "/.muster", "/other"),
		Generation: fmt.Sprint("g", r.IntN(1000)), Op: "op", By: pick(r, "", "ann@host"),
		State: pick(r, resource.StateOpen, resource.StateOpen, resource.StateOpen, resource.StateTerminating),
	}
	_ = rec.Declare(recorded) // it always encodes
	if r.one(4) {
		rec.ACL = []string{"auth::cdrwa"}
		_ = job.SetLastRun(&rec, job.Run{Generation: "g0", Completed: "2026-01-01T00:00:00Z"})
		_ = job.SetNoRoll(&rec, "g0")
	}
	o.Record = &rec
	switch r.IntN(15) {
	case 0:
		o.Problem = "it cannot be understood"
	case 1:
		o.Lost = []resource.Part{pick(r, resource.PartRecord, resource.PartGate, resource.PartZnode)}
	case 2:
		o.Lost = []resource.Part{pick(r, "id", resource.PartGeneration)}
		o.BeyondRepair = "what was in it is not known"
		if r.one(2) {
			o.Lost = append(o.Lost, resource.PartZnode)
			o.Live = 0
		}
	}
	return o
}
