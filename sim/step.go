package sim

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// verb is what the scheduler can do.
type verb string

const (
	start       verb = "start"        // a process's first or next life
	apply       verb = "apply"        // the server gets a request
	deliver     verb = "deliver"      // the process gets a reply or an event
	loseRequest verb = "lose-request" // the request of a connection that the process has lost is lost too
	resume      verb = "resume"       // ends pause
	wait        verb = "wait"         // time passes
	loseReply   verb = "lose-reply"   // the server gets a request, then the connection breaks
	cut         verb = "cut"          // the connection breaks, and what is on its way is lost
	cutLate     verb = "cut-late"     // the connection breaks for the process, and its requests may still arrive
	expire      verb = "expire"       // the server ends the session
	crash       verb = "crash"        // the process, and its requests are lost
	crashLate   verb = "crash-late"   // the process, and its requests may still arrive
	down        verb = "down"         // an outage of a Foreign begins
	up          verb = "up"           // and ends
	pause       verb = "pause"        // nothing from and to the process moves
)

// endsFault: the verb is a move that ends a fault.
func (v verb) endsFault() bool { return v == resume || v == up }

// step is something that the scheduler can do now. All steps that are possible are listed, in a fixed order, and a
// trace names one by its String. So what a fault does, if it has several forms, is one of few values, and is in what.
type step struct {
	verb    verb
	proc    *process
	conn    *conn
	foreign *foreign
	what    string
	time    time.Duration // of wait; 0: until something happens
}

// String is a line of a trace.
func (s step) String() string {
	who, what := "-", s.what
	switch {
	case s.conn != nil:
		who = s.conn.life.name + s.conn.name
	case s.verb == start:
		who = lifeName(s.proc.name, s.proc.began)
	case s.proc != nil:
		who = s.proc.life.name
	case s.foreign != nil:
		who = s.foreign.Name
	case s.time > 0:
		what = s.time.String()
	}
	return strings.TrimSpace(string(s.verb) + " " + who + " " + what)
}

// moves are the steps that are no faults, in a fixed order. The next call overwrites them.
func (w *World) moves() []step {
	all := w.moving[:0]
	defer func() { w.moving = all }()
	for _, p := range w.procs {
		switch {
		case p.paused:
			all = append(all, step{verb: resume, proc: p})
		case !p.done && (p.life == nil || p.life.ended):
			all = append(all, step{verb: start, proc: p})
		}
	}
	for _, f := range w.foreign {
		if f.down.Load() {
			all = append(all, step{verb: up, foreign: f})
		}
	}
	for _, c := range w.conns {
		if c.life.proc.paused {
			continue
		}
		if m, ok := c.request(); ok {
			all = append(all, step{verb: apply, conn: c, what: m.label})
			if c.gone {
				all = append(all, step{verb: loseRequest, conn: c, what: m.label})
			}
		}
		if len(c.replies) > 0 {
			all = append(all, step{verb: deliver, conn: c, what: c.replies[0].label})
		}
	}
	return all
}

// faults are the faults that can happen now. Only those within the budget, unless all.
func (w *World) faults(all bool) []step {
	var out []step
	add := func(budget int, s step) {
		if budget > 0 || all {
			out = append(out, s)
		}
	}
	for _, c := range w.conns {
		if c.gone || c.life.proc.index < 0 {
			continue
		}
		if m, ok := c.request(); ok {
			add(w.left.LostReplies, step{verb: loseReply, conn: c, what: m.label})
			add(w.left.Cuts, step{verb: cutLate, conn: c})
		}
		add(w.left.Cuts, step{verb: cut, conn: c})
		if c.session != 0 && !c.over {
			add(w.left.Expiries, step{verb: expire, conn: c})
		}
	}
	for _, p := range w.procs {
		if p.done || p.life == nil || p.life.ended {
			continue
		}
		if p.crashes < p.lives || p.lives < 0 {
			add(w.left.Crashes, step{verb: crash, proc: p})
			add(w.left.Crashes, step{verb: crashLate, proc: p})
		}
		if !p.paused {
			add(w.left.Pauses, step{verb: pause, proc: p})
		}
	}
	for _, f := range w.foreign {
		if !f.down.Load() {
			add(w.left.Outages, step{verb: down, foreign: f})
		}
	}
	return out
}

