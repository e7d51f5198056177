package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// withSpares makes a job a gang with two restarts and so many spares.
func withSpares(spares int, ids job.IDs) func(*job.Job) {
	return func(j *job.Job) {
		ofGang(2)(j)
		j.IDs, j.Gang.Spares = ids, spares
	}
}

// newSparedGang is a gang with spares, of which all workers have joined.
func newSparedGang(t *testing.T, n int, edits ...func(*job.Job)) *gang {
	t.Helper()
	j, _ := newJob(t, n, edits...)
	g := &gang{t: t, job: j, attempts: make([]*worker.Attempt, n)}
	for i := range n {
		g.sessions = append(g.sessions, dial(t))
		g.members = append(g.members, joinIn(t, g.sessions[i], g.config(fmt.Sprint("w-", i))))
	}
	return g
}

// config is that of a process of a gang with spares.
func (g *gang) config(identity string) worker.Config {
	c := config(g.job, identity)
	c.Info.Node.Rack = "of-" + identity
	c.FindIndex = func(identity string) (int, error) {
		return worker.FindIndex(func(string) string { return "" }, identity)
	}
	return c
}

// spare is a process that waits in a seat.
type spare struct {
	session *zkconn.Session
	end     context.CancelFunc
	done    chan struct{}
	m       *worker.Member // once done
	err     error
}

// sitDown starts a spare, and returns when it waits.
func (g *gang) sitDown(identity string) *spare {
	g.t.Helper()
	s := &spare{session: dial(g.t), done: make(chan struct{})}
	c := g.config(identity)
	if _, err := worker.Join(g.t.Context(), s.session, c); !errors.Is(err, worker.ErrSpare) {
		g.t.Fatalf("%s joins: %v", identity, err)
	}
	waits := make(chan string, 100)
	c.Waiting = func(what string) { waits <- what }
	ctx, end := context.WithCancel(g.t.Context())
	s.end = end
	go func() {
		defer close(s.done)
		s.m, s.err = worker.Spare(ctx, s.session, c)
	}()
	g.t.Cleanup(func() { end(); <-s.done })
	select {
	case <-waits:
	case <-s.done:
		g.t.Fatalf("%s: %v", identity, s.err)
	case <-time.After(patience):
		g.t.Fatalf("%s does not wait", identity)
	}
	return s
}

// worker is the worker that the spare becomes.
func (s *spare) worker(t *testing.T) *worker.Member {
	t.Helper()
	s.ended(t)
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.m
}

func (s *spare) ended(t *testing.T) {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(patience):
		t.Fatal("the spare still waits")
	}
}

// kill ends the session of worker i, and lets the others begin another attempt.
func (g *gang) kill(i, finds int) {
	g.t.Helper()
	g.sessions[i].Close()
	if err := g.loss(finds); err == nil {
		g.t.Fatal("nobody is lost")
	}
	if err := g.members[finds].Decide(g.t.Context(), g.attempts[finds], worker.Loss{Lost: []int{i}}); err != nil {
		g.t.Fatal(err)
	}
}

func TestSpareReplaces(t *testing.T) {
	t.Parallel()
	for _, ids := range []job.IDs{job.ByJoin, job.ByIndex} {
		t.Run(string(ids), func(t *testing.T) {
			t.Parallel()
			g := newSparedGang(t, 2, withSpares(1, ids))
			s := g.sitDown("w-2")
			g.start(1)
			old := g.members[1]
			if err := old.Publish(t.Context(), "key", []byte("old")); err != nil {
				t.Fatal(err)
			}
			g.kill(1, 0)
			g.members[1] = s.worker(t)
			if m := g.members[1]; m.ID != 1 || m.Identity != "w-2" {
				t.Fatalf("it is worker %d (%s)", m.ID, m.Identity)
			}
			if w, err := g.members[0].Lookup(t.Context(), 1); err != nil || w.Node.Rack != "of-w-2" {
				t.Errorf("worker 1 is in rack %q, %v", w.Node.Rack, err)
			}
			g.start(2)
			if missing, err := g.members[0].Unpublished(t.Context(), "key", nil); err != nil || len(missing) != 2 {
				t.Errorf("%v have published nothing, %v", missing, err)
			}
			if _, err := old.Rejoin(t.Context(), dial(t)); !errors.Is(err, worker.ErrReplaced) {
				t.Errorf("the owner of before: %v", err)
			}

			// The owner of before is a spare now, and takes another id. The spare comes back under its own.
			back := g.sitDown("w-1")
			if _, err := worker.Spare(t.Context(), dial(t), g.config("w-3")); !errors.Is(err, worker.ErrFull) {
				t.Errorf("one more: %v", err)
			}
			g.sessions[1] = s.session
			g.sessions[0].Close()
			if err := g.loss(1); err == nil {
				t.Fatal("nobody is lost")
			}
			s.session.Close()
			g.members[1] = joinIn(t, dial(t), g.config("w-2"))
			if g.members[1].ID != 1 {
				t.Errorf("it comes back as %d", g.members[1].ID)
			}
			if err := g.members[1].Decide(t.Context(), g.read(1), worker.Loss{Lost: []int{0}}); err != nil {
				t.Fatal(err)
			}
			if g.members[0] = back.worker(t); g.members[0].ID != 0 {
				t.Errorf("it is worker %d", g.members[0].ID)
			}
			g.start(3)
			late := g.sitDown("w-0")
			g.finish()
			if late.ended(t); !errors.Is(late.err, worker.ErrDone) {
				t.Errorf("a spare of a gang that has finished: %v", late.err)
			}
		})
	}
}

