package stacks_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/dev/zkmodel"
	"muster/exitcode"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Durations of all worlds, in virtual time.
const (
	session  = 10 * time.Second // timeout of a session
	grace    = 20 * time.Second // of a stale job
	hours    = 5 * time.Second  // for which a worker works
	patience = 3 * time.Minute  // of who joins
)

// anyone is the ACL of what tests create.
func anyone() []zkconn.ACL { return zkconn.World(zkconn.PermAll) }

// world is a simulated world with the checks of all worlds of this package.
type world struct {
	*sim.World
	*checker
	seen    *tally
	later   time.Duration // how long after everything else the last apply begins
	running int           // processes that are not done
	over    chan struct{} // closed when all of them are
	sent    map[string]func(p *sim.Process, who *actor)
	unlinks func(rec *resource.Record) error // checks what is deleted in Redis; nil: nothing
}

// sends returns a channel that is closed when a process sends its first multi: then it has looked for the last time.
func (w *world) sends(name string) <-chan struct{} {
	done := make(chan struct{})
	once := sync.OnceFunc(func() { close(done) })
	w.sent = map[string]func(*sim.Process, *actor){name: func(p *sim.Process, who *actor) {
		p.Saw(func() { who.sent = w.zxid })
		once()
	}}
	return done
}

// telling is a connection that tells each multi before it is written.
type telling struct {
	net.Conn
	sent func()
}

func (c telling) Write(frame []byte) (int, error) {
	const opMulti = 14
	if len(frame) >= 12 && binary.BigEndian.Uint32(frame[8:]) == opMulti {
		c.sent()
	}
	return c.Conn.Write(frame)
}

// process declares a process that the last apply waits for.
func (w *world) process(name string, lives int, body func(p *sim.Process) error) {
	w.running++
	w.World.Process(name, lives, func(p *sim.Process) error {
		err := body(p)
		if err == nil {
			p.Saw(func() {
				if w.running--; w.running == 0 {
					close(w.over)
				}
			})
		}
		return err
	})
}

// session declares a process that begins so, and does this in a session.
func (w *world) session(
	name string, lives int, begin shift, as actor, do func(p *sim.Process, s *zkconn.Session) error,
) {
	w.process(name, lives, func(p *sim.Process) error {
		if err := begin.wait(p); err != nil {
			return err
		}
		who := as
		s, err := w.dial(p, &who)
		if err != nil {
			return err
		}
		defer s.Close()
		return do(p, s)
	})
}

// storing is session with a Store of a configuration.
func (w *world) storing(
	name string, begin shift, as actor, c config, do func(ctx context.Context, store *zkstate.Store) error,
) {
	w.session(name, 1, begin, as, func(p *sim.Process, s *zkconn.Session) error {
		store, err := c.store(s)
		if err != nil {
			return err
		}
		return do(p.Context(), store)
	})
}

// dial opens a session of who.
func (w *world) dial(p *sim.Process, who *actor) (*zkconn.Session, error) {
	c := p.Config(session)
	c.Auth = who.credentials()
	if sent := w.sent[p.Name()]; sent != nil {
		dial := c.Dial
		c.Dial = func(ctx context.Context, server string) (net.Conn, error) {
			conn, err := dial(ctx, server)
			return telling{conn, func() { sent(p, who) }}, err
		}
	}
	s, err := zkconn.Dial(p.Context(), c)
	if err != nil {
		return nil, err
	}
	p.Owns(s)
	who.name = p.String()
	p.Saw(func() { w.actors[s.ID()], who.zxid = who, w.zxid })
	return s, nil
}

// given brings about what a configuration declares, before everything else.
func (w *world) given(c config) {
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		r := c.apply(ctx, s, func(plan.Plan) {})
		if r.exit() != exitcode.Done {
			return fmt.Errorf("exit %d: %w", r.exit(), r.err)
		}
		return nil
	})
}

// apply declares a process that is "muster apply --yes", and again while something moves, or was only put back.
func (w *world) apply(name string, lives int, c config) { w.applyAfter(nil, name, lives, c) }

// applyAfter is apply, which begins when after is closed.
func (w *world) applyAfter(after <-chan struct{}, name string, lives int, c config) {
	w.process(name, lives, func(p *sim.Process) error {
		if err := (shift{after: after}).wait(p); err != nil {
			return err
		}
		for range 4 {
			r, err := w.applyOnce(p, c)
			if err != nil || r.exit() != exitcode.Incomplete && !slices.ContainsFunc(r.plan.Rows, isRepair) {
				return err
			}
		}
		return nil
	})
}

func isRepair(r plan.Row) bool { return r.Reason == plan.IsDamaged }

// written returns a channel that is closed when somebody writes a znode whose path begins so, after Setup.
func (w *world) written(path string) <-chan struct{} {
	done := make(chan struct{})
	closed := false
	w.OnTxn(func(t *zkmodel.Txn) error {
		for _, o := range t.Ops {
			if !closed && t.Err == 0 && o.Type != zkmodel.OpCheck && strings.HasPrefix(o.Path, path) &&
				w.actors[t.Session] != nil {
				closed = true
				close(done)
			}
		}
		return nil
	})
	return done
}

// applyOnce is one "muster apply --yes". Its error is what ends a life.
func (w *world) applyOnce(p *sim.Process, c config) (result, error) {
	who := &actor{config: &c}
	s, err := w.dial(p, who)
	if err != nil {
		return result{}, err
	}
	defer s.Close()
	c.unlinks = w.tellUnlinks(p)
	r := c.apply(p.Context(), s, w.planned(p, who))
	return r, w.ended(p, who, r)
}

