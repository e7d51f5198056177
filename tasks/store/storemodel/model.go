// Package storemodel is what the scripts of package store do, in plain Go, and a small Redis in memory that answers
// the commands that muster sends. It is for simulation and tests only. The tests of package store hold it against a
// real Redis: every reply, and every key after it.
//
// It refuses every command and every script that it does not know.
package storemodel

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
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
	runs, full                      bool    // it was runnable, or complete, when it was settled last
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

func refuseIf(wrong bool, why string) {
	if wrong {
		panic(Refused(why))
	}
}

const tooMany = "LIMIT more than 1000 items"

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
	return map[string]func([]string) any{
		"hello": m.hello, "evict": m.evict, "begin": m.begin, "append": m.append, "open": m.open, "turn": m.turn,
		"sync": m.sync, "claim": m.claim, "unclaim": m.unclaim, "set": m.set, "retry": m.retry, "drop": m.drop,
		"remove": m.remove, "count": m.count,
	}[script](args)
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

// operable reports whether it can be paused, resumed or retried.
func (b *Batch) operable() bool { return b.State != "submitting" && b.State != "cancelled" }

// Done is how many tasks are done.
func (b *Batch) Done() float64 { return float64(len(b.Finished) + len(b.discarded)) }

// Tasks is how many it has so far.
func (b *Batch) Tasks() float64 { return b.taken + float64(len(b.waiting)) }

func (b *Batch) unclaimed() bool { return b.Complete() && b.Holder == "" }