// TestReplacedTwin: a process that was replaced finds that out also when another one of its identity has taken another
// id meanwhile, whose claim begins at the same version.
func TestReplacedTwin(t *testing.T) {
	t.Parallel()
	g := newSparedGang(t, 2, withSpares(1, job.ByJoin))
	s := g.sitDown("w-2")
	g.start(1)
	old := g.members[1]
	g.kill(1, 0)
	g.members[1] = s.worker(t)
	twin := g.sitDown("w-1")
	g.sessions[0].Close()
	if m := twin.worker(t); m.ID != 0 {
		t.Fatalf("it is worker %d", m.ID)
	}
	if _, err := old.Rejoin(t.Context(), dial(t)); !errors.Is(err, worker.ErrReplaced) {
		t.Errorf("the owner of before: %v", err)
	}
	if err := s.m.Leave(t.Context(), worker.End{}); err != nil { // who has the id of before is untouched
		t.Error(err)
	}
}

// TestSpareOutlivesDamage: somebody deletes parts of the job by hand, and puts them back.
func TestSpareOutlivesDamage(t *testing.T) {
	t.Parallel()
	g := newSparedGang(t, 1, withSpares(1, job.ByJoin))
	s := g.sitDown("s")
	by := dial(t)
	for _, at := range []string{
		znode.Record(job.KindName, g.job.Root, g.job.Name), znode.GangAttemptAt(g.job.Root, g.members[0].Generation),
	} {
		body, _, err := by.Get(t.Context(), at)
		if err == nil {
			err = by.Delete(t.Context(), at, -1)
		}
		if err != nil {
			t.Fatal(err)
		}
		zkconn.Pause(t.Context(), 100*time.Millisecond) // it may look at it meanwhile
		if _, err := by.Create(t.Context(), at, body, zkconn.Persistent, zkconn.World(zkconn.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	g.sessions[0].Close()
	if m := s.worker(t); m.ID != 0 {
		t.Errorf("it is worker %d", m.ID)
	}
}

// TestSparesReplaceMany: all are lost at once, so nobody but a spare can decide.
func TestSparesReplaceMany(t *testing.T) {
	t.Parallel()
	g := newSparedGang(t, 3, withSpares(3, job.ByJoin))
	var spares []*spare
	for i := range 3 {
		spares = append(spares, g.sitDown(fmt.Sprint("s-", i)))
	}
	g.start(1)
	for _, s := range g.sessions {
		s.Close()
	}
	for _, s := range spares {
		m := s.worker(t)
		g.members[m.ID] = m
		if err := m.Decide(t.Context(), g.read(m.ID), worker.Loss{Because: "nobody was there"}); err != nil {
			t.Fatal(err)
		}
	}
	g.start(2)
	if a := g.attempts[0]; a.Used != 1 {
		t.Errorf("%d restarts are used", a.Used)
	}
	g.finish()
}

func TestSpareLetsOwnersComeBack(t *testing.T) {
	t.Parallel()
	g := newSparedGang(t, 2, withSpares(1, job.ByIndex), func(j *job.Job) {
		j.Gang.Wait, j.Gang.Replace = resource.Duration(2*time.Hour), resource.Duration(time.Hour)
	})
	s := g.sitDown("w-2")
	g.start(1)
	g.kill(1, 0)
	g.members[1] = joinIn(t, dial(t), g.config("w-1"))
	g.start(2)

	// An update of replace counts at once.
	g.sessions[0].Close()
	if err := g.loss(1); err == nil {
		t.Fatal("nobody is lost")
	}
	if err := g.members[1].Decide(t.Context(), g.attempts[1], worker.Loss{Lost: []int{0}}); err != nil {
		t.Fatal(err)
	}
	j := g.job
	gang := *j.Gang
	gang.Replace = resource.Duration(time.Millisecond)
	j.Gang = &gang
	rig.Update(t, newStore(t, j), j)
	g.members[0] = s.worker(t)
	g.start(3)
	g.finish()
}

// TestSpareOrOwner: of a spare and the owner that comes back one has the id, whoever is first.
func TestSpareOrOwner(t *testing.T) {
	t.Parallel()
	g := newSparedGang(t, 1, withSpares(1, job.ByJoin), func(j *job.Job) { j.Gang.Restarts = 100 })
	holder, other, session := g.members[0], "s", g.sessions[0]
	for range 10 {
		s := g.sitDown(other)
		session.Close()
		next := dial(t)
		m, err := worker.Join(t.Context(), next, g.config(holder.Identity))
		switch {
		case err == nil: // the spare still waits
			s.end()
			<-s.done
			if s.err == nil {
				t.Fatalf("%s and %s have the id", holder.Identity, other)
			}
			s.session.Close()
			holder, session = m, next
		case errors.Is(err, worker.ErrSpare):
			m := s.worker(t)
			holder, other, session = m, holder.Identity, s.session
			next.Close()
		default:
			t.Fatal(err)
		}
		rig.Await(t, "the seat is free", func() bool {
			taken, _, _, err := zkconn.IfThere(session.Children(t.Context(), znode.Spares(g.job.Root, holder.Generation)))
			return err == nil && len(taken) == 0
		})
	}
}

func TestSpareEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(t *testing.T, g *gang, store *zkstate.Store, s *spare)
		want error
	}{
		"failed": {func(t *testing.T, g *gang, _ *zkstate.Store, _ *spare) {
			if err := g.members[0].Decide(t.Context(), g.attempts[0], worker.Loss{Exit: new(2)}); err != nil {
				t.Fatal(err)
			}
		}, worker.ErrGangFailed},
		"finished, kept":    {func(_ *testing.T, g *gang, _ *zkstate.Store, _ *spare) { g.finish() }, worker.ErrDone},
		"finished, removed": {func(_ *testing.T, g *gang, _ *zkstate.Store, _ *spare) { g.finish() }, worker.ErrDone},
		"terminated": {func(t *testing.T, g *gang, store *zkstate.Store, s *spare) {
			terminated := make(chan error)
			go func() { terminated <- store.Terminate(t.Context(), g.job.Path(), patience, nil) }()
			s.ended(t) // before the workers: else it may find that the job is gone
			g.each(func(i int) error {
				if err := g.members[i].StopRequested(t.Context()); err != nil {
					return err
				}
				return g.members[i].Leave(t.Context(), worker.End{})
			})
			if err := <-terminated; err != nil {
				t.Fatal(err)
			}
		}, worker.ErrStopRequested},
		"deleted": {func(t *testing.T, g *gang, store *zkstate.Store, _ *spare) {
			for _, s := range g.sessions {
				s.Close()
			}
			rig.Await(t, "the job is deleted", func() bool {
				row := plan.Row{Path: g.job.Path(), Old: rig.Look(t, store, g.job.Path()), Reason: plan.Undeclared}
				return store.Commit(t.Context(), row) == nil
			})
		}, worker.ErrFenced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newSparedGang(t, 2, withSpares(1, job.ByJoin), func(j *job.Job) {
				j.Gang.Wait, j.Gang.Replace = resource.Duration(2*time.Hour), resource.Duration(time.Hour)
				switch name {
				case "finished, kept":
					j.Lifecycle.OnComplete = job.Retain
				case "finished, removed":
					j.Lifecycle.OnComplete = job.Remove
				}
			})
			s := g.sitDown("s")
			g.start(1)
			c.do(t, g, newStore(t, g.job), s)
			if s.ended(t); !errors.Is(s.err, c.want) {
				t.Errorf("%v", s.err)
			}
		})
	}
}

