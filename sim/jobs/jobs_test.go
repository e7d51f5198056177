// Package jobs_test has worlds of a job's workers: joins, barriers, ends. It has no code of its own.
package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

func TestWorlds(t *testing.T) { sim.Test(t, worlds()...) }

// TestMutants: every guard of a worker's transactions is needed, as the table says.
func TestMutants(t *testing.T) { sim.Mutants(t, "testdata/guards.txt", worlds()...) }

func worlds() []sim.Named {
	faults := sim.Faults{Crashes: 2, Cuts: 2, Expiries: 2, LostReplies: 2, Pauses: 2}
	named := func(name string, world func(*sim.World)) sim.Named {
		options := sim.Options{Seeds: 50, End: 30 * time.Minute, Faults: faults, Own: isOwn, Path: normalise}
		return sim.Named{Name: name, Options: options, World: world}
	}
	return []sim.Named{
		named("join", joinWorld),
		named("join-hand", joinHandWorld),
		named("join-index", joinIndexWorld),
		named("twins", twinsWorld),
		named("late", lateWorld),
		named("run", runWorld),
		named("roll", rollWorld(job.ByJoin)),
		named("roll-index", rollWorld(job.ByIndex)),
		named("barrier-durable", barrierWorld(2, false, false, "w0")),
		named("barrier-live", barrierWorld(2, true, false, "w0")),
		named("barrier-durable-retry", barrierWorld(3, false, true)),
		named("barrier-live-retry", barrierWorld(3, true, true)),
		named("next-durable", nextWorld(false, false)),
		named("next-live", nextWorld(true, false)),
		named("next-live-retry", nextWorld(true, true)),
		named("start", startWorld),
		named("values", valuesWorld),
		named("address", addressWorld),
		named("terminate", terminateWorld),
		named("hand-durable", handWorld(false)),
		named("hand-live", handWorld(true)),
		named("ended", endedWorld),
		named("told", toldWorld),
		named("update-reset", updateWorld(job.Reset)),
		named("update-remove", updateWorld(job.Remove)),
		named("back", backWorld(false, 0)),
		named("back-both", backWorld(false, 2)),
		named("back-retry", backWorld(true, 0)),
		named("missing-durable", missingWorld(false)),
		named("missing-live", missingWorld(true)),
		named("taken-durable", takenWorld(1, false, false, false)),
		named("taken-live", takenWorld(1, false, true, false)),
		named("taken-missing", takenWorld(2, false, false, false)),
		named("taken-missing-retry", takenWorld(2, false, true, true)),
		named("taken-durable-retry", takenWorld(2, true, false, true)),
		named("taken-live-retry", takenWorld(2, true, true, true)),
		few(named("no-roll", noRollWorld)),
		named("gang", gangWorld),
		named("gang-drain", gangDrainWorld),
		named("gang-taken", gangTakenWorld),
		named("gang-ended", gangEndedWorld),
		named("gang-spares", gangSparesWorld),
		named("gang-spares-twins", gangTwinsWorld),
		named("gang-spares-ended", gangSparesEndedWorld),
	}
}

// few is for a world whose schedules take long.
func few(n sim.Named) sim.Named {
	n.Options.Seeds = 20
	return n
}

// isOwn leaves out what apply writes: it checks the index of its stack, or puts a gate back.
func isOwn(kind string) bool {
	return !strings.Contains(kind, "/.muster/stack/") && !strings.HasSuffix(kind, "@v, create /jobs/.muster/run/<id>/gate")
}

// names are what differs between paths of one kind: identities, barriers, rounds and their attempts, keys.
var names = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`^(/jobs/j/|.*/by/)[^/@]+`), "$1<identity>"},
	{regexp.MustCompile(`/barrier/[^/@]+(@[0-9]+)?/[0-9.]+`), "/barrier/<name>/<round>"},
	{regexp.MustCompile(`/barrier/[^/@]+(@[0-9]+)?(@v)?$`), "/barrier/<name>$2"},
	{regexp.MustCompile(`/key\b`), "/<key>"},
}

