package jobs_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// gangBook is what is known of the attempts of one generation.
type gangBook struct {
	now      znode.GangAttempt
	running  map[string]commandOf // by identity
	well     map[int]map[int]bool // in an attempt: ids of the workers whose command has ended well
	finished int                  // the attempt that all have finished; 0: none
}

// commandOf is a command that runs. It ends with its session at the latest.
type commandOf struct {
	attempt int
	id      int
	session int64
}

// applyAttempt checks a decision: an attempt that has begun is followed by the next one, or fails.
func (b *book) applyAttempt(s step, op zkmodel.Op, p place) error {
	if op.Type == zkmodel.OpDelete {
		return nil
	}
	r := b.run(p.g)
	next, err := znode.Decode[znode.GangAttempt](op.Data)
	before := r.gang.now
	r.gang.now = next
	switch {
	case err != nil || op.Type == zkmodel.OpCreate:
		return err
	case before.State == znode.GangFailed:
		return errors.New("it decides for a gang that has failed")
	case r.gang.finished > 0:
		return fmt.Errorf("it decides, and attempt %d is finished", r.gang.finished)
	case !r.barriers[znode.StartBarrier].releasedRound(before.Number):
		return fmt.Errorf("it decides, and attempt %d has not begun", before.Number)
	case next.Used > b.job.Gang.Restarts:
		return fmt.Errorf("%d restarts are used, of %d", next.Used, b.job.Gang.Restarts)
	case next.State == znode.GangFailed && (next.Number != before.Number || next.Used != before.Used),
		next.State == znode.GangOpen && (next.Number != before.Number+1 || next.Used > before.Used+1):
		return fmt.Errorf("attempt %+v follows %+v", next, before)
	}
	return nil
}

// starts notes that a worker starts its command. All have met for this, and no other command of the gang is of another
// attempt.
func (b *book) starts(m *ganger) error {
	r := b.run(m.Generation)
	if one := r.barriers[znode.StartBarrier]; one == nil || !one.releasedRound(m.a.Number) {
		return fmt.Errorf("%s starts its command in attempt %d, which has not begun", m.life.name, m.a.Number)
	}
	if b.lost[m.session] { // it is about to be told, and then ends its command
		return nil
	}
	for identity, c := range r.gang.running {
		if !b.taken && (c.attempt != m.a.Number || c.id == m.ID) {
			return fmt.Errorf("%s starts its command in attempt %d, and that of %s in attempt %d runs",
				m.life.name, m.a.Number, identity, c.attempt)
		}
	}
	r.gang.running[m.Identity] = commandOf{m.a.Number, m.ID, m.session}
	return nil
}

// stops notes that the command of a worker has ended.
func (b *book) stops(m *ganger, well bool) {
	gang := &b.run(m.Generation).gang
	delete(gang.running, m.Identity)
	if well {
		if gang.well[m.a.Number] == nil {
			gang.well[m.a.Number] = map[int]bool{}
		}
		gang.well[m.a.Number][m.ID] = true
	}
}

// meets checks that who arrives at a barrier for its command does so in the attempt to which that barrier belongs.
func (b *book) meets(s step, op zkmodel.Op, p place) error {
	r, name := b.run(p.g), p.parts[1]
	if !p.is("barrier", "*", "*", "a", "*") || op.Type != zkmodel.OpCreate || b.taken || b.job.Gang == nil ||
		name == znode.StartBarrier || name == znode.FinishBarrier {
		return nil
	}
	if c, runs := r.gang.running[s.who.identity]; runs && c.attempt != znode.BarrierAttempt(name) {
		return fmt.Errorf("%s meets at barrier %s in attempt %d", s.who.name, name, c.attempt)
	}
	return nil
}

// isOver reports whether a barrier belongs to an attempt that is over, and is only deleted.
func (g *gangBook) isOver(op zkmodel.Op, p place) bool {
	if op.Type != zkmodel.OpDelete || g.now.Number < 2 {
		return false
	}
	if name := p.parts[1]; name != znode.StartBarrier && name != znode.FinishBarrier {
		return !g.now.Meets(name)
	}
	if len(p.parts) < 3 {
		return false
	}
	round, _, err := znode.ParseAttempt(p.parts[2])
	return err == nil && round < g.now.Number
}

// applyFinished notes that all have finished an attempt: all workers have completed then.
func (b *book) applyFinished(p place) error {
	r := b.run(p.g)
	one := r.barriers[znode.FinishBarrier]
	if r.gang.finished > 0 || one == nil || !one.releasedRound(r.gang.now.Number) {
		return nil
	}
	r.gang.finished = r.gang.now.Number
	if len(r.gang.well[r.gang.finished]) != b.job.Workers {
		return fmt.Errorf("attempt %d is finished, and the commands of only %v have ended well",
			r.gang.finished, r.gang.well[r.gang.finished])
	}
	for _, identity := range r.ids {
		r.completed[identity] = true
	}
	return nil
}

