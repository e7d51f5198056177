package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

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
	stuck := true // only a pause holds what there is to do
	for _, s := range moves {
		stuck = stuck && (s.verb == resume || s.verb == up)
	}
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
	if s.verb == resume || s.verb == up {
		return 0.05
	}
	weight := e.speeds[p.index]
	if e.mutant != nil && (s.verb == apply || s.verb == drop) {
		weight *= e.interest(s)
	}
	if s.verb == drop {
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
	for _, c := range w.conns {
		if m, ok := c.request(); ok && e.mutant.concerns(w, m.label) {
			return true
		}
	}
	return false
}