func normalise(path string) string {
	for _, n := range names {
		path = n.pattern.ReplaceAllString(path, n.by)
	}
	return path
}

func BenchmarkWorlds(b *testing.B) { sim.Bench(b, worlds()...) }

// sessionTimeout is what every process asks for.
const sessionTimeout = 10 * time.Second

// jobs is a world with one job.
type jobs struct {
	*sim.World
	book *book
}

// newJobs is a world in which a job of n workers has been applied.
func newJobs(w *sim.World, n int, edits ...func(*job.Job)) *jobs {
	j := job.Default()
	j.Root, j.Name, j.Workers = "/jobs", "j", n
	j.Timeouts.Session = resource.Duration(sessionTimeout)
	for _, edit := range edits {
		edit(&j)
	}
	k := &jobs{World: w, book: newBook(j)}
	w.OnTxn(k.book.note)
	w.Setup(func(ctx context.Context, s *zkconn.Session) error { return k.create(ctx, s) })
	return k
}

// store is what apply and terminate use.
func (k *jobs) store(s *zkconn.Session) (*zkstate.Store, error) {
	return zkstate.NewStore(s, zkstate.Config{
		Stack: "tests", By: "ann@deploy-1", At: time.Now(), Kinds: []zkstate.Kind{zkstate.Job()},
	})
}

// create applies the job, which is not there.
func (k *jobs) create(ctx context.Context, s *zkconn.Session) error {
	store, err := k.store(s)
	if err != nil {
		return err
	}
	return store.Commit(ctx, plan.Row{Path: k.book.job.Path(), New: k.book.job, Reason: plan.NotThere})
}

// member is a process on its way through one membership.
type member struct {
	*worker.Member
	k    *jobs
	p    *sim.Process
	life *life

	opened int64 // its newest session
}

// join makes the process a member, in as many sessions as that takes.
func (k *jobs) join(p *sim.Process, c worker.Config) (*member, error) {
	c.Root, c.Job = k.book.job.Root, k.book.job.Name
	c.Info = address(c.Identity)
	if k.book.job.IDs == job.ByIndex {
		c.Index = k.index(c.Identity)
	}
	for n := 0; ; n++ {
		m := &member{k: k, p: p, life: &life{name: fmt.Sprintf("%s/%d (%s)", p, n, c.Identity), identity: c.Identity}}
		s, err := m.dial()
		if err != nil {
			return nil, err
		}
		m.Member, err = worker.Join(p.Context(), s, c)
		if errors.Is(err, worker.ErrSpare) {
			m.Member, err = worker.Spare(p.Context(), s, c)
		}
		if err == nil {
			p.Saw(func() { err = k.book.sawJoin(m) })
			return m, err
		}
		lost := s.Context().Err() != nil
		s.Close()
		if !lost {
			return nil, known(err)
		}
	}
}

// index is what an identity brings: a brings 0. Those that are too many bring the last one.
func (k *jobs) index(identity string) *int {
	return new(min(int(identity[0]-'a'), k.book.job.Workers-1))
}

// known makes a mistake of an outcome that somebody who keeps its session is told to be unknown: it can learn it.
func known(err error) error {
	if errors.Is(err, zkconn.ErrUnknown) {
		return fmt.Errorf("its session goes on, and it is told: %v", err)
	}
	return err
}

// worker declares a process that joins as an identity, and does this. It may end as a worker may.
func (k *jobs) worker(name, identity string, lives int, do func(p *sim.Process, m *member) error) {
	k.Process("p-"+name, lives, func(p *sim.Process) error {
		m, err := k.join(p, worker.Config{Identity: identity})
		if err == nil {
			err = do(p, m)
		}
		return endsWell(err)
	})
}

// address is where a worker says that it is: its own port for each identity.
func address(identity string) znode.Worker {
	return znode.Worker{IP: "192.0.2.7", Port: 7000 + int(identity[len(identity)-1])}
}

