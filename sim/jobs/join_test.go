package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/dev/zkmodel"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// endsWell is nil for an error of Join, or of a membership, with which a process may end.
func endsWell(err error) error {
	return sim.Unless(err, worker.ErrFull, worker.ErrNoPlace, worker.ErrDone, worker.ErrHeld, worker.ErrNotOpen,
		worker.ErrCompleted, worker.ErrFenced, worker.ErrNoJob, worker.ErrDamaged, worker.ErrGangFailed,
		worker.ErrStopRequested)
}

// joinWorld has a place less than identities, and two processes of one identity: who joins, who withdraws, and who
// takes over is up to the schedule. A first life leaves, later ones complete.
func joinWorld(w *sim.World) { newJobs(w, 2).joins() }

// joinHandWorld is that world with somebody who deletes parts of the job.
func joinHandWorld(w *sim.World) {
	k := newJobs(w, 2)
	k.joins()
	k.hand()
}

// joinIndexWorld is that world of a job that takes ids from its workers: two identities bring the same.
func joinIndexWorld(w *sim.World) {
	k := newJobs(w, 2, byIndex)
	k.joins()
	k.hand()
}

func byIndex(j *job.Job) { j.IDs = job.ByIndex }

func (k *jobs) joins() {
	for _, c := range []struct {
		name, identity string
		failHeld       bool
	}{{"a1", "a", false}, {"a2", "a", true}, {"b", "b", false}, {"c", "c", false}} {
		k.Process("p-"+c.name, 1, func(p *sim.Process) error {
			failHeld := c.failHeld && p.Life() == 0 // a life before may still hold what nobody else would take back
			m, err := k.join(p, worker.Config{Identity: c.identity, FailHeld: failHeld})
			if err != nil {
				return endsWell(err)
			}
			if p.Life() == 0 {
				return endsWell(m.leave())
			}
			return endsWell(m.complete())
		})
	}
	k.AtEnd(k.book.noneTooMany)
}

// lateWorld has one place for three identities, which join at the same time. Those that come too late withdraw, also
// if they have died before.
func lateWorld(w *sim.World) {
	k := newJobs(w, 1)
	for _, identity := range []string{"a", "b", "c"} {
		k.worker(identity, identity, 2, func(p *sim.Process, m *member) error {
			k.sleep(p, time.Minute)
			return m.leave()
		})
	}
	k.hand()
	w.AtEnd(k.book.noneTooMany)
}

// twinsWorld has processes that are the same worker by turns, take another session, and leave soon or complete. So one
// that has lost its session finds that another was there meanwhile, and has left again.
func twinsWorld(w *sim.World) {
	k := newJobs(w, 2)
	for _, name := range []string{"a1", "a2", "a3"} {
		w.Process("p-"+name, 1, func(p *sim.Process) error {
			for _, end := range []func(*member) error{(*member).leave, (*member).complete} {
				m, err := k.join(p, worker.Config{Identity: "a"})
				if err == nil {
					err = m.rejoin()
				}
				if err == nil {
					err = end(m)
				}
				if err = endsWell(err); err != nil {
					return err
				}
			}
			return nil
		})
	}
	k.worker("b", "b", 0, func(p *sim.Process, m *member) error { // the job is not stale while b is live
		k.sleep(p, time.Minute)
		return m.complete()
	})
	k.hand()
}

// noneTooMany checks that everybody who came too late has withdrawn.
func (b *book) noneTooMany() error {
	if b.record == nil {
		return nil
	}
	for id, identity := range b.run(b.record.Generation).ids {
		if id >= b.job.Workers {
			return fmt.Errorf("%s still has id %d of %d", identity, id, b.job.Workers)
		}
	}
	return nil
}

