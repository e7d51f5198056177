package hostile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/sim/soak"
	"muster/zkstate/zkconn"
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
	r := rand.New(rand.NewPCG(soak.Seed(t), 0))
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
			if !soak.Long() {
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
