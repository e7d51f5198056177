// Package hostile searches for what one participant can do to others: tests only. docs/testing.md describes it.
package hostile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/apply"
	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// bound is how long all commands of a stack together may take. They take a tenth of a second.
const bound = 2 * time.Minute

// attempt is one attack, and what others do then.
type attempt struct {
	e               *estate
	place           func(context.Context) (*place, error)
	attacker, other stack
	first           bool // the attacker's own stack is applied and terminated before the other one, and not after it
	do              attack
}

// run plants the estate, lets the attacker act, and then lets both stacks run their commands. It returns what is of the
// other stack then. refused is what the server has refused to the attacker.
func (a attempt) run(ctx context.Context) (f facts, refused error, err error) {
	p, err := a.place(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer p.done()
	ghosts, err := a.e.picture.plant(ctx, p)
	if err != nil {
		return nil, nil, fmt.Errorf("plant: %w", err)
	}
	defer ghosts.Close()
	if len(a.do) > 0 {
		as, err := p.dial(ctx, a.attacker.user())
		if err != nil {
			return nil, nil, err
		}
		defer as.Close()
		refused = a.do.run(ctx, as)
	}
	on, err := p.dial(ctx, ops)
	if err != nil {
		return nil, refused, err
	}
	defer on.Close()
	spoken, err := a.commands(ctx, on)
	if err != nil {
		return nil, refused, err
	}
	f, err = a.e.observe(ctx, p, on, a.attacker, spoken)
	if err == nil && a.e.trap.sprung() {
		f["trap"] = "somebody has come to an address that only the attacker names"
	}
	return f, refused, err
}

// commands runs the commands of both stacks. It returns what those of the other stack have said.
func (a attempt) commands(ctx context.Context, on *zkconn.Session) (spoken said, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("not within %s", bound))
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if a.first {
			a.attacker.changes(ctx, on, said{})
		}
		spoken = a.other.commands(ctx, on)
		if !a.first {
			a.attacker.changes(ctx, on, said{})
		}
	}()
	select {
	case <-done:
	case <-time.After(2 * bound): // they do not even end with their context
		return nil, fmt.Errorf("the commands hang")
	}
	return spoken, context.Cause(ctx)
}

// trial is the attacks of one stack on the other.
type trial struct {
	t      *testing.T
	e      *estate
	places []func(context.Context) (*place, error)
	pair   [2]stack // attacker and other
	want   map[int]facts
	last   string // a file with the attack that goes on, for whoever looks for what has crashed the test
	n      int
}

func newTrial(t *testing.T, e *estate, attacker, other stack, places ...func(context.Context) (*place, error)) *trial {
	t.Helper()
	r := &trial{t: t, e: e, places: places, pair: [2]stack{attacker, other}, want: map[int]facts{}}
	r.last = filepath.Join(os.TempDir(), fmt.Sprintf("muster-hostile-%d.txt", os.Getpid()))
	t.Cleanup(func() { _ = os.Remove(r.last) })
	for turn := range 2 * len(places) {
		f, _, err := r.attempt(turn, nil).run(t.Context())
		if err != nil {
			t.Fatalf("without an attack: %v", err)
		}
		r.want[turn] = f
	}
	return r
}

// attempt is one at a place and in an order that its turn says.
func (r *trial) attempt(turn int, do attack) attempt {
	return attempt{
		e: r.e, place: r.places[turn%len(r.places)], attacker: r.pair[0], other: r.pair[1],
		first: turn/len(r.places)%2 == 1, do: do,
	}
}

// try lets the attacker act once at each place. Nothing of the other stack may be other than without the attack.
func (r *trial) try(do attack) {
	r.t.Helper()
	r.n++
	r.check(r.n%2, do)
}

// tryGroup is try for several attacks at once. If they do harm, each is tried alone, to see which does.
func (r *trial) tryGroup(group attack) {
	r.t.Helper()
	r.n++
	order, harmless := r.n%2, true
	if r.harm(order*len(r.places), group) == "" {
		return
	}
	for _, one := range group {
		harmless = r.check(order, attack{one}) && harmless
	}
	if harmless {
		r.check(order, group)
	}
}

// check reports whether an attack does no harm at any place. What differs once and not again is the machine's fault: a
// command may have lost its connection.
func (r *trial) check(order int, do attack) bool {
	r.t.Helper()
	for i := range r.places {
		turn := order*len(r.places) + i
		harm := r.harm(turn, do)
		if harm == "" {
			continue
		}
		if again := r.harm(turn, do); again != "" {
			r.t.Errorf("%s\nturn %d, %s", do, turn, again)
			return false
		}
		r.t.Logf("once, and not again: %s\nturn %d, %s", do, turn, harm)
	}
	return true
}

