package page

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/text"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// The last hour of queues and jobs is kept in memory, as this process has seen it: nobody else notes it. It is divided
// into slots of time.
const (
	slotLength = 30 * time.Second
	slotCount  = int64(time.Hour / slotLength)
	// sampleEvery is how often Redis is asked about every queue, also while nobody looks.
	sampleEvery = 10 * time.Second
	// MaxSampled is how many queues Redis is asked about: the first ones, by path.
	MaxSampled = 100
)

func slotOf(t time.Time) int64 { return t.Unix() / int64(slotLength/time.Second) }

// lastHour is what was seen of all queues and jobs.
type lastHour struct {
	ticked feed[int64] // the slot; put each time that the queues were asked

	mu     sync.Mutex
	seen   [slotCount]int64      // slots in which ZooKeeper answered
	queues map[string]*queueHour // by path
	jobs   map[string]*jobHour   // those that have changed, by path
}

// queueHour is the last hour of a queue.
type queueHour struct {
	last  *QueueSample // nil: Redis did not answer last
	slots [slotCount]queueSlot
}

// queueSlot is a slot in which Redis answered.
type queueSlot struct {
	slot    int64
	ended   int64   // attempts at tasks
	seconds float64 // in which they have; 0: not known
	dead    int64
}

// QueueSample is what Redis says of a queue at a time.
type QueueSample struct {
	At    time.Time // by the clock of Redis
	Ended int64     // attempts at tasks, ever
	Dead  int64     // dead tasks that are kept, also of batches that have ended
}

// note adds what Redis has said; nil: it did not answer.
func (q *queueHour) note(slot int64, now *QueueSample) {
	last := q.last
	if q.last = now; now == nil {
		return
	}
	s := &q.slots[slot%slotCount]
	if s.slot != slot {
		*s = queueSlot{slot: slot}
	}
	s.dead = now.Dead
	if last == nil || now.Ended < last.Ended { // nothing to compare with; or another Redis
		return
	}
	if took := now.At.Sub(last.At).Seconds(); took > 0 {
		s.ended, s.seconds = s.ended+now.Ended-last.Ended, s.seconds+took
	}
}

// jobHour is the last hour of a job.
type jobHour struct {
	ending int       // workers that have completed, and are still live
	slots  []jobSlot // in which something has changed, the oldest first
}

type jobSlot struct {
	slot         int64
	joined, lost int32
}

// note adds by how much the numbers of live and of completed workers have changed. Who has completed is not lost when
// it is gone; either may be seen first.
func (j *jobHour) note(slot int64, live, done int) {
	if n := len(j.slots); n == 0 || j.slots[n-1].slot != slot {
		j.slots = slices.DeleteFunc(j.slots, func(s jobSlot) bool { return s.slot <= slot-slotCount })
		j.slots = append(j.slots, jobSlot{slot: slot})
	}
	for i := len(j.slots) - 1; i >= 0 && done > 0 && j.slots[i].slot >= slot-1; i-- {
		back := min(done, int(j.slots[i].lost))
		j.slots[i].lost -= int32(back)
		done -= back
	}
	j.ending += max(0, done)
	s := &j.slots[len(j.slots)-1]
	if live > 0 {
		s.joined += int32(live)
		return
	}
	ended := min(-live, j.ending)
	j.ending -= ended
	s.lost += int32(-live - ended)
}

// compare notes what has changed in jobs between two boards. Both have their resources by path.
func (h *lastHour) compare(old, now *Board) {
	if old == nil || !old.Connected { // what happened meanwhile, and when, is not known
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	was, none := old.Resources, &resource.Observed{}
	gone := func(than string) {
		for len(was) > 0 && (than == "" || was[0].Path < than) {
			delete(h.jobs, was[0].Path)
			was = was[1:]
		}
	}
	for i := range now.Resources {
		r, before := &now.Resources[i], none
		gone(r.Path)
		if len(was) > 0 && was[0].Path == r.Path {
			before, was = &was[0].Observed, was[1:]
		}
		if view.IsJob(&r.Observed) && view.HasCounts(&r.Observed) {
			h.compareJob(slotOf(now.At), r.Path, before, &r.Observed)
		}
	}
	gone("")
}

func (h *lastHour) compareJob(slot int64, path string, before, now *resource.Observed) {
	live, done := now.Live, 0 // of a new run
	sameRun := now.Record == nil || before.Record != nil && before.Record.Generation == now.Record.Generation
	if sameRun {
		live, done = now.Live-before.Live, job.Done(now)-job.Done(before)
	}
	j := h.jobs[path]
	switch {
	case j != nil && !sameRun:
		j.ending = 0
	case j == nil && (live != 0 || done != 0):
		j = &jobHour{}
		h.jobs[path] = j
	}
	if live != 0 || done != 0 {
		j.note(slot, live, done)
	}
}

// keepHour asks Redis about every queue, again and again, until ctx ends.
func (k *keeper) keepHour(ctx context.Context) {
	samplers := map[string]*sampler{} // by path
	defer func() {
		for _, s := range samplers {
			s.close()
		}
	}()
	for ctx.Err() == nil {
		if b, ok, _ := k.board.now(); ok {
			k.hour.tick(b.Connected, k.sample(ctx, b, samplers), time.Now())
		}
		zkconn.Pause(ctx, sampleEvery)
	}
}

// tick notes what was seen. A queue that is not among samples is forgotten.
func (h *lastHour) tick(connected bool, samples map[string]*QueueSample, now time.Time) {
	slot := slotOf(now)
	h.mu.Lock()
	if connected {
		h.seen[slot%slotCount] = slot
	}
	maps.DeleteFunc(h.queues, func(path string, _ *queueHour) bool { _, there := samples[path]; return !there })
	for path, s := range samples {
		if h.queues[path] == nil {
			h.queues[path] = &queueHour{}
		}
		h.queues[path].note(slot, s)
	}
	h.mu.Unlock()
	h.ticked.put(slot)
}

// sampler asks Redis about one queue.
type sampler struct {
	rec     *resource.Record
	lookout Lookout // nil: there is no connection
}

func (s *sampler) close() {
	if s.lookout != nil {
		s.lookout.Close()
	}
}

// sample asks once; nil if Redis does not answer.
func (s *sampler) sample(
	ctx context.Context, open func(context.Context, *resource.Record) (Lookout, error),
) (now *QueueSample) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if s.lookout == nil {
		lookout, err := open(ctx, s.rec)
		if err != nil {
			return nil
		}
		s.lookout = lookout
	}
	if answer, err := s.lookout.Sample(ctx); err == nil {
		now = &answer
	}
	return now
}