// runWorld has two runs of the same two workers. A generation belongs to the run whose worker is the first. All
// complete, and what is left is a job that is ready.
func runWorld(w *sim.World) {
	k := newJobs(w, 2, func(j *job.Job) { j.Timeouts.Join = resource.Duration(20 * time.Minute) })
	completed := map[string]int{}
	for _, run := range []string{"r1", "r2"} {
		for _, identity := range []string{"a", "b"} {
			w.Process("p-"+identity+"-"+run, 2, func(p *sim.Process) error {
				err := k.completeRun(p, worker.Config{Identity: identity, Run: run})
				if err == nil {
					p.Saw(func() { completed[run]++ })
				}
				return err
			})
		}
	}
	w.AtEnd(func() error {
		if completed["r1"] != 2 || completed["r2"] != 2 {
			return fmt.Errorf("not all have completed: %v", completed)
		}
		return k.book.isReady(2)
	})
}

// completeRun is a worker that a platform starts again until it has completed. One that completed and got no answer is
// told that it is fenced if it comes back after another run: only the last run is remembered.
func (k *jobs) completeRun(p *sim.Process, c worker.Config) error {
	m, err := k.join(p, c)
	if err == nil {
		err = m.complete()
	}
	late := false
	if errors.Is(err, worker.ErrFenced) {
		p.Saw(func() {
			last := job.LastRun(k.book.record)
			late = k.book.run(m.life.g).completed[m.Identity] && last != nil && last.Generation != m.life.g
		})
	}
	if errors.Is(err, worker.ErrCompleted) || errors.Is(err, worker.ErrDone) || late {
		return nil
	}
	return err
}

// isReady checks that so many runs have completed, and that the job is ready for the next: the last worker has reset
// it, or had to leave that to whoever comes next.
func (b *book) isReady(runs int) error {
	complete := map[string]bool{}
	for _, r := range b.runs {
		complete[r.name] = complete[r.name] || len(r.completed) == b.job.Workers
	}
	completed := 0
	for name, all := range complete {
		if all {
			completed++
		} else if name != "" {
			return fmt.Errorf("not all of run %s have completed", name)
		}
	}
	if completed != runs || b.record == nil {
		return fmt.Errorf("%d runs have completed, %d were expected", completed, runs)
	}
	r := b.run(b.record.Generation)
	if len(r.completed) > 0 { // not reset yet, or one came back after another run: only the last is remembered
		runs--
	} else if len(r.ids) > 0 {
		return fmt.Errorf("%d have joined the job that was reset", len(r.ids))
	}
	last := job.LastRun(b.record)
	switch {
	case !r.open || len(b.live) > 0 || b.record.State != resource.StateOpen:
		return fmt.Errorf("the job is not ready: gate %t, %d live", r.open, len(b.live))
	case runs > 0 && (last == nil || len(b.run(last.Generation).completed) != b.job.Workers):
		return fmt.Errorf("the last run is %v", last)
	}
	return nil
}

// noRollWorld has a job whose roll is too large to be written, of which all workers have joined and are gone. Those
// that come back say so in the record, and take their identity from each other, while somebody asks the workers to stop
// there.
func noRollWorld(w *sim.World) {
	const large, size = 66, 15_000 // those that come back are small
	k := newJobs(w, large)
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		root, g, acl := k.book.job.Root, k.book.record.Generation, zkconn.World(zkconn.PermAll)
		for _, dir := range []string{znode.IDs(root, g), znode.By(root, g), znode.End(root, g), znode.Barriers(root, g)} {
			if _, err := s.Create(ctx, dir, nil, zkconn.Persistent, acl); err != nil {
				return err
			}
		}
		body, err := znode.EncodeWorker(largeWorker(size))
		for id := 0; id < large && err == nil; id++ {
			identity := fmt.Sprint("x", id)
			if id == 0 {
				identity = "a"
			}
			claim := []byte(`{"nonce":"n","lives":1,"state":"left"}`)
			_, err = s.Multi(ctx, zkconn.CreateOp(znode.NewID(root, g), body, zkconn.PersistentSequential, acl),
				zkconn.CreateOp(znode.ByIdentity(root, g, identity), claim, zkconn.Persistent, acl))
			k.book.run(g).ids[id] = identity
		}
		return err
	})
	for _, name := range []string{"a1", "a2"} {
		w.Process("p-"+name, 0, func(p *sim.Process) error {
			m, err := k.take(p, "a")
			if err != nil {
				return endsWell(err)
			}
			return endsWell(m.leave())
		})
	}
	k.ann()
}