// harm is what an attack has done to the other stack; empty: nothing.
func (r *trial) harm(turn int, do attack) string {
	if err := os.WriteFile(r.last, []byte(do.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	got, refused, err := r.attempt(turn, do).run(r.t.Context())
	if err != nil {
		return fmt.Sprintf("refused: %v\n%v", refused, err)
	}
	r.e.forgive(got, r.want[turn], do, r.pair[1])
	if d := got.differs(r.want[turn]); len(d) > 0 {
		return fmt.Sprintf("refused: %v\n%s", refused, strings.Join(d, "\n"))
	}
	return ""
}

// Numbers of attacks: how many random ones make test tries, on the real server and on the model, and how many different
// ones the long form tries at least, on the model.
const (
	few  = 4
	many = 100_000
)

// TestAnythingWritten: whatever a participant of one stack writes, creates and removes with the rights that
// examples/guarded gives it, nothing of another stack in the same root changes but as without it, nobody comes to an
// address that only it names, and every command ends. MUSTER_SEED repeats the random attacks. With MUSTER_SOAK=1 all
// attacks of one step are tried, a dozen at once that concern different resources, and then random ones.
func TestAnythingWritten(t *testing.T) {
	e, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	r := rand.New(rand.NewPCG(rig.Seed(t), 0))
	for i, attacker := range e.stacks {
		t.Run(attacker.name, func(t *testing.T) {
			other, a := e.stacks[1-i], e.arm(attacker)
			both := newTrial(t, e, attacker, other, real, model)
			for name, do := range a.known(other) {
				t.Run(name, func(t *testing.T) { both.in(t).try(do) })
			}
			for range few {
				both.try(a.random(r))
			}
			if !rig.Long() {
				return
			}
			fast := newTrial(t, e, attacker, other, model)
			steps := 0
			for group := range a.all() {
				fast.tryGroup(group)
				steps += len(group)
				if fast.n%1000 == 0 {
					t.Logf("%d steps in %d attempts", steps, fast.n)
				}
			}
			t.Logf("all %d single steps", steps)
			for ; steps < many/len(e.stacks); steps++ {
				fast.try(a.random(r))
			}
			t.Logf("%d attacks", steps)
		})
	}
}

// in is the trial for a test within the test.
func (r *trial) in(t *testing.T) *trial {
	same := *r
	same.t = t
	return &same
}

// attack is what an attacker does, step by step.
type attack []step

// step writes, creates, or deletes with what is below it, one znode.
type step struct {
	do   deed
	path string
	body []byte
	why  string // what the body is
}

type deed string

const (
	write  deed = "write"
	create deed = "create"
	remove deed = "remove"
)

func (a attack) String() string {
	var all []string
	for _, s := range a {
		body := s.body
		if len(body) > 900 {
			body = body[:900]
		}
		all = append(all, fmt.Sprintf("%s %s (%s) %q", s.do, s.path, s.why, body))
	}
	return strings.Join(all, "\n  then ")
}

// names reports whether what the attacker writes names a generation or a resource.
func (a attack) names(it string) bool {
	return slices.ContainsFunc(a, func(s step) bool { return strings.Contains(string(s.body), it) })
}

// run does what the server allows.
func (a attack) run(ctx context.Context, s *zkconn.Session) (refused error) {
	for _, one := range a {
		err := one.run(ctx, s)
		if refused == nil {
			refused = err
		}
	}
	return refused
}

func (o step) run(ctx context.Context, s *zkconn.Session) error {
	switch o.do {
	case write:
		_, err := s.Set(ctx, o.path, o.body, -1)
		return err
	case create:
		_, err := s.Create(ctx, o.path, o.body, zkconn.Persistent, zkconn.World(zkconn.PermAll))
		return err
	}
	names, _, err := s.Children(ctx, o.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := (step{do: remove, path: below(o.path, name)}).run(ctx, s); err != nil {
			return err
		}
	}
	return s.Delete(ctx, o.path, -1)
}

// shape is a path without what is random or chosen in it. Znodes of one shape hold bodies of one kind; a record and its
// copies are of one shape, whatever they declare.
func shape(at string) string {
	rest, inRun := strings.CutPrefix(at, znode.RunDir(root)+"/")
	if !inRun {
		parts := strings.Split(at, "/")
		if len(parts) == 5 && parts[2] == resource.Reserved {
			return "record"
		}
		for i := len(root) / len("/jobs") * 3; i < len(parts); i++ {
			parts[i] = "*"
		}
		return strings.Join(parts, "/")
	}
	parts := strings.Split(rest, "/")[1:]
	if len(parts) == 0 {
		return "record"
	}
	for i := 1; i < len(parts); i++ {
		if parts[0] != "duty" || i != 2 {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}

// allows reports whether an ACL grants a permission to a user.
func allows(acl []zkconn.ACL, user string, perm int32) bool {
	return slices.ContainsFunc(acl, func(a zkconn.ACL) bool {
		return a.Perms&perm != 0 && (a.Scheme == "world" || a.Scheme+":"+a.ID == id(user))
	})
}

// applied is how an apply ended.
type applied struct {
	plan     plan.Plan
	outcomes []apply.Outcome
	err      error
}

// compare makes a plan as "muster plan" does.
func (s stack) compare(ctx context.Context, r *zkstate.Reader, declared []resource.Declaration) (plan.Plan, error) {
	p, err := apply.Compare(ctx, r, plan.Want{Stack: s.name, Home: home, Declared: declared}, []string{root})
	p.ID = zkstate.NewID()
	return p, err
}

// apply is "muster apply --yes". What is stale has been so for long.
func (s stack) apply(ctx context.Context, on *zkconn.Session, declared []resource.Declaration) applied {
	store, err := s.store(on)
	if err != nil {
		return applied{err: err}
	}
	p, err := s.compare(ctx, store.Reader, declared)
	if err != nil {
		return applied{err: err}
	}
	a := applied{plan: p}
	a.outcomes, a.err = apply.Run(ctx, store, p, apply.Options{
		CommitOptions: apply.CommitOptions{ObservedAt: time.Now().Add(-time.Hour)}, LockTimeout: time.Minute,
	})
	return a
}

// said is what a command said, by what it said it of.
type said map[string]string

func (t said) note(name string, err error) {
	if err != nil {
		t[name] = "error: " + err.Error()
	}
}

// commands runs every command of a stack that somebody else's znodes could mislead, and returns what they said of this
// stack's own.
func (s stack) commands(ctx context.Context, on *zkconn.Session) said {
	t := said{}
	s.reads(ctx, on, t)
	s.changes(ctx, on, t)
	return t
}

// changes runs those that change something: apply, terminate, and the end of a run.
func (s stack) changes(ctx context.Context, on *zkconn.Session, t said) {
	a := s.apply(ctx, on, s.declared)
	t.note("apply", a.err)
	for _, o := range a.outcomes {
		if s.is(o.Row.Path) {
			t["apply "+o.Row.Path] = fmt.Sprint(o.Result, o.Err)
		}
	}
	store, err := s.store(on)
	if err != nil {
		t.note("store", err)
		return
	}
	for _, name := range []string{"ready", "run", "lost", "idle", "group", "queue"} {
		err := store.Terminate(ctx, s.at(name), time.Millisecond, nil)
		t["terminate "+name] = verdict(err)
	}
	o, err := store.Look(ctx, s.at("over"))
	t.note("over", err)
	if o != nil && o.Record != nil {
		t.note("finish", store.Finish(ctx, s.at("over"), o.Record.Generation))
	}
}

// verdict is what an error of Terminate means. How far it came within a millisecond is up to luck.
func verdict(err error) string {
	for _, known := range []error{
		zkstate.ErrStillLive, zkstate.ErrNotTerminable, zkstate.ErrOtherStack, zkstate.ErrProtected, plan.ErrAlreadyDone,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(err)
}

// reads runs those that only read: plan, drift, status of all and of each, and what serve reads.
func (s stack) reads(ctx context.Context, on *zkconn.Session, t said) {
	r := zkstate.NewReader(on, home, kinds()...)
	p, err := s.compare(ctx, r, s.declared)
	t.note("plan", err)
	for _, row := range p.Rows {
		if s.is(row.Path) {
			changes, bad := json.Marshal(row.Changes())
			t["plan "+row.Path] = fmt.Sprint(row.Reason, row.Old.Status(), string(changes), bad, row.Because())
		}
	}
	for _, f := range p.Drift(nil).Findings {
		if s.is(f.Row.Path) {
			t["drift "+f.Row.Path] += fmt.Sprint(f.Kind)
		}
	}
	roots, _ := r.AllRoots(ctx) // those that could be read
	have, err := r.Read(ctx, append(roots, root))
	t.note("status", err)
	for at, o := range have.Found {
		s.detail(ctx, on, r, at, o, t)
	}
	_, err = r.History(ctx, s.name, 20)
	t.note("history", err)
	s.tracks(ctx, on, t)
}

// detail is "muster status" of one resource.
func (s stack) detail(
	ctx context.Context, on *zkconn.Session, r *zkstate.Reader, at string, o resource.Observed, t said,
) {
	j := view.Resource{Path: at, Observed: o}
	err := r.FillDetail(ctx, &j, time.Now())
	if err == nil && j.Group != nil {
		err = member.FillRuns(ctx, on, o.Record, j.Group.Duties, member.AllRuns)
	}
	if !s.is(at) {
		return // all of it is read, and what it says is its owner's
	}
	body, bad := json.Marshal(j)
	t["status "+at] = fmt.Sprint(string(body), err, bad)
	if c := o.Class(); (c == resource.Damaged || c == resource.Unreadable) && o.Record != nil {
		_, _, err := r.Parts(ctx, o.Record.Declaration.Kind(), at, &o)
		t.note("parts "+at, err)
	}
}

// tracks reads as serve does.
func (s stack) tracks(ctx context.Context, on *zkconn.Session, t said) {
	m := zkstate.NewMirror(on)
	tracker := zkstate.NewTracker(m, zkstate.TrackerConfig{Home: home, Kinds: kinds()})
	defer tracker.Close()
	state, err := tracker.Read(ctx, []string{root})
	t.note("serve", err)
	for at, o := range state.Found {
		if s.is(at) {
			t["serve "+at] = fmt.Sprint(o.Status(), o.Live, o.Counts, o.Lost, o.Problem, job.Joined(&o))
		}
	}
}