// sample asks Redis about the queues of a board, and returns the answers by path.
func (k *keeper) sample(ctx context.Context, b *Board, samplers map[string]*sampler) map[string]*QueueSample {
	samples := map[string]*QueueSample{}
	if k.cfg.Redis == nil {
		return samples
	}
	var paths []string
	for i := range b.Resources {
		path, o := b.Resources[i].Path, &b.Resources[i].Observed
		if len(paths) == MaxSampled || view.KindOf(o).Name != queue.KindName || !view.HasCounts(o) {
			continue
		}
		paths = append(paths, path)
		if s := samplers[path]; s == nil || s.rec.Generation != o.Record.Generation {
			if s != nil {
				s.close()
			}
			samplers[path] = &sampler{rec: o.Record}
		}
	}
	answers, _ := zkstate.ForEach(ctx, paths, func(ctx context.Context, path string) (*QueueSample, error) {
		return samplers[path].sample(ctx, k.cfg.Redis), nil
	})
	for i, path := range paths {
		samples[path] = answers[i]
	}
	maps.DeleteFunc(samplers, func(path string, s *sampler) bool {
		_, there := samples[path]
		if !there {
			s.close()
		}
		return !there
	})
	return samples
}

// charts are what is drawn of a job or a queue; none before anything is known.
func (h *lastHour) charts(path string, o *resource.Observed, now time.Time) []chart {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch q := h.queues[path]; {
	case view.IsJob(o) && view.HasCounts(o):
		return h.jobCharts(h.jobs[path], slotOf(now))
	case q != nil:
		return q.charts(slotOf(now))
	}
	return nil
}

func (q *queueHour) charts(last int64) []chart {
	rates := newChart("tasks", "Tasks a second", "done", last)
	rates.Rate = true
	dead := newChart("dead-tasks", "Dead tasks", "bad", last)
	for i := range rates.Values {
		slot := last - slotCount + 1 + int64(i)
		s := q.slots[slot%slotCount]
		if s.slot != slot {
			continue
		}
		dead.Values[i] = float64(s.dead)
		if s.seconds > 0 {
			rates.Values[i] = float64(s.ended) / s.seconds
		}
	}
	if q.last != nil {
		dead.Says = text.Thousands(int(q.last.Dead))
		if now := rates.latest(); !math.IsNaN(now) {
			rates.Says = rates.word(now)
		}
	}
	return []chart{rates, dead}
}

// jobCharts draw a job; nil: nothing has changed in it. Then it is 0 wherever ZooKeeper answered.
func (h *lastHour) jobCharts(j *jobHour, last int64) []chart {
	joined := newChart("joined", "Workers that joined", "ok", last)
	lost := newChart("lost", "Workers that left or were lost", "bad", last)
	joined.Per = " in " + slotLength.String()
	lost.Per = joined.Per
	for i := range joined.Values {
		if slot := last - slotCount + 1 + int64(i); h.seen[slot%slotCount] == slot {
			joined.Values[i], lost.Values[i] = 0, 0
		}
	}
	var allJoined, allLost int
	if j != nil {
		for _, s := range j.slots {
			if i := s.slot - (last - slotCount + 1); i >= 0 && i < slotCount {
				joined.Values[i], lost.Values[i] = float64(s.joined), float64(s.lost)
				allJoined, allLost = allJoined+int(s.joined), allLost+int(s.lost)
			}
		}
	}
	if math.IsNaN(joined.latest()) {
		return nil
	}
	joined.Says, lost.Says = text.Thousands(allJoined), text.Thousands(allLost)
	return []chart{joined, lost}
}