// largeWorker is a worker of about so many bytes.
func largeWorker(size int) znode.Worker {
	w := znode.Worker{ID: znode.NoID, IP: "192.0.2.8", Ports: map[string]int{}}
	for i := range size / 210 {
		w.Ports[fmt.Sprintf("%0200d", i)] = 1 + i
	}
	w.Node.Rack = strings.Repeat("r", 100)
	return w
}

// applyRequest checks that a worker takes no request to stop back, and makes none.
func (b *book) applyRequest(s step, old, now *resource.Record) error {
	if s.who != nil && !s.endsRun() && old != nil && old.State != now.State {
		return fmt.Errorf("it changes the record from %s to %s", old.State, now.State)
	}
	if old != nil && old.Generation == now.Generation && job.NoRoll(old) != "" && job.NoRoll(now) == "" {
		return errors.New("it forgets that there is no roll")
	}
	return nil
}

// applyRoll checks that the roll is written once, when all have joined, and has one row for each id.
func (b *book) applyRoll(op zkmodel.Op) error {
	switch {
	case op.Type != zkmodel.OpSetData:
		b.roll = nil
		return nil
	case b.roll != nil && b.job.Gang == nil:
		return fmt.Errorf("the roll is written again")
	}
	rows, odd := znode.DecodeRoll(op.Data)
	if len(odd) > 0 || len(rows) != b.job.Workers {
		return fmt.Errorf("the roll has %d rows, and %v", len(rows), odd)
	}
	b.roll = rows
	return nil
}

// rollWorld has two workers, each of them twice, who wait for each other and read the roll, whoever writes it.
func rollWorld(ids job.IDs) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, 2, func(j *job.Job) { j.IDs = ids })
		for _, name := range []string{"a1", "a2", "b1", "b2"} {
			k.worker(name, name[:1], 1, k.readsRoll)
		}
		k.hand()
	}
}

func (k *jobs) readsRoll(p *sim.Process, m *member) error {
	var roll []worker.Worker
	err := m.do(func() (err error) {
		roll, err = m.Roll(p.Context())
		return err
	})
	if err == nil {
		p.Saw(func() { err = k.book.sawRoll(m.life, roll) })
	}
	var absent *worker.AbsentError
	if errors.As(err, &absent) { // the others have ended
		return m.leave()
	}
	if err != nil {
		return err
	}
	return m.complete()
}

// sawRoll checks that a worker reads the roll that was written, if it was, and that everybody is in it.
func (b *book) sawRoll(who *life, roll []worker.Worker) error {
	if len(roll) != b.job.Workers {
		return fmt.Errorf("%s reads a roll of %d workers", who.name, len(roll))
	}
	for id, w := range roll {
		if identity := b.run(who.g).ids[id]; w.ID != id || identity == "" || w.Port != address(identity).Port {
			return fmt.Errorf("%s reads of worker %d that it is %d on port %d, and it is %q",
				who.name, id, w.ID, w.Port, identity)
		}
	}
	return nil
}

