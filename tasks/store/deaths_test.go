package store

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"muster/resource/queue"
	"strconv"
	"time"
)

// ward is executors with a clock of their own: they die of tasks and in outages, and come back. A keeper evicts them
// as package tasks does. Times are in ms.
type ward struct {
	deathCase
	*testQueue
	rng      *rand.Rand
	events   events
	beds     []*bed
	names    int
	gone     []string // seats that ended, not evicted
	finished int
	deaths   int     // of tasks
	took     float64 // until all tasks had ended
}

// deathCase is what happens.
type deathCase struct {
	executors, parallel int
	tasks, poison       int
	attempts            int
	lookahead           float64 // work in hand for each command
	lasts               func(index int) float64
	session             float64
	waits               bool // an executor is started again when the session of the one before has ended
	outages             []outage
	limit               time.Duration // all has ended by then
}

// outage ends a share of the executors at once. They come back later.
type outage struct{ at, share, lasts float64 }

// bed is a place for an executor.
type bed struct {
	w       *ward
	seat    string // "": nobody is live
	seq     int64
	waiting []Held
	running int
	results []Result
	alone   float64 // nothing is taken before, while something is in hand
	pause   float64 // until it looks again
}

type event struct {
	at, order float64
	do        func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].order, e[j].order)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *ward) ms() float64 { return float64(w.now.UnixMilli()) }

func (w *ward) after(ms float64, do func()) {
	heap.Push(&w.events, event{w.ms() + ms, w.rng.Float64(), do})
}

func (w *ward) between(least, most float64) float64 { return least + w.rng.Float64()*(most-least) }

// deadly reports whether a task kills its executor: so many of them, evenly spread.
func (c deathCase) deadly(index int) bool {
	return c.poison > 0 && (index+1)*c.poison/c.tasks > index*c.poison/c.tasks
}

// run runs a case to its end, and says what is wrong then. set sets the time of the queue.
func (c deathCase) run(q *testQueue, set func(time.Time), seed uint64) (w *ward, wrong error) {
	w = &ward{deathCase: c, testQueue: q, rng: rand.New(rand.NewPCG(seed, 0))}
	begun := w.ms()
	q.submit("b", 1, c.attempts, payloads(c.tasks)...)
	for range c.executors {
		b := &bed{w: w}
		w.beds = append(w.beds, b)
		w.after(w.between(0, 1000), b.join)
	}
	for _, o := range c.outages {
		w.after(o.at, func() { w.strike(o) })
	}
	for w.finished < c.tasks {
		e := heap.Pop(&w.events).(event)
		if w.took = e.at - begun; w.took > float64(c.limit.Milliseconds()) {
			return w, fmt.Errorf("after %s %d tasks have ended, and %d executors died", c.limit, w.finished, w.deaths)
		}
		set(time.UnixMilli(int64(e.at)))
		e.do()
	}
	return w, w.verdict()
}

// verdict is nil if all poison is dead of all its attempts, and nobody else was charged.
func (w *ward) verdict() error {
	for n := int64(0); n < int64(w.tasks); {
		page := must(w.Results(w.t.Context(), "b", n))(w.t)
		for _, r := range page {
			if w.deadly(int(r.Index)) || r.Attempt != 1 {
				return fmt.Errorf("task %d is done at attempt %d", r.Index, r.Attempt)
			}
		}
		if n += int64(len(page)); len(page) == 0 {
			break
		}
	}
	for _, d := range must(w.DeadTasks(w.t.Context(), "b", 0))(w.t) {
		if !w.deadly(int(d.Index)) || d.Attempt != w.attempts || d.Deaths != 2+w.attempts {
			return fmt.Errorf("task %d died at attempt %d, of %d deaths", d.Index, d.Attempt, d.Deaths)
		}
	}
	return nil
}

// strike ends a share of the executors: those that are next to each other.
func (w *ward) strike(o outage) {
	n, first := int(math.Ceil(o.share*float64(len(w.beds)))), w.rng.IntN(len(w.beds))
	for i := range n {
		if b := w.beds[(first+i)%len(w.beds)]; b.seat != "" {
			b.die(w.between(o.lasts, o.lasts+3000))
		}
	}
}

func (b *bed) join() {
	b.w.names++
	*b = bed{w: b.w, seat: strconv.FormatInt(int64(b.w.names), 16)}
	must(b.w.Hello(b.w.t.Context(), b.seat, queue.Executor, b.w.parallel))(b.w.t)
	b.turn()
}

// die ends an executor. It is known later.
func (b *bed) die(back float64) {
	w, seat := b.w, b.seat
	b.seat = ""
	known := w.session * w.between(1, 4.0/3)
	if w.waits {
		back = max(back, known)
	}
	w.after(known, func() {
		if w.gone = append(w.gone, seat); len(w.gone) == 1 {
			w.after(w.session/3+2000, w.look)
		}
	})
	w.after(back, b.join)
}

// look is what a keeper does.
func (w *ward) look() {
	w.evict(Died, w.gone...)
	w.gone = nil
	w.count()
	for _, b := range w.beds { // they are woken
		if b.seat != "" && b.running == 0 {
			b.pause = 0
			b.turn()
		}
	}
}

// count counts the tasks that have ended.
func (w *ward) count() {
	b := must(w.Batches(w.t.Context(), 0, 1))(w.t)[0]
	w.finished = int(b.Done + b.Dead)
}

// turn reports and takes.
func (b *bed) turn() {
	w := b.w
	open := len(b.waiting) + b.running
	idle, room := max(0, w.parallel-open), max(0, w.lookahead*float64(w.parallel)-float64(open)*w.lasts(0))
	if open > 0 && w.ms() < b.alone {
		idle, room = 0, 0
	}
	b.seq++
	out := must(w.Turn(w.t.Context(), b.seat, b.seq, Turn{
		Results: b.results, Idle: idle, Room: millis(room), Backoff: time.Second, MaxBytes: manyBytes,
	}))(w.t)
	if b.results = nil; out.Alone {
		b.alone = w.ms() + 250
	}
	for _, g := range out.Granted {
		for i := range g.Payloads {
			b.waiting = append(b.waiting, Held{Task: Task{g.Batch, g.Index + int64(i)}, Attempt: g.Attempt})
		}
	}
	for b.running < w.parallel && len(b.waiting) > 0 {
		b.start()
	}
	if b.pause = min(2*b.pause, 5000); len(out.Granted) > 0 || b.pause == 0 {
		b.pause = 250
	}
	if seat, seq := b.seat, b.seq; b.running < w.parallel {
		w.after(w.between(1, 1.2)*b.pause, func() {
			if b.seat == seat && b.seq == seq {
				b.turn()
			}
		})
	}
}

func millis(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// start begins with a task.
func (b *bed) start() {
	w, seat, h := b.w, b.seat, b.waiting[0]
	b.waiting, b.running = b.waiting[1:], b.running+1
	took := w.lasts(int(h.Index)) * w.between(0.9, 1.1)
	w.after(took, func() {
		if b.seat != seat {
			return
		}
		b.running--
		if w.deadly(int(h.Index)) {
			w.deaths++
			b.die(w.between(500, 1500))
			return
		}
		b.results = append(b.results, Result{h.Task, h.Attempt, Done, millis(took), nil})
		w.finished++
		b.turn()
	})
}