// do executes a step. Only those that wake a process need to wait until all are blocked again.
func (w *World) do(s step) {
	w.trace = append(w.trace, s.String())
	switch s.verb {
	case start:
		w.begin(s.proc)
	case apply:
		w.apply(s.conn)
	case deliver:
		w.deliver(s.conn)
	case loseRequest:
		s.conn.takeRequest()
	case resume:
		s.proc.paused = false
	case wait:
		w.pass(s.time)
	case loseReply:
		w.left.LostReplies--
		w.apply(s.conn)
		s.conn.sever()
		s.conn.forget()
	case cut, cutLate:
		w.left.Cuts--
		s.conn.sever()
		if s.verb == cut {
			s.conn.forget()
		}
	case expire:
		w.left.Expiries--
		w.server.Expire(s.conn.session)
	case crash, crashLate:
		w.left.Crashes--
		w.crash(s.proc, s.verb == crashLate)
	case pause:
		w.left.Pauses--
		s.proc.paused = true
	case down:
		w.left.Outages--
		w.setDown(s.foreign, true)
	case up:
		w.setDown(s.foreign, false)
	}
	w.allBlocked = slices.Contains([]verb{apply, loseRequest, resume, expire, pause}, s.verb)
}

func (w *World) begin(p *process) {
	life := &Process{world: w, proc: p, number: p.began, name: lifeName(p.name, p.began)}
	life.ctx, life.cancel = context.WithCancel(context.Background())
	p.life = life
	p.began++
	w.lives = append(w.lives, life)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				life.finish(fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
			}
		}()
		life.finish(p.body(life))
	}()
}

func (w *World) crash(p *process, late bool) {
	p.crashes++
	p.paused = false
	life := p.life
	life.ended = true
	life.crash()
	for _, c := range w.conns {
		if c.life == life && !late {
			c.forget()
		}
	}
	if p.lives < 0 || w.stopping && p.service {
		p.done = true
	}
}

// apply gives the oldest request of a connection to the server.
func (w *World) apply(c *conn) {
	m, ok := c.takeRequest()
	if !ok {
		return
	}
	if c.handler == nil {
		c.handler, c.closer = c.to.Open(c.reply)
	}
	c.asked = append(c.asked, m.label)
	c.handler(m.bytes)
}

// deliver gives the oldest reply or event of a connection to the process.
func (w *World) deliver(c *conn) {
	m := c.replies[0]
	c.replies = slices.Delete(c.replies, 0, 1)
	if m.bytes == nil {
		c.sever()
		return
	}
	c.deliver(m.bytes)
}

// tidy notices connections that processes have made or closed, and tells the server of those that are gone.
func (w *World) tidy() {
	w.mu.Lock()
	added := w.dialled
	w.dialled = nil
	w.mu.Unlock()
	if len(added) > 0 {
		w.conns = append(w.conns, added...)
		slices.SortStableFunc(w.conns, func(a, b *conn) int {
			return cmp.Or(a.life.proc.index-b.life.proc.index, a.life.number-b.life.number)
		})
	}
	for _, c := range w.conns {
		if !c.gone && c.isClosed() {
			c.gone, c.replies = true, nil
		}
		if c.gone && c.session == 0 {
			c.forget() // nobody waits for its handshake
		}
		if _, waits := c.request(); c.gone && !waits && !c.over {
			c.over = true
			c.lost()
		}
	}
	w.conns = slices.DeleteFunc(w.conns, func(c *conn) bool { return c.gone && c.over })
}

// pings answers heartbeats, which are no steps.
func (w *World) pings() {
	for _, c := range w.conns {
		if c.life.proc.paused {
			continue
		}
		for m, ok := c.request(); ok && m.ping; m, ok = c.request() {
			w.apply(c)
		}
		for len(c.replies) > 0 && c.replies[0].ping {
			w.deliver(c)
		}
	}
}

// explorer chooses steps at random. Each schedule has chances of its own: how often faults happen and time passes, and
// which processes are slow. Slow ones let the others do much between two of their steps.
type explorer struct {
	random  *rand.Rand
	steps   int // left
	chances chances
	speeds  []float64 // of the processes

	mutant *mutant // look for its effects; nil: none
	hold   float64 // speed of the requests whose guard is ignored
}

// chances are probabilities for each step.
type chances struct{ fault, wait, change float64 }

func newExplorer(o Options, seed uint64) *explorer {
	h := fnv.New64a()
	h.Write([]byte(o.Name))
	e := &explorer{random: rand.New(rand.NewPCG(seed, h.Sum64())), steps: o.Steps, mutant: o.mutant}
	pick := func(of ...float64) float64 { return of[e.random.IntN(len(of))] }
	e.chances = chances{
		fault:  pick(0, 0.01, 0.03, 0.1),
		wait:   pick(0, 0.01, 0.05),
		change: pick(0, 0.02, 0.1),
	}
	if e.mutant != nil {
		e.hold = pick(1, 0.1, 0.01)
	}
	return e
}