// applyReplacement notes that a spare deletes the claim of somebody whose id it takes. Nobody is replaced while live.
func (r *run) applyReplacement(b *book, s step, identity string) error {
	if _, live := b.live[identity]; live {
		return fmt.Errorf("it replaces %s, who is live", identity)
	}
	for id, of := range r.ids {
		if of == identity {
			r.replaced[id] = identity
			delete(r.claims, identity)
			delete(r.holders, identity)
			return nil
		}
	}
	return fmt.Errorf("it deletes the claim of %s, who has no id", identity)
}

// setsClaimOf reports whether the transaction makes a claim of an id.
func (s step) setsClaimOf(id int) bool {
	for i, p := range s.places {
		if p.is("by", s.who.identity) && s.Ops[i].Type == zkmodel.OpCreate {
			claim, err := znode.Decode[znode.Claim](s.Ops[i].Data)
			return err == nil && claim.ID != nil && *claim.ID == id
		}
	}
	return false
}

// errMember means that the attempt was read in a session of before.
var errMember = errors.New("another member")

var (
	errFailed = errors.New("the gang has failed")
	errStop   = errors.New("asked to stop")
)

// ganger is a member that takes part in an attempt.
type ganger struct {
	*member
	of      *worker.Member // that has read a
	session int64          // of it
	a       *worker.Attempt
	said    error // what it was told that is not so
}

// inSession calls f as the member that has read the attempt.
func (g *ganger) inSession(f func() error) error {
	return g.do(func() error {
		if g.Member != g.of {
			return errMember
		}
		return f()
	})
}

// decide ends the attempt.
func (g *ganger) decide(l worker.Loss) error {
	err := g.inSession(func() error { return g.Decide(g.p.Context(), g.a, l) })
	if errors.Is(err, worker.ErrStopRequested) {
		return errStop
	}
	return cmp.Or(err, worker.ErrMoved)
}

// commands is what the commands of a worker do in one life of its process.
type commands struct {
	fail  int  // so many fail at first
	drain bool // the worker is asked to end soon after the first one could start
	meet  bool // they publish values, and meet at a barrier
	waits int  // so often the worker waits for the others, who may never come; 0: until they come
}

// gangOf declares a gang of three, in which two restarts are declared. Who ends by a fault uses one: so the gang may
// fail. It finishes, or fails, in any case, if the job stays.
func gangOf(w *sim.World, n int) *jobs {
	k := newJobs(w, n, func(j *job.Job) {
		j.Lifecycle.OnComplete = job.Retain
		j.IDs = job.ByIndex
		j.Gang = &job.Gang{Restarts: 2, Wait: resource.Duration(20 * time.Second)}
	})
	w.AtEnd(func() error {
		for g, r := range k.book.runs {
			if !r.terminated && !k.book.ended(g) && r.gang.finished == 0 && r.gang.now.State != znode.GangFailed &&
				len(r.ids) == n {
				return fmt.Errorf("attempt %+v goes on", r.gang.now)
			}
		}
		return nil
	})
	return k
}

// ganger declares a process that takes part in the gang until that has finished or failed.
func (k *jobs) ganger(name, identity string, lives int, do func(life int) commands) {
	k.Process("p-"+name, lives, func(p *sim.Process) error {
		todo := do(p.Life())
		for {
			m, err := k.join(p, worker.Config{Identity: identity, Run: "r"})
			if err != nil {
				return endsWell(err)
			}
			err = k.takePart(p, m, &todo)
			again := errors.Is(err, errDrained) && todo.waits <= 0 || errors.Is(err, worker.ErrReplaced)
			if !again {
				return endsWell(sim.Unless(err, errFailed, errStop, errDrained))
			}
		}
	})
}

// errDrained means that a worker has left, and comes back.
var errDrained = errors.New("drained")

// gangWorld has a gang whose workers are started again. The first command of one of them fails.
func gangWorld(w *sim.World) {
	k := gangOf(w, 3)
	for _, identity := range []string{"a", "b", "c"} {
		k.ganger(identity, identity, 3, func(life int) commands {
			if identity == "b" && life == 1 {
				return commands{fail: 1, meet: true}
			}
			return commands{meet: true}
		})
	}
}

