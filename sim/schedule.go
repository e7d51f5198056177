package sim

import (
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"muster/dev/zkmodel"
	"muster/zkstate/zkconn"
)

// farFuture bounds waiting for what should end by itself.
const farFuture = 24 * time.Hour

// hangs is in the error of a schedule whose processes do not end.
const hangs = "does not end"

// picker chooses the next step; false begins the fair end.
type picker interface {
	next(w *World) (step, bool)
}

type outcome struct {
	err     error
	trace   []string
	after   []string // the steps of the fair end, if recorded
	ignored int      // how often a mutant's guard was ignored
}

// schedule runs one schedule of a world. It must run in a bubble of its own.
func (w *World) schedule(o Options, world func(*World), pick picker) outcome {
	_, w.record = pick.(*replay)
	w.options, w.left, w.activity = o, o.Faults, make(chan struct{}, 1)
	w.guarded, w.concerned = map[guard]bool{}, map[string]bool{}
	w.server = zkmodel.New(zkmodel.Options{Applied: w.applied, Ignore: w.ignores})
	w.zk = zooKeeper(w.server)
	world(w)
	w.runSetup()
	if w.failed() == nil {
		w.explore(pick)
	}
	if w.failed() == nil {
		w.fairEnd(fmt.Sprintf("%s within %s after the last fault", hangs, o.End))
	}
	for _, f := range w.ends {
		if w.failed() == nil {
			if err := f(); err != nil {
				w.fail(err)
			}
		}
	}
	w.tearDown()
	return outcome{err: w.failed(), trace: w.trace, after: w.after, ignored: w.ignored}
}

func (w *World) applied(t *zkmodel.Txn) {
	if w.options.seen != nil && !w.preparing {
		w.options.seen.add(w, t)
	}
	for _, f := range w.txns {
		if err := f(t); err != nil {
			w.fail(err)
		}
	}
}

// runSetup runs the functions of Setup one after the other, without faults.
func (w *World) runSetup() {
	if len(w.setup) == 0 {
		return
	}
	procs := w.procs
	w.preparing = true
	p := &process{name: "setup", index: -1, body: func(p *Process) error {
		c := p.Config(time.Minute)
		c.Auth = w.setupAs
		s, err := zkconn.Dial(p.ctx, c)
		if err != nil {
			return err
		}
		p.Owns(s)
		for _, f := range w.setup {
			if err := f(p.ctx, s); err != nil {
				return err
			}
		}
		return s.Close()
	}}
	w.procs = []*process{p}
	w.begin(p)
	w.fairEnd(hangs)
	if _, err := p.life.result(); err != nil {
		w.fail(fmt.Errorf("setup: %w", err))
	}
	w.procs = procs
	w.preparing = false
}

// explore does what pick chooses until all processes are done.
func (w *World) explore(pick picker) {
	for {
		w.settle()
		if w.failed() != nil || w.done() {
			return
		}
		s, ok := pick.next(w)
		if !ok {
			return
		}
		w.do(s)
	}
}

// settle waits until all processes are blocked, and then checks.
func (w *World) settle() {
	if !w.allBlocked {
		synctest.Wait()
	}
	w.allBlocked = false
	w.tidy()
	w.pings()
	w.collect()
	w.check()
}

func (w *World) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.checks {
		if w.err != nil {
			return
		}
		w.err = f()
	}
}

// collect sees which bodies have returned.
func (w *World) collect() {
	for _, p := range w.procs {
		if p.life == nil || p.life.ended {
			continue
		}
		returned, err := p.life.result()
		if !returned {
			continue
		}
		switch {
		case err == nil, w.stopping && isFault(err):
			p.done = true
		case !isFault(err):
			w.fail(fmt.Errorf("%s: %w", p.life, err))
		}
		p.life.ended, p.paused = true, false
		p.life.crash()
	}
}

// done reports whether all processes have ended. When only services are left, it tells them to end.
func (w *World) done() bool {
	all, ordinary := true, true
	for _, p := range w.procs {
		all = all && p.done
		ordinary = ordinary && (p.done || p.service)
	}
	if ordinary && !all && !w.stopping {
		w.stopping = true
		for _, p := range w.procs {
			if p.life == nil || p.life.ended {
				p.done = true
			} else if !p.done {
				p.life.cancel()
			}
		}
	}
	return all
}