// takenWorld has two processes of one worker, a1 and a2, that take it from each other: each deletes the live znode by
// hand, joins, and passes rounds. So one is fenced while it has a session, whatever request it has on its way. n is how
// many workers the job has. The second, if there is one, comes to the barrier only if meets.
func takenWorld(n int, meets, live, retry bool) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, n)
		names, rounds := []string{"a1", "a2"}, barrierRounds
		switch {
		case n == 1: // takes no time
			rounds += 2
		case meets:
			names = append(names, "b")
		default: // waits, and is told of an abort
			rounds = 2
		}
		for _, name := range names {
			w.Process("p-"+name, 1, func(p *sim.Process) error {
				for range 2 {
					m, err := k.take(p, name[:1])
					for round := 0; round < rounds && err == nil; round++ {
						err = m.pass("x", &round, live, retry)
					}
					if err == nil {
						err = m.leave()
					}
					if err = endsWell(err); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

// take joins as an identity, whoever has it.
func (k *jobs) take(p *sim.Process, identity string) (*member, error) {
	for {
		err := sim.InSession(time.Hour, func(p *sim.Process, s *zkconn.Session) error {
			return sim.Unless(s.Delete(p.Context(), k.live(identity), -1), zkconn.ErrNoNode)
		})(p)
		if err != nil {
			return nil, err
		}
		m, err := k.join(p, worker.Config{Identity: identity, FailHeld: true})
		if !errors.Is(err, worker.ErrHeld) {
			return m, err
		}
		k.sleep(p, time.Second)
	}
}

// updateWorld has a worker that completes, which is the end of the run, and two people who update the job meanwhile.
// Each counts its update in a timeout. They also want the job to be retained, unless it is reset.
func updateWorld(atEnd job.OnComplete) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, 1, func(j *job.Job) { j.Lifecycle.OnComplete = atEnd })
		k.worker("a", "a", 1, func(_ *sim.Process, m *member) error { return m.complete() })
		for _, name := range []string{"ann", "bob"} {
			w.Process(name, 0, sim.InSession(time.Hour, func(p *sim.Process, s *zkconn.Session) error {
				for range 2 {
					if err := k.update(p, s); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
}

// update counts one more update. It does nothing if something else happens to the job at the same time.
func (k *jobs) update(p *sim.Process, s *zkconn.Session) error {
	store, err := k.store(s)
	if err != nil {
		return err
	}
	old, err := store.Find(p.Context(), k.book.job.Path())
	if err != nil || old == nil || old.Record == nil {
		return err
	}
	j := job.Of(old.Record)
	if j.Timeouts.Join += resource.Duration(time.Second); j.Lifecycle.OnComplete == job.Remove {
		j.Lifecycle.OnComplete = job.Retain
	}
	err = store.Commit(p.Context(), plan.Row{Path: j.Path(), Old: old, New: j, Reason: plan.MutableDiffers})
	return sim.Unless(err, plan.ErrMoved, plan.ErrAlreadyDone, plan.ErrUnknown)
}

// applyUpdate checks that no update is lost, and that the last worker does what the job says.
func (b *book) applyUpdate(s step, old, now *resource.Record) error {
	if old == nil {
		return nil
	}
	if now == nil {
		if what := job.Of(old).Lifecycle.OnComplete; s.who != nil && what != job.Remove {
			return fmt.Errorf("it deletes the job, which says %s", what)
		}
		return nil
	}
	updates := time.Duration(job.Of(now).Timeouts.Join - job.Of(old).Timeouts.Join)
	if s.who != nil && updates != 0 || updates < 0 || updates > time.Second {
		return fmt.Errorf("an update is lost: the join timeout changes by %s", updates)
	}
	return nil
}

// backWorld has a worker that arrives at a late round, leaves, comes back, and begins with an early one. Its first
// arrival counts: so the other worker can release the late round, and raise the floor, at any moment of the second.
// The other one passes the early round too, unless that is round 0.
func backWorld(retry bool, early int) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, 2)
		k.worker("a", "a", 1, func(p *sim.Process, m *member) error {
			err := m.do(func() error { return m.arrive("x", late, retry) })
			if err == nil {
				err = m.leave()
			}
			if err == nil {
				m, err = k.join(p, worker.Config{Identity: "a"})
			}
			for _, round := range []int{early, late} {
				if err == nil {
					err = m.pass("x", &round, false, retry)
				}
			}
			return err
		})
		k.worker("b", "b", 1, func(p *sim.Process, m *member) (err error) {
			if early > 0 {
				err = m.pass("x", &early, false, retry)
			}
			if err == nil {
				late := late
				err = m.pass("x", &late, false, retry)
			}
			return err
		})
	}
}

// late is a round that raises the floor beyond the early ones.
const late = 5

// arrive waits at a durable round for a moment.
func (m *member) arrive(name string, round int, retry bool) error {
	ctx, cancel := context.WithTimeout(m.p.Context(), time.Second)
	defer cancel()
	err := m.Barrier(ctx, worker.Barrier{Name: name, Round: &round, Retry: retry, Timeout: barrierTimeout})
	if errors.Is(err, context.DeadlineExceeded) && m.Context().Err() == nil || errors.As(err, new(*worker.AbortedError)) {
		return nil
	}
	return err
}

// terminateWorld has two workers, and somebody who terminates their job and applies it again. A worker that is asked to
// stop leaves; one that is not completes after a while. Whoever is fenced ends.
func terminateWorld(w *sim.World) {
	k := newJobs(w, 2)
	for _, identity := range []string{"a", "b"} {
		w.Process("p-"+identity, 1, func(p *sim.Process) error { return endsWell(k.untilStopped(p, identity)) })
	}
	k.ann()
	w.AtEnd(func() error {
		if k.book.record != nil && k.book.record.State != resource.StateOpen {
			return fmt.Errorf("the request to stop stands")
		}
		return nil
	})
}

// ann terminates the job, and applies it again.
func (k *jobs) ann() {
	k.Process("ann", 1, sim.InSession(sessionTimeout, func(p *sim.Process, s *zkconn.Session) error {
		store, err := k.store(s)
		if err == nil {
			err = store.Terminate(p.Context(), k.book.job.Path(), time.Minute, nil)
		}
		if err != nil && !errors.Is(err, plan.ErrAlreadyDone) {
			return sim.Unless(err, plan.ErrMoved, zkstate.ErrStillLive, zkstate.ErrNotTerminable)
		}
		return sim.Unless(k.create(p.Context(), s), plan.ErrAlreadyDone, plan.ErrMoved)
	}))
}

// untilStopped is a worker whose command takes half a minute, or until it is asked to stop.
func (k *jobs) untilStopped(p *sim.Process, identity string) error {
	m, err := k.join(p, worker.Config{Identity: identity})
	if err != nil {
		return err
	}
	ended := time.Now().Add(30 * time.Second)
	err = m.do(func() error {
		ctx, cancel := context.WithDeadline(p.Context(), ended)
		defer cancel()
		return m.StopRequested(ctx)
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return m.complete()
	case err != nil:
		return err
	}
	p.Saw(func() { err = k.book.sawRequest(m.life) })
	if err != nil {
		return err
	}
	return m.leave()
}

// sawRequest checks that somebody has asked the workers of this generation to stop.
func (b *book) sawRequest(who *life) error {
	if !b.run(who.g).terminated {
		return fmt.Errorf("%s stops, and nobody has asked it to", who.name)
	}
	return nil
}

// handWorld is a barrier world, in which somebody deletes parts of the job. So a worker can lose its identity to
// another process, or its generation, while it has a session.
func handWorld(live bool) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, 2)
		for _, name := range []string{"a1", "a2", "b"} {
			k.worker(name, name[:1], 1, func(_ *sim.Process, m *member) error {
				err := m.passAll(barrierRounds, live, true)
				if err == nil {
					err = m.complete()
				}
				return err
			})
		}
		k.hand()
	}
}

// endedWorld has workers that do all sorts of things, somebody who deletes their live znodes by hand, and somebody who
// then terminates the job and applies it again. So a generation ends under a worker that has a session.
func endedWorld(w *sim.World) {
	k := newJobs(w, 2)
	for _, name := range []string{"a", "b"} {
		k.worker(name, name, 1, func(p *sim.Process, m *member) (err error) {
			for round := 0; round < 2 && err == nil; round++ {
				for _, do := range []func() error{
					func() error { return m.publish("key", p.String()) },
					func() error { return m.Advertise(p.Context(), "192.0.2.7", address(name).Port+1000) },
					func() error { return m.pass(fmt.Sprint("x", round), new(int), round == 0, false) },
				} {
					if err == nil {
						err = m.do(do)
					}
				}
			}
			if err == nil {
				err = m.complete()
			}
			return err
		})
	}
	k.hand()
	k.ann()
}

// toldWorld has processes of one worker that only wait. One that is fenced is told so.
func toldWorld(w *sim.World) {
	k := newJobs(w, 2)
	for _, name := range []string{"a1", "a2", "b"} {
		k.worker(name, name[:1], 1, func(p *sim.Process, m *member) error {
			return m.do(func() error { return k.await(p, m) })
		})
	}
	k.hand()
}

// await returns why the membership ends, or nil after a while if it is still one.
func (k *jobs) await(p *sim.Process, m *member) error {
	select {
	case <-m.Context().Done():
		return context.Cause(m.Context())
	case <-p.Context().Done():
		return context.Cause(p.Context())
	case <-time.After(2 * time.Minute):
	}
	var err error
	p.Saw(func() {
		if r := k.book.run(m.Generation); r.open && r.holders[m.Identity] != m.life {
			err = fmt.Errorf("%s is fenced, and nobody tells it", m.life.name)
		}
	})
	return err
}

// hand deletes live znodes and the gate by hand, again and again, and puts the gate back: while it is gone nobody can
// end the generation, or write anything. Apply puts it back if hand does not.
func (k *jobs) hand() {
	k.Process("hand", 0, sim.InSession(time.Hour, func(p *sim.Process, s *zkconn.Session) error {
		for range 5 {
			gate, _ := k.gate(p)
			if gate == "" {
				return nil
			}
			for _, path := range []string{k.live("a"), k.live("b"), gate} {
				if err := sim.Unless(s.Delete(p.Context(), path, -1), zkconn.ErrNoNode); err != nil {
					return err
				}
			}
			for range 3 { // the others may do something meanwhile
				if err := s.Sync(p.Context(), gate); err != nil {
					return err
				}
			}
			if err := k.repair(p, s); err != nil {
				return err
			}
		}
		return nil
	}))
	k.Service("apply", 0, sim.InSession(time.Hour, func(p *sim.Process, s *zkconn.Session) error {
		for p.Context().Err() == nil {
			if err := k.repair(p, s); err != nil {
				return err
			}
			k.sleep(p, 4*time.Second)
		}
		return nil
	}))
}

func (k *jobs) sleep(p *sim.Process, d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.Context().Done():
	}
}

// repair puts the gate back if it is gone, while the Record names its generation.
func (k *jobs) repair(p *sim.Process, s *zkconn.Session) error {
	if gate, open := k.gate(p); open || gate == "" {
		return nil
	}
	path := znode.Record(job.KindName, k.book.job.Root, k.book.job.Name)
	body, stat, err := s.Get(p.Context(), path)
	if err == nil {
		var rec resource.Record
		if rec, err = znode.DecodeRecordAt(job.Kind(), k.book.job.Path(), body); err != nil {
			return err
		}
		_, err = s.Multi(p.Context(), zkconn.CheckOp(path, stat.Version), zkconn.CreateOp(
			znode.Gate(k.book.job.Root, rec.Generation), nil, zkconn.Persistent, zkconn.World(zkconn.PermAll)))
	}
	return sim.Unless(err, zkconn.ErrNodeExists, zkconn.ErrNoNode, zkconn.ErrBadVersion)
}

// gate is that of the current generation, and whether it exists; "" without a record.
func (k *jobs) gate(p *sim.Process) (path string, open bool) {
	p.Saw(func() {
		if b := k.book; b.record != nil {
			path, open = znode.Gate(b.job.Root, b.record.Generation), b.run(b.record.Generation).open
		}
	})
	return path, open
}

func (k *jobs) live(identity string) string {
	return znode.Live(k.book.job.Root, k.book.job.Name, identity)
}