// ended checks how an apply ended.
func (w *world) ended(p *sim.Process, who *actor, r result) error {
	if !p.Alive() {
		return context.Canceled
	}
	for _, o := range r.outcomes {
		w.seen.add(fmt.Sprintf("%s %s", o.Row.Reason, o.Result))
	}
	w.seen.add(fmt.Sprintf("exit %d", r.exit()))
	if w.hostile != nil && who.config.stack == "s" {
		return ofHostile(r)
	}
	var missing error
	if p.Saw(func() { missing = w.recorded(who, r) }); missing != nil {
		return missing
	}
	switch exit := r.exit(); exit {
	case exitcode.Done:
		if slices.ContainsFunc(r.plan.Rows, isRepair) {
			return nil // a repair changes no field
		}
		var err error
		p.Saw(func() { err = w.converged(who) })
		return err
	case exitcode.Unreachable:
		return errors.Join(zkconn.ErrSessionLost, r.err)
	case exitcode.Error:
		return fmt.Errorf("exit %d: %w", exit, r.err)
	}
	return nil
}

// last declares the last apply: after all others it must converge, and leave nothing behind or running.
func (w *world) last(c config) {
	var converged *plan.Plan
	w.Process("last", 0, func(p *sim.Process) error {
		select {
		case <-w.over:
		case <-p.Context().Done():
			return context.Cause(p.Context())
		}
		if err := rest(p, w.later); err != nil {
			return err
		}
		for range 6 {
			r, err := w.applyOnce(p, c)
			switch {
			case err != nil:
				return err
			case w.settled(c, r):
				p.Saw(func() { converged = &r.plan })
				return nil
			}
			if err := rest(p, 2*session); err != nil { // those who crashed are live until their sessions end
				return err
			}
		}
		return errors.New("six applies did not converge")
	})
	w.AtEnd(func() error {
		if converged == nil {
			return errors.New("no last apply")
		}
		return errors.Join(w.clean(), w.as(c, converged))
	})
}

// aJob is a job of n workers below root.
func aJob(name string, n int, edits ...func(*job.Job)) job.Job {
	j := job.Default()
	j.Root, j.Name, j.Workers, j.Address = root, name, n, "job."+name
	j.Timeouts.Session = resource.Duration(session)
	j.Timeouts.Stale = resource.Duration(grace)
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

// label changes what may change during a run.
func label(value string) func(*job.Job) {
	return func(j *job.Job) { j.Labels = map[string]string{"label": value} }
}

// shift is what a worker does.
type shift struct {
	name, job string
	user      string // whose credentials it has; empty: nobody's
	lives     int
	works     time.Duration // before it leaves
	completes bool
	after     <-chan struct{}      // it begins when this is closed; nil: at once
	pause     time.Duration        // and after this
	left      func(*worker.Member) // called when it has left; may be nil
}

// worker declares a process that joins a job, works, and leaves or completes.
func (w *world) worker(o shift) {
	w.session(o.name, o.lives, o, actor{user: o.user}, func(p *sim.Process, s *zkconn.Session) error {
		ctx, cancel := context.WithTimeout(p.Context(), patience)
		defer cancel()
		m, err := joinJob(ctx, s, o.job, o.name)
		if err == nil {
			w.seen.add("joined")
			err = w.work(p, m, o)
		}
		return w.notJoined(err)
	})
}

func joinJob(ctx context.Context, s *zkconn.Session, name, identity string) (*worker.Member, error) {
	return worker.Join(ctx, s, worker.Config{
		Root: root, Job: name, Identity: identity, Run: "run", Info: znode.Worker{IP: "127.0.0.1", Port: 1},
	})
}

func (o shift) wait(p *sim.Process) error {
	if o.after != nil {
		select {
		case <-o.after:
		case <-p.Context().Done():
			return context.Cause(p.Context())
		}
	}
	return rest(p, o.pause)
}

// rest lets time pass.
func rest(p *sim.Process, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.Context().Done():
		return context.Cause(p.Context())
	}
}

// work is the life of a worker that has joined. Nobody may end its generation while it is live.
func (w *world) work(p *sim.Process, m *worker.Member, o shift) error {
	timer := time.NewTimer(o.works)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.Context().Done():
		return fmt.Errorf("a live worker: %w", context.Cause(m.Context()))
	}
	ctx, cancel := context.WithTimeout(p.Context(), patience) // somebody may have deleted a part of the job
	defer cancel()
	var err error
	if o.completes {
		err = m.Complete(ctx, 0)
	} else {
		err = m.Leave(ctx, worker.End{})
	}
	if err == nil && o.left != nil {
		p.Saw(func() { o.left(m) })
	}
	return err
}

// notJoined is nil for an error with which a worker may end.
func (w *world) notJoined(err error) error {
	for _, fine := range []error{
		worker.ErrNoJob, worker.ErrNotOpen, worker.ErrFull, worker.ErrHeld, worker.ErrDone, worker.ErrCompleted,
		worker.ErrUnfinished, worker.ErrDamaged,
	} {
		if errors.Is(err, fine) {
			w.seen.add(fine.Error())
			return nil
		}
	}
	return err
}

// hand declares a person who changes ZooKeeper without muster.
func (w *world) hand(name string, f func(p *sim.Process, s *zkconn.Session) error) {
	w.session(name, 0, shift{}, actor{byHand: true}, f)
}

// remove deletes these znodes one after the other, as far as it can.
func remove(ctx context.Context, s *zkconn.Session, paths ...string) error {
	for _, path := range paths {
		if err := sim.Unless(s.Delete(ctx, path, -1), zkconn.ErrNoNode, zkconn.ErrNotEmpty); err != nil {
			return err
		}
	}
	return nil
}