// fairEnd serves one process after the other, each until it waits for the others or for time, which then passes, until
// all are done.
func (w *World) fairEnd(complaint string) {
	for _, p := range w.procs {
		p.paused = false
	}
	for _, f := range w.foreign {
		if f.down.Load() {
			w.setDown(f, false)
		}
	}
	end := time.Now().Add(w.options.End)
	busy := 0
	for at, served := 0, 0; ; busy++ {
		w.settle()
		if w.failed() != nil || w.done() {
			return
		}
		if busy > busyLimit {
			w.fail(fmt.Errorf("%s %s: always busy, without letting time pass\n%s", w.unfinished(), complaint, w.stacks()))
			return
		}
		if n := len(w.procs); served < n*serveLimit {
			if !w.serve(w.procs[at/serveLimit%n]) {
				at, served = (at/serveLimit+1)*serveLimit, served+serveLimit
			} else {
				at, served = at+1, 0
			}
			continue
		}
		served = 0
		if !time.Now().Before(end) {
			w.fail(fmt.Errorf("%s %s\n%s", w.unfinished(), complaint, w.stacks()))
			return
		}
		w.passUntil(end)
		busy = 0
	}
}

// busyLimit is how many rounds of the fair end may follow each other before time passes.
const busyLimit = 20000

// serveLimit is how often a process is served before the next one, if it always has something to do.
const serveLimit = 100

// serve does everything for one process that is no fault. It reports whether there was anything.
func (w *World) serve(p *process) bool {
	w.allBlocked = true
	for _, s := range w.moves() {
		switch {
		case s.verb == start && s.proc == p:
			w.note(s)
			w.begin(p)
			w.allBlocked = false
		case s.verb == apply && s.conn.life.proc == p:
			for m, ok := s.conn.request(); ok; m, ok = s.conn.request() {
				w.note(step{verb: apply, conn: s.conn, what: m.label})
				w.apply(s.conn)
			}
			w.allBlocked = false
		}
	}
	for _, c := range w.conns {
		for c.life.proc == p && len(c.replies) > 0 {
			w.note(step{verb: deliver, conn: c, what: c.replies[0].label})
			w.deliver(c)
			w.allBlocked = false
		}
	}
	return !w.allBlocked
}

// note keeps the first steps of the fair end for a reader.
func (w *World) note(s step) {
	if w.record && !w.preparing && len(w.after) < 100 {
		w.after = append(w.after, s.String())
	}
}

func (w *World) unfinished() string {
	var names []string
	for _, p := range w.procs {
		if !p.done {
			names = append(names, p.life.String())
		}
	}
	return strings.Join(names, ", ")
}

// pass lets time pass: for d, or until something happens if d is 0.
func (w *World) pass(d time.Duration) {
	if d == 0 {
		w.passUntil(time.Now().Add(w.options.End))
		return
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		w.passOnce(end)
	}
}

// passUntil lets time pass until there is something to do.
func (w *World) passUntil(end time.Time) {
	for time.Now().Before(end) {
		w.passOnce(end)
		if w.anythingToDo() {
			return
		}
	}
}

// passOnce lets time pass until a process does something, a session ends, or end.
func (w *World) passOnce(end time.Time) {
	until := end
	for _, s := range w.server.Sessions() {
		if at := s.Heard.Add(s.Timeout); at.Before(until) {
			until = at
		}
	}
	for _, f := range w.foreign {
		if f.Due == nil {
			continue
		}
		if at := f.Due(time.Now()); !at.IsZero() && at.Before(until) {
			until = at
		}
	}
	w.awaitActivity(until)
	w.tidy()
	w.pings()
	for _, f := range w.foreign {
		if f.Due != nil {
			f.Due(time.Now())
		}
	}
	w.server.ExpireDue(time.Now())
}

// awaitActivity lets time pass until a process does something, and then until all are blocked.
func (w *World) awaitActivity(until time.Time) {
	select {
	case <-w.activity:
	case <-time.After(time.Until(until)):
	}
	synctest.Wait()
}

func (w *World) anythingToDo() bool {
	for _, p := range w.procs {
		if p.life == nil || p.life.ended {
			if !p.done {
				return true
			}
			continue
		}
		if returned, _ := p.life.result(); returned {
			return true
		}
	}
	for _, c := range w.conns {
		if _, ok := c.request(); (ok || len(c.replies) > 0) && !c.life.proc.paused {
			return true
		}
	}
	return false
}

// tearDown ends everything, since no goroutine may remain in the bubble.
func (w *World) tearDown() {
	for _, life := range w.lives {
		life.crash()
	}
	end := time.Now().Add(farFuture)
	for _, life := range w.lives {
		synctest.Wait()
		returned, _ := life.result()
		for !returned && time.Now().Before(end) {
			w.awaitActivity(end)
			returned, _ = life.result()
		}
		if !returned {
			w.fail(fmt.Errorf("the body of %s does not return after a crash\n%s", life, w.stacks()))
			continue
		}
		for _, s := range life.sessions {
			s.Close()
		}
	}
	time.Sleep(time.Minute) // of virtual time, for the last goroutines of the client library
}
