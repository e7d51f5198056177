package reconcile

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/text"
	"muster/zkstate/znode"
)

// rowOf is a row of a job with this reason.
func rowOf(name string, reason plan.Reason, edits ...func(*job.Job)) plan.Row {
	j := job.Default()
	j.Root, j.Name, j.Workers = "/r", name, 2
	j.Timeouts.Stale = resource.Duration(30 * time.Second)
	for _, edit := range edits {
		edit(&j)
	}
	r := plan.Row{Path: j.Path(), New: j, Reason: reason}
	if reason == plan.NotThere {
		return r
	}
	rec := resource.Record{State: resource.StateOpen, Generation: "g", Stack: stack}
	_ = rec.Declare(j) // a job always encodes
	r.Old = &resource.Observed{Record: &rec, Counts: job.Counts(0, 0)}
	if reason == plan.StaleLeftover {
		r.Old.Counts = job.Counts(1, 0)
	}
	if reason == plan.Undeclared {
		r.New = nil
	}
	return r
}

// TestEveryChangeHasAWord, or is left to people.
func TestEveryChangeHasAWord(t *testing.T) {
	var left []plan.Reason
	words := map[Word]bool{}
	for _, reason := range plan.Reasons() {
		if !reason.Action().Changes() {
			continue
		}
		word := wordOf(rowOf("a", reason))
		if words[word] = true; word == "" {
			left = append(left, reason)
		}
	}
	want := []plan.Reason{plan.ClassicLeftover, plan.OwnerDiffers, plan.TerminatedIdle, plan.TerminatedKept}
	slices.Sort(left)
	if d := cmp.Diff(want, left); d != "" {
		t.Errorf("left to people (-want +got):\n%s", d)
	}
	for _, word := range Words() {
		if !words[word] {
			t.Errorf("%s stands for no reason", word)
		}
	}
	removes := func(j *job.Job) { j.Lifecycle.OnComplete = job.Remove }
	if word := wordOf(rowOf("a", plan.NotThere, removes)); word != "" {
		t.Errorf("a missing job that removes itself is a %s", word)
	}
}

// chosen says of each row of a plan what becomes of it.
func chosen(c choice) map[string]string {
	all := map[string]string{}
	for _, r := range c.do {
		all[r.Name()] = "done"
	}
	for _, w := range c.waiting {
		all[w.Row.Name()] = w.Why
	}
	return all
}

// TestChoose: rows wait for their grace, for another try, for a guard, and for people.
func TestChoose(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	rules := Rules{Allow: Words(), MaxDelete: 2, MaxReplace: 2, RestartAfter: 10 * time.Minute}
	m := newMemory()
	p := plan.Plan{Stack: stack, Rows: []plan.Row{
		rowOf("new", plan.NotThere), rowOf("failed", plan.MutableDiffers), rowOf("held", plan.NotThere),
		rowOf("stale", plan.StaleLeftover), rowOf("gone", plan.Undeclared),
	}}
	m.note(p, now)
	m.ended("/r/failed", true, now)
	m.ended("/r/failed", true, now)
	kept := &znode.Reconcile{Held: map[string]znode.Hold{
		"/r/held": {Why: znode.Paused, By: "ann", Since: now, Until: now.Add(time.Minute)},
	}}
	c := rules.choose(p, kept, m, "", nil, now)
	want := map[string]string{
		"new": "done", "gone": "done", "failed": "it is tried again at 12:00:02",
		"held":  "paused by ann since 2026-07-01 12:00:00, until 2026-07-01 12:01:00",
		"stale": "its members may come back until 12:10:00",
	}
	if d := cmp.Diff(want, chosen(c)); d != "" || !c.again.Equal(now.Add(2*time.Second)) {
		t.Errorf("at first, again at %s (-want +got):\n%s", c.again, d)
	}
	later := now.Add(10 * time.Minute)
	m.note(p, later)
	for name := range want {
		want[name] = "done"
	}
	if d := cmp.Diff(want, chosen(rules.choose(p, kept, m, "", nil, later))); d != "" {
		t.Errorf("later (-want +got):\n%s", d)
	}
	unread := p
	unread.Unindexed = "no permission"
	c = rules.choose(unread, kept, m, "", nil, later)
	if chosen(c)["gone"] != "not all roots of the stack could be read" {
		t.Errorf("without the index: %v", chosen(c))
	}
	kept.Deleted = []time.Time{now, now}
	c = rules.choose(p, kept, m, "ann has applied", nil, later)
	want = map[string]string{}
	for _, r := range p.Rows {
		want[r.Name()] = "ann has applied"
	}
	if d := cmp.Diff(want, chosen(c)); d != "" {
		t.Errorf("after an apply by hand (-want +got):\n%s", d)
	}
	c = rules.choose(p, kept, m, "", nil, later)
	if got := chosen(c)["gone"]; got != "more than 2 would be deleted within an hour" || c.shut[Delete] != 3 {
		t.Errorf("over the guard: %s, %v", got, c.shut)
	}
	kept.Forget(now.Add(time.Hour))
	if c := rules.choose(p, kept, m, "", nil, now.Add(time.Hour)); chosen(c)["gone"] != "done" {
		t.Errorf("an hour later: %v", chosen(c))
	}
}

