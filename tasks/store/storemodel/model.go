// Package storemodel is what the scripts of package store do, in plain Go, and a small Redis in memory that answers
// the commands that muster sends. It is for simulation and tests only. The tests of package store hold it against a
// real Redis: every reply, and every key after it.
//
// It refuses every command and every script that it does not know.
package storemodel

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The limits of one call, as in common.lua.
const (
	maxItems = 1000
	maxBytes = 1 << 20
)

// Queue is a queue in memory. Call runs a script on it. The fields are for looking at, and Now for the caller to set.
// All numbers are float64, as in Lua.
type Queue struct {
	Now     float64 // of the server, in ms
	Bytes   float64
	Batches map[string]*Batch // by id
	Seats   map[string]*Seat  // by name
	Dead    map[string][]Task // by batch, also of removed ones; oldest first

	id                                       string
	vt, mean, seen, born, slots, evictedTime float64
	wakeE, wakeW                             bool               // there is a token
	deadSince                                map[string]float64 // by batch: when its list of dead tasks began
}

// Batch is what a queue has of a batch.
type Batch struct {
	ID, Life, State, Results string
	Holder                   string // the seat of the watcher that has claimed it
	Version, Dead            float64
	Finished                 []string // index:attempt:ns:result, in the order in which they came
	discarded                []string // indexes of those that are done and whose results are not kept

	because                         string
	born, weight, attempts          float64
	declared, sum, bytes, big, rbig float64
	v, mean, seen, tries, falls     float64
	waiting                         []string
	taken                           float64
	again, late                     []Task  // late ones by their time, then as their bytes order
	fullAt                          float64 // when it may be claimed
}

// Task is a task that is dead, late, was returned, or is in a hand.
type Task struct {
	Index   string
	Attempt float64
	At      float64 // due, or died

	deaths          float64
	reason, payload string
	born, charge    float64 // in a hand: of the batch; of virtual time
}

// Seat is a seat that said hello.
type Seat struct {
	Role string // e or w
	Seq  float64
	Shut string          // "": not; 0: it left, 1: it died, 2: it died and its suspect is charged
	Hand map[string]Task // by batch:index, or batch:watch

	slots   float64
	suspect string // the field of it; a task is then alone in the hand
}

// Refused is why a script does nothing, as its error reply says it. The scripts' functions panic with it, from any
// depth, as the scripts raise an error; Call makes it the reply.
type Refused string

// New is a queue that has nothing yet.
func New() *Queue {
	return &Queue{
		Batches: map[string]*Batch{}, Seats: map[string]*Seat{}, Dead: map[string][]Task{},
		deadSince: map[string]float64{},
	}
}

// Call is one call of a script of package store. The reply is made of int64, string and []any, or is Refused.
func (m *Queue) Call(script string, args []string) (reply any) {
	defer func() {
		if r := recover(); r != nil {
			why, ok := r.(Refused)
			if !ok {
				panic(r)
			}
			reply = why
		}
	}()
	return m.script(script)(args)
}

func (m *Queue) script(name string) func([]string) any {
	switch name {
	case "hello":
		return m.hello
	case "evict":
		return m.evict
	case "begin":
		return m.begin
	case "append":
		return m.append
	case "open":
		return m.open
	case "turn":
		return m.turn
	case "sync":
		return m.sync
	case "claim":
		return m.claim
	case "unclaim":
		return m.unclaim
	case "set":
		return m.set
	case "retry":
		return m.retry
	case "drop":
		return m.drop
	case "remove":
		return m.remove
	case "count":
		return m.count
	}
	panic("no script is named " + name)
}

func num(s string) float64     { n, _ := strconv.ParseFloat(s, 64); return n }
func str(n float64) string     { return strconv.FormatFloat(n, 'f', -1, 64) }
func size(s ...string) float64 { return float64(len(strings.Join(s, "")) + 32) }

func (b *Batch) runnable() bool {
	return b.State == "open" && len(b.waiting)+len(b.again) > 0
}

// Complete reports whether all tasks of an open or paused batch have ended.
func (b *Batch) Complete() bool {
	return (b.State == "open" || b.State == "paused") && b.Done()+b.Dead == b.Tasks()
}

// Done is how many tasks are done.
func (b *Batch) Done() float64 { return float64(len(b.Finished) + len(b.discarded)) }

// Tasks is how many it has so far.
func (b *Batch) Tasks() float64 { return b.taken + float64(len(b.waiting)) }

func (m *Queue) out(b *Batch) float64 {
	return b.taken - b.Done() - b.Dead - float64(len(b.again)) - float64(len(b.late))
}

func (m *Queue) weights() (sum float64) {
	for _, b := range m.Batches {
		if b.runnable() {
			sum += b.weight
		}
	}
	return sum
}

// change does something to a batch, and then what follows from it: it enters at the queue's time, it is complete.
func (m *Queue) change(b *Batch, f func()) {
	ran, full := b.runnable(), b.Complete()
	f()
	if b.runnable() && !ran {
		b.v = max(b.v, m.vt)
	}
	if b.Complete() && !full {
		b.fullAt = b.claimable(0)
		m.wakeW = m.wakeW || b.fullAt == 0
	}
}

func (b *Batch) claimable(at float64) float64 {
	if b.Results != "watcher" || b.tries >= b.attempts {
		return math.Inf(1)
	}
	return at
}

func (m *Queue) grow(b *Batch, d float64) { b.bytes += d; m.Bytes += d }

func (m *Queue) wake() {
	for _, b := range m.Batches {
		m.wakeE = m.wakeE || b.runnable()
	}
}

func (m *Queue) need(id string) *Batch {
	b := m.Batches[id]
	if b == nil {
		panic(Refused("NOBATCH " + id))
	}
	return b
}

// identify checks whose queue this is, and notes it where it is new.
func (m *Queue) identify(id string) {
	if m.id != "" && m.id != id {
		panic(Refused("QUEUE " + m.id))
	}
	m.id = id
}

func sameLife(b *Batch, life string) {
	if b.Life != life {
		panic(Refused("LIFE " + b.Life))
	}
}

// flag is a truth as the scripts answer it.
func flag(on bool) int64 {
	if on {
		return 1
	}
	return 0
}

func (m *Queue) die(b *Batch, h Task, reason string) {
	h.reason, h.At = reason[:min(len(reason), 1024)], m.Now
	if len(m.Dead[b.ID]) == 0 {
		m.deadSince[b.ID] = m.Now
	}
	m.Dead[b.ID] = append(m.Dead[b.ID], h)
	b.Dead++
	m.grow(b, -size(h.payload))
	m.Bytes += size(h.payload, h.reason)
}

// sorted are the batches that pass, by a number, then by name.
func (m *Queue) sorted(pass func(b *Batch) bool, by func(b *Batch) float64) []*Batch {
	var all []*Batch
	for _, b := range m.Batches {
		if pass(b) {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(x, y *Batch) int {
		return cmp.Or(cmp.Compare(by(x), by(y)), cmp.Compare(x.ID, y.ID))
	})
	return all
}