// TestSpareComesFirst: processes whose index is beyond the last may come before the workers.
func TestSpareComesFirst(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2, withSpares(1, job.ByIndex))
	g := &gang{t: t, job: j, attempts: make([]*worker.Attempt, 2)}
	s := g.sitDown("w-2")
	for i := range 2 {
		g.sessions = append(g.sessions, dial(t))
		g.members = append(g.members, joinIn(t, g.sessions[i], g.config(fmt.Sprint("w-", i))))
	}
	rig.Await(t, "the spare has a seat", func() bool {
		taken, _, err := g.sessions[0].Children(t.Context(), znode.Spares(j.Root, g.members[0].Generation))
		return err == nil && len(taken) == 1
	})
	g.sessions[1].Close() // before anything has started
	g.members[1] = s.worker(t)
	g.start(1)
	g.finish()
}

// TestSeats: one process an identity, and a seat that somebody deleted is taken again.
func TestSeats(t *testing.T) {
	t.Parallel()
	g := newSparedGang(t, 1, withSpares(2, job.ByJoin))
	s := g.sitDown("s")
	c := g.config("s")
	c.FailHeld = true
	if _, err := worker.Spare(t.Context(), dial(t), c); !errors.Is(err, worker.ErrHeld) {
		t.Errorf("another process of the same identity: %v", err)
	}
	dir, first := znode.Spares(g.job.Root, g.members[0].Generation), znode.Spare(g.job.Root, g.members[0].Generation, 0)
	second := znode.Spare(g.job.Root, g.members[0].Generation, 1)
	byHand := func(at string) zkconn.Op {
		return zkconn.CreateOp(at, []byte("x"), zkconn.Persistent, zkconn.World(zkconn.PermAll))
	}
	if _, err := dial(t).Multi(t.Context(), zkconn.DeleteOp(first, -1), byHand(second), byHand(dir+"/x")); err != nil {
		t.Fatal(err)
	}
	g.sessions[0].Close()
	if m := s.worker(t); m.ID != 0 {
		t.Errorf("it is worker %d", m.ID)
	}
}