// gangDrainWorld has a gang of which two workers are asked to end while they wait for the others, or while their
// commands run. They come back.
func gangDrainWorld(w *sim.World) {
	k := gangOf(w, 3)
	for _, identity := range []string{"a", "b", "c"} {
		k.ganger(identity, identity, 1, func(life int) commands { return commands{drain: identity != "c" && life == 0} })
	}
}

// gangTakenWorld has a gang of one, which are two processes that take their identity from each other. Their commands
// fail again and again.
func gangTakenWorld(w *sim.World) {
	k := gangOf(w, 1)
	k.book.job.Gang.Restarts = 10
	for _, name := range []string{"a1", "a2"} {
		w.Process("p-"+name, 1, func(p *sim.Process) error {
			m, err := k.take(p, name[:1])
			if err == nil {
				err = k.takePart(p, m, &commands{fail: 3, meet: true})
			}
			return endsWell(sim.Unless(err, errFailed))
		})
	}
	k.book.taken = true
	k.hand()
}

// gangEndedWorld has a gang, somebody who terminates its job and applies it again, and somebody who deletes the job
// when all workers are gone.
func gangEndedWorld(w *sim.World) {
	k := gangOf(w, 2)
	for _, identity := range []string{"a", "b"} {
		k.ganger(identity, identity, 2, func(int) commands { return commands{meet: true, waits: 3} })
	}
	k.ann()
	k.Process("bob", 1, sim.InSession(time.Hour, func(p *sim.Process, s *zkconn.Session) error {
		store, err := k.store(s)
		for range 10 {
			if err == nil {
				err = k.deleteStale(p, store)
			}
			k.sleep(p, 5*time.Second)
		}
		return err
	}))
}

// gangSparesWorld has a gang of two, a process more, and a seat for it. Whoever comes late waits there.
func gangSparesWorld(w *sim.World) {
	k := gangOf(w, 2)
	k.book.job.IDs, k.book.job.Gang.Spares = job.ByJoin, 1
	k.book.job.Gang.Restarts = 10
	for _, identity := range []string{"a", "b", "c"} {
		k.ganger(identity, identity, 3, func(int) commands { return commands{meet: true} })
	}
}

// gangTwinsWorld is that world with ids by index and a time before somebody is replaced. One worker is asked to end and
// does not come back, and two processes have the identity that comes late.
func gangTwinsWorld(w *sim.World) {
	k := gangOf(w, 2)
	k.book.job.Gang.Spares, k.book.job.Gang.Replace = 1, resource.Duration(time.Second)
	k.book.job.Gang.Restarts = 10
	for _, name := range []string{"a", "b", "c1", "c2"} {
		k.ganger(name, name[:1], 2, func(int) commands {
			if name == "b" {
				return commands{drain: true, waits: 100, meet: true}
			}
			return commands{meet: true}
		})
	}
}

// gangSparesEndedWorld is gangSparesWorld with somebody who terminates its job and applies it again.
func gangSparesEndedWorld(w *sim.World) {
	k := gangOf(w, 1)
	k.book.job.IDs, k.book.job.Gang.Spares = job.ByJoin, 1
	for _, identity := range []string{"a", "b", "c"} {
		k.ganger(identity, identity, 2, func(int) commands { return commands{waits: 3} })
	}
	k.ann()
}

// deleteStale deletes the job if it is stale, as apply does if it is not declared.
func (k *jobs) deleteStale(p *sim.Process, store *zkstate.Store) error {
	o, err := store.Find(p.Context(), k.book.job.Path())
	if err != nil || o == nil || o.Record == nil {
		return err
	}
	row := plan.Row{Path: k.book.job.Path(), Old: o, Reason: plan.Undeclared}
	if o.Class() != resource.Stale {
		return nil
	}
	return sim.Unless(store.Commit(p.Context(), row), plan.ErrMoved, plan.ErrAlreadyDone, plan.ErrUnknown)
}

// takePart takes part in attempts until all have finished one.
func (k *jobs) takePart(p *sim.Process, m *member, todo *commands) error {
	for {
		g := &ganger{member: m}
		err := m.do(func() (err error) {
			g.of, g.session = m.Member, m.opened
			g.a, err = m.Attempt(p.Context())
			return err
		})
		if err == nil {
			err = k.oneAttempt(p, g, todo)
		}
		switch {
		case err == nil:
			return m.complete()
		case errors.Is(err, worker.ErrMoved), errors.Is(err, errMember):
			continue
		case errors.Is(err, errStop):
			p.Saw(func() { err = k.book.sawRequest(m.life) })
			return errors.Join(err, m.leave())
		case errors.Is(err, errFailed), errors.Is(err, errDrained):
			return errors.Join(err, m.leave())
		}
		return err
	}
}