// dial opens another session of this membership.
func (m *member) dial() (*zkconn.Session, error) {
	s, err := m.p.Dial(sessionTimeout)
	if err == nil {
		m.opened = s.ID()
		m.p.Saw(func() { m.k.book.owners[s.ID()] = m.life })
	}
	return s, err
}

// sawJoin checks the id that a process is told.
func (b *book) sawJoin(m *member) error {
	r := b.run(m.Generation)
	if b.job.Gang.HasSpares() && b.lost[m.opened] { // it may be replaced already
		m.life.id, m.life.member = m.ID, true
		return nil
	}
	if m.ID < 0 || m.ID >= b.job.Workers || r.ids[m.ID] != m.Identity ||
		b.job.IDs == job.ByIndex && !b.job.Gang.HasSpares() && m.ID != *m.k.index(m.Identity) {
		return fmt.Errorf("%s joins as %d, which %q has", m.life.name, m.ID, r.ids[m.ID])
	}
	m.life.id, m.life.member = m.ID, true
	return nil
}

// do calls f, and again after each Rejoin, until f returns with the session that it had. It checks that a process that
// is told that it is fenced, or that it has completed, is so.
func (m *member) do(f func() error) error {
	err := m.retry(f)
	m.p.Saw(func() {
		if wrong := m.k.book.sawEnd(m.life, err); wrong != nil {
			err = wrong
		}
	})
	return err
}

// sawEnd checks how a membership is said to have ended.
func (b *book) sawEnd(who *life, told error) error {
	r, ended := b.run(who.g), b.ended(who.g)
	switch {
	case errors.Is(told, worker.ErrFenced) && !ended && r.holders[who.identity] == who:
		return fmt.Errorf("%s is told that it is fenced, and is not: %v", who.name, told)
	case errors.Is(told, worker.ErrDone) && !r.completed[who.identity]:
		return fmt.Errorf("%s is told that it has completed, and has not: %v", who.name, told)
	}
	return nil
}

func (m *member) retry(f func() error) error {
	for {
		err := f()
		switch {
		case err == nil || m.p.Context().Err() != nil:
			return err
		case !errors.Is(err, zkconn.ErrSessionLost) && m.Context().Err() == nil:
			return known(err)
		}
		if cause := context.Cause(m.Context()); cause != nil && !errors.Is(cause, worker.ErrSessionLost) {
			return errors.Join(cause, err)
		}
		if err := m.rejoin(); err != nil {
			return err
		}
	}
}

// rejoin makes it a member again in another session. Its error is final.
func (m *member) rejoin() error {
	for {
		s, err := m.dial()
		if err != nil {
			return err
		}
		next, err := m.Rejoin(m.p.Context(), s)
		if err == nil {
			m.Member = next
			return nil
		}
		if s.Context().Err() == nil && errors.Is(err, zkconn.ErrUnknown) {
			return known(err)
		}
		s.Close()
		if errors.Is(err, worker.ErrFenced) || errors.Is(err, worker.ErrDone) || m.p.Context().Err() != nil {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-m.p.Context().Done():
			return context.Cause(m.p.Context())
		}
	}
}

// complete ends the membership of a worker whose command ended well, and reports what its process knows of that.
func (m *member) complete() error {
	m.p.Saw(func() { m.life.completing = true })
	err := m.do(func() error { return m.Complete(m.p.Context(), 0) })
	if errors.Is(err, worker.ErrDone) || errors.Is(err, worker.ErrUnfinished) {
		err = nil
	}
	if err == nil {
		m.p.Saw(func() { err = m.k.book.sawEnd(m.life, worker.ErrDone) })
	}
	return err
}

// leave ends the membership without completing.
func (m *member) leave() error {
	err := m.do(func() error { return m.Leave(m.p.Context(), worker.End{Signal: "TERM"}) })
	if err == nil {
		m.p.Saw(func() {
			if b := m.k.book; !m.life.left && !b.ended(m.life.g) && b.run(m.life.g).holders[m.Identity] == m.life {
				err = fmt.Errorf("%s is told that it has left, and has not", m.life.name)
			}
		})
	}
	return err
}