// out is how many tasks are in hands.
func (b *Batch) out() float64 {
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

// settle is what follows when a batch has changed: it enters at the queue's time, or may be claimed.
func (m *Queue) settle(b *Batch) {
	if b.runnable() && !b.runs {
		b.v = max(b.v, m.vt)
	}
	if !b.full {
		m.offer(b)
	}
	b.runs, b.full = b.runnable(), b.Complete()
}

// offer lets watchers claim a batch that is complete.
func (m *Queue) offer(b *Batch) {
	if b.Complete() {
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
	refuseIf(b == nil, "NOBATCH "+id)
	return b
}

// identify checks whose queue this is, and notes it where it is new.
func (m *Queue) identify(id string) {
	refuseIf(m.id != "" && m.id != id, "QUEUE "+m.id)
	m.id = id
}

// live is a batch in the life that a call names.
func (m *Queue) live(id, life string) *Batch {
	b := m.need(id)
	b.mustLive(life)
	return b
}

func (b *Batch) mustLive(life string) {
	refuseIf(b.Life != life, "LIFE "+b.Life)
}

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

// keepResults is the begin of a batch's results that are kept for a time.
var keepResults = regexp.MustCompile(`^keep:[0-9]`)

func (m *Queue) begin(a []string) any {
	known := keepResults.MatchString(a[5]) || slices.Contains([]string{"watcher", "submitter", "discard"}, a[5])
	weight, attempts, bytes := num(a[3]), num(a[4]), num(a[6])
	good := known && weight >= 1 && weight <= 1000 && attempts >= 1 && bytes >= 0 && bytes < 1<<53
	refuseIf(!good, "ARGUMENT "+strings.Join(a[3:7], " "))
	m.identify(a[1])
	if b := m.Batches[a[0]]; b != nil {
		b.mustLive(a[2])
		return int64(0)
	}
	refuseIf(len(m.Dead[a[0]]) > 0, "DEAD "+a[0])
	refuseIf(m.Bytes > 0 && m.Bytes+bytes > num(a[7]), "FULL "+str(m.Bytes))
	m.born++
	b := &Batch{
		ID: a[0], Life: a[2], weight: weight, attempts: attempts, Results: a[5], declared: bytes, born: m.born,
		State: "submitting",
	}
	m.grow(b, b.declared)
	m.Batches[b.ID] = b
	return int64(1)
}

func (m *Queue) append(a []string) any {
	tasks, at := a[3:], num(a[2])
	refuseIf(len(tasks) > maxItems, tooMany)
	b := m.live(a[0], a[1])
	end := at + float64(len(tasks))
	if end <= b.Tasks() && (at < b.Tasks() || len(tasks) == 0) {
		return int64(b.Tasks())
	}
	refuseIf(at != b.Tasks(), "OFFSET "+str(b.Tasks()))
	refuseIf(b.State != "submitting", "STATE "+b.State)
	for _, p := range tasks {
		b.waiting, b.sum, b.big = append(b.waiting, p), b.sum+size(p), max(b.big, float64(len(p)))
	}
	return int64(b.Tasks())
}

func (m *Queue) open(a []string) any {
	b := m.live(a[0], a[1])
	refuseIf(b.Tasks() != num(a[2]), "OFFSET "+str(b.Tasks()))
	refuseIf(b.State == "cancelled", "STATE "+b.State)
	if b.State != "submitting" {
		return int64(0)
	}
	b.State = "open"
	m.grow(b, b.sum-b.declared)
	m.settle(b)
	m.wake()
	return int64(1)
}

func (m *Queue) set(a []string) any {
	b := m.live(a[0], a[1])
	if num(a[2]) <= b.Version {
		return int64(0)
	}
	refuseIf(a[4] != "cancelled" && !b.operable(), "STATE "+b.State)
	b.Version, b.weight, b.State = num(a[2]), num(a[3]), a[4]
	m.settle(b)
	m.wake()
	return int64(1)
}

func (m *Queue) retry(a []string) any {
	id, most, before, to := a[0], int(num(a[1])), num(a[2]), a[3]
	b := m.live(to, a[4])
	if id == to {
		refuseIf(b.Holder != "", "CLAIMED "+b.Holder)
		refuseIf(!b.operable(), "STATE "+b.State)
	} else {
		refuseIf(b.State != "submitting", "STATE "+b.State)
		if num(a[5]) < b.Tasks() {
			return int64(0)
		}
		refuseIf(num(a[5]) != b.Tasks(), "OFFSET "+str(b.Tasks()))
	}
	moved := m.popDead(id, most, before)
	for _, d := range moved {
		b.big = max(b.big, float64(len(d.payload)))
		if id == to {
			m.grow(b, size(d.payload))
			b.Dead--
			b.putBack(Task{Index: d.Index, Attempt: 1, payload: d.payload})
		} else {
			b.waiting, b.sum = append(b.waiting, d.payload), b.sum+size(d.payload)
		}
	}
	if id == to && b.tries > 0 {
		b.tries, b.falls, b.because = 0, 0, ""
		m.offer(b)
	}
	m.settle(b)
	m.wake()
	return int64(len(moved))
}

// popDead removes the first dead tasks of a batch that died before a time.
func (m *Queue) popDead(id string, most int, before float64) (popped []Task) {
	all, bytes := m.Dead[id], 0
	for len(all) > 0 && len(popped) < most && bytes < maxBytes && all[0].At < before {
		d := all[0]
		popped, all = append(popped, d), all[1:]
		m.Bytes -= size(d.payload, d.reason)
		bytes += len(deadEntry(d))
	}
	m.Dead[id] = all
	if len(all) == 0 {
		delete(m.deadSince, id)
	}
	return popped
}

func deadEntry(d Task) string {
	return strings.Join([]string{
		d.Index, str(d.Attempt), str(d.deaths), str(d.At), fmt.Sprint(len(d.reason)), d.reason + d.payload,
	}, ":")
}

func (m *Queue) drop(a []string) any {
	return int64(len(m.popDead(a[0], int(num(a[1])), num(a[2]))))
}

func (m *Queue) remove(a []string) any {
	b := m.Batches[a[0]]
	if b == nil {
		return int64(0)
	}
	if a[1] != "" {
		b.mustLive(a[1])
	}
	if s := m.Seats[b.Holder]; s != nil {
		s.drop(b.ID + ":watch")
	}
	m.Bytes -= b.bytes
	delete(m.Batches, b.ID)
	m.wake()
	return int64(1)
}