func (e *explorer) next(w *World) (step, bool) {
	if e.steps--; e.steps < 0 {
		return step{}, false
	}
	if e.speeds == nil || e.chance(e.chances.change) {
		e.speeds = e.newSpeeds(len(w.procs))
	}
	faultChance := e.chances.fault
	if e.mutant != nil && faultChance > 0 && e.holds(w) {
		faultChance = 0.1
	}
	if e.chance(faultChance) {
		if s, ok := e.fault(w); ok {
			return s, true
		}
	}
	moves := w.moves()
	// Whether only a pause or an outage holds what there is to do.
	stuck := !slices.ContainsFunc(moves, func(s step) bool { return !s.verb.endsFault() })
	switch {
	case len(moves) == 0:
		return step{verb: wait}, true
	case stuck && e.chance(0.7):
		return step{verb: wait, time: longWaits[e.random.IntN(len(longWaits))]}, true
	case e.chance(e.chances.wait):
		return step{verb: wait, time: e.duration(w)}, true
	}
	return e.weighted(moves), true
}

func (e *explorer) chance(p float64) bool { return e.random.Float64() < p }

func (e *explorer) newSpeeds(n int) []float64 {
	speeds := make([]float64, n)
	for i := range speeds {
		speeds[i] = []float64{1, 1, 1, 0.2, 0.03, 0.001}[e.random.IntN(6)]
	}
	return speeds
}

var (
	shortWaits = [...]time.Duration{time.Millisecond, 30 * time.Millisecond, 300 * time.Millisecond}
	longWaits  = [...]time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Minute}
)

// duration is mostly short. A long one, in which connections break, counts as a pause.
func (e *explorer) duration(w *World) time.Duration {
	if w.left.Pauses > 0 && e.chance(0.3) {
		w.left.Pauses--
		return longWaits[e.random.IntN(len(longWaits))]
	}
	return shortWaits[e.random.IntN(len(shortWaits))]
}

// fault chooses a kind of fault first, since there are many more connections to cut than processes to crash.
func (e *explorer) fault(w *World) (step, bool) {
	all := w.faults(false)
	if e.mutant != nil && e.chance(0.8) && e.holds(w) { // not those that lose what is on its way
		all = slices.DeleteFunc(all, func(s step) bool { return s.verb == cut || s.verb == crash })
	}
	if len(all) == 0 {
		return step{}, false
	}
	var verbs []verb
	of := map[verb][]step{}
	for _, s := range all {
		if of[s.verb] == nil {
			verbs = append(verbs, s.verb)
		}
		of[s.verb] = append(of[s.verb], s)
	}
	some := of[verbs[e.random.IntN(len(verbs))]]
	return some[e.random.IntN(len(some))], true
}

func (e *explorer) weighted(moves []step) step {
	var sum float64
	weights := make([]float64, len(moves))
	for i, s := range moves {
		weights[i] = e.weight(s)
		sum += weights[i]
	}
	at := e.random.Float64() * sum
	for i, weight := range weights {
		if at -= weight; at < 0 {
			return moves[i]
		}
	}
	return moves[len(moves)-1]
}

func (e *explorer) weight(s step) float64 {
	p := s.proc
	if s.conn != nil {
		p = s.conn.life.proc
	}
	if s.verb.endsFault() {
		return 0.05
	}
	weight := e.speeds[p.index]
	if e.mutant != nil && (s.verb == apply || s.verb == loseRequest) {
		weight *= e.interest(s)
	}
	if s.verb == loseRequest {
		weight /= 5
	}
	return weight
}

// interest holds a request whose guard is ignored, until the guard would have refused it.
func (e *explorer) interest(s step) float64 {
	w := s.conn.life.world
	m, _ := s.conn.request()
	switch {
	case !e.mutant.concerns(w, m.label):
		return 1
	case e.mutant.refuses(w, m.bytes):
		return 3
	}
	return e.hold
}

// holds reports whether a request whose guard is ignored is on its way: then faults show most.
func (e *explorer) holds(w *World) bool {
	return slices.ContainsFunc(w.conns, func(c *conn) bool {
		m, ok := c.request()
		return ok && e.mutant.concerns(w, m.label)
	})
}