// oneAttempt takes part in one: nil if all have finished it.
func (k *jobs) oneAttempt(p *sim.Process, g *ganger, todo *commands) error {
	switch {
	case g.a.Failed():
		return errFailed
	case g.a.Finished:
		return nil
	case g.a.Begun && !g.a.Arrived:
		return g.decide(worker.Loss{Because: "back"})
	}
	ctx, end := context.WithCancelCause(p.Context())
	defer end(nil)
	go func() {
		if g.of.StopRequested(ctx) == nil {
			end(errStop)
		}
	}()
	if !g.a.Begun {
		if err := g.start(ctx, todo); err != nil {
			return g.because(ctx, err)
		}
		p.Saw(func() { g.said = k.book.starts(g) })
		if g.said != nil {
			return g.said
		}
	}
	go func() { end(g.of.AwaitLoss(ctx, g.a)) }()
	if !g.a.Arrived {
		err := g.command(ctx, todo)
		p.Saw(func() { k.book.stops(g, err == nil) })
		if err != nil {
			return g.because(ctx, err)
		}
	}
	err := g.inSession(func() error { return g.FinishAttempt(ctx, g.a) })
	if err != nil && !g.a.Finished {
		return g.because(ctx, err)
	}
	p.Saw(func() {
		if r := k.book.run(g.Generation); r.gang.finished != g.a.Number {
			g.said = fmt.Errorf("%s is told that attempt %d is finished, and %d is", g.life.name, g.a.Number, r.gang.finished)
		}
	})
	return g.said
}

// because is what a worker does when its attempt has ended: err is what it was told, or ctx says more.
func (g *ganger) because(ctx context.Context, err error) error {
	if g.said != nil {
		return g.said
	}
	var lost *worker.LostError
	told := context.Cause(ctx)
	switch {
	case g.p.Context().Err() != nil || ctx.Err() == nil:
		return err
	case errors.As(told, &lost):
		return g.decide(worker.Loss{Because: lost.Error(), Lost: lost.IDs})
	case g.of.Context().Err() != nil && !errors.Is(told, errStop):
		return errMember
	}
	return told
}

// start waits for the others, again and again if some are missing. Who is asked to end withdraws.
func (g *ganger) start(ctx context.Context, todo *commands) error {
	waits := ctx
	if todo.drain {
		var cancel context.CancelFunc
		waits, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	for {
		err := g.inSession(func() error { return g.StartAttempt(waits, g.a) })
		var aborted *worker.AbortedError
		switch {
		case errors.As(err, &aborted) && todo.waits == 1:
			return errDrained
		case errors.As(err, &aborted):
			todo.waits--
			continue
		case err == nil || waits.Err() == nil || g.p.Context().Err() != nil:
			return err
		}
		begun := false
		err = g.inSession(func() (err error) {
			begun, err = g.Withdraw(g.p.Context(), g.a)
			return err
		})
		switch {
		case err != nil:
			return err
		case !todo.drain || ctx.Err() != nil:
			return errStop
		case begun:
			return g.drain(todo)
		}
		todo.drain = false
		return errDrained
	}
}

// drain ends the attempt since this worker ends.
func (g *ganger) drain(todo *commands) error {
	todo.drain = false
	if err := g.decide(worker.Loss{Because: "drain", Drained: true}); !errors.Is(err, worker.ErrMoved) {
		return err
	}
	return errDrained
}

// command is the command of a worker.
func (g *ganger) command(ctx context.Context, todo *commands) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Second):
	}
	switch {
	case todo.drain:
		return g.drain(todo)
	case !todo.meet:
		return nil
	}
	err := g.meet(ctx)
	if err == nil && todo.fail > 0 {
		todo.fail--
		err = g.decide(worker.Loss{Because: "exit 3", Exit: new(3)})
	}
	return err
}

// meet publishes a value, gets those of others, and meets them at a barrier.
func (g *ganger) meet(ctx context.Context) error {
	mine, ids := []byte{byte(g.a.Number)}, []int{0, 1}[:min(2, g.Job.Workers)]
	return g.inSession(func() error {
		if err := g.Publish(ctx, "key", mine); err != nil {
			return err
		}
		found, err := g.Values(ctx, "key", ids)
		for _, v := range found {
			if v.Value[0] != mine[0] {
				g.said = fmt.Errorf("%s gets a value of attempt %d in attempt %d", g.life.name, v.Value[0], mine[0])
			}
		}
		if err == nil {
			err = g.Barrier(ctx, worker.Barrier{Name: "x", Timeout: time.Hour})
		}
		return cmp.Or(g.said, err)
	})
}