// TestRetriesComeMoreRarely, up to a limit.
func TestRetriesComeMoreRarely(t *testing.T) {
	now := time.Now()
	m := newMemory()
	var waits []time.Duration
	for range 12 {
		m.ended("/r/a", true, now)
		waits = append(waits, m.tries["/r/a"].next.Sub(now))
	}
	if got := fmt.Sprint(waits[:3], waits[11]); got != "[1s 2s 4s] 10m0s" {
		t.Error(got)
	}
	if m.ended("/r/a", false, now); len(m.tries) != 0 {
		t.Error("a change that was made is tried again")
	}
}

// TestPolicies: a row that they deny waits, and is judged again later; of a plan that they deny only repairs are made.
// They see what could be done, and not what waits for something else.
func TestPolicies(t *testing.T) {
	now := time.Now()
	rules := Rules{Allow: DefaultAllow(), MaxDelete: 2, MaxReplace: 2}
	p := plan.Plan{Stack: stack, Rows: []plan.Row{
		rowOf("bad", plan.NotThere), rowOf("damaged", plan.IsDamaged), rowOf("gone", plan.Undeclared),
		rowOf("good", plan.NotThere), rowOf("same", plan.Equal),
	}}
	const waits = "it is a delete, which --allow does not name"
	for name, c := range map[string]struct {
		most int // rows that may change
		want map[string]string
	}{
		"a row": {2, map[string]string{"bad": "a bad row", "damaged": "done", "good": "done", "gone": waits}},
		"the plan": {1, map[string]string{
			"bad": "a bad row", "damaged": "done", "good": "too many", "gone": waits,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []int
			judge := func(p plan.Plan) (all string, rows map[string]string) {
				rows = map[string]string{}
				for _, r := range p.Changes() {
					if r.Name() == "bad" {
						rows[r.Path] = "a bad row"
					}
				}
				seen = append(seen, len(p.Rows))
				if len(p.Changes()) > c.most {
					all = "too many"
				}
				return all, rows
			}
			got := rules.choose(p, &znode.Reconcile{}, newMemory(), "", judge, now)
			if d := cmp.Diff(c.want, chosen(got)); d != "" || !got.again.Equal(now.Add(judgeEvery)) {
				t.Errorf("again at %s (-want +got):\n%s", got.again, d)
			}
			if got := fmt.Sprint(seen); got != "[5 4]" { // gone stays; then without bad
				t.Errorf("the policies saw %v rows", seen)
			}
		})
	}
}

// TestPoliciesAreAskedAgain: what is left may be denied for the lack of what was denied before.
func TestPoliciesAreAskedAgain(t *testing.T) {
	rules := Rules{Allow: DefaultAllow()}
	p := plan.Plan{Stack: stack, Rows: []plan.Row{
		rowOf("a", plan.NotThere), rowOf("b", plan.NotThere), rowOf("c", plan.NotThere),
	}}
	judge := func(p plan.Plan) (string, map[string]string) { // c never, b not without c, a not without b
		names := text.Each(p.Rows, plan.Row.Name)
		rows := map[string]string{"/r/c": "never"}
		for name, needs := range map[string]string{"b": "c", "a": "b"} {
			if !slices.Contains(names, needs) {
				rows["/r/"+name] = "not without " + needs
			}
		}
		return "", rows
	}
	got := chosen(rules.choose(p, &znode.Reconcile{}, newMemory(), "", judge, time.Now()))
	want := map[string]string{"a": "not without b", "b": "not without c", "c": "never"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestPoliciesAreAskedAfterTheGuards: what a guard keeps back is not done, and the rest may be denied for that.
func TestPoliciesAreAskedAfterTheGuards(t *testing.T) {
	rules := Rules{Allow: Words(), MaxDelete: 0}
	p := plan.Plan{Stack: stack, Rows: []plan.Row{rowOf("new", plan.NotThere), rowOf("gone", plan.Undeclared)}}
	judge := func(p plan.Plan) (string, map[string]string) {
		if len(p.Changes()) < 2 {
			return "", map[string]string{"/r/new": "first delete the old one"}
		}
		return "", nil
	}
	got := chosen(rules.choose(p, &znode.Reconcile{}, newMemory(), "", judge, time.Now()))
	want := map[string]string{"new": "first delete the old one", "gone": "more than 0 would be deleted within an hour"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestPoliciesSeeWhatStays: what waits for something else is seen as it is recorded, so that a budget counts it.
func TestPoliciesSeeWhatStays(t *testing.T) {
	waits := rowOf("waits", plan.ReadyDiffers)
	was := job.Of(recordOf(t, waits))
	waits.Old = &resource.Observed{Record: recordOf(t, waits)}
	j := was
	j.Workers = 80
	waits.New = j
	p := plan.Plan{Stack: stack, Rows: []plan.Row{rowOf("new", plan.NotThere), waits, rowOf("absent", plan.NotThere)}}
	got := withOnly(p, p.Rows[:1])
	if len(got.Rows) != 2 || got.Rows[1].New.(job.Job).Workers != 2 || got.Rows[1].Action() != plan.None {
		t.Errorf("%+v", got.Rows)
	}
}

func recordOf(t *testing.T, r plan.Row) *resource.Record {
	t.Helper()
	rec := &resource.Record{Stack: stack, State: resource.StateOpen}
	if err := rec.Declare(r.New); err != nil {
		t.Fatal(err)
	}
	return rec
}
