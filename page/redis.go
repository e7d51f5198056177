package page

import (
	"context"
	"maps"
	"time"

	"muster/resource"
	"muster/view"
)

// Lookout reads what Redis holds of one queue, and changes nothing.
type Lookout interface {
	// Progress says how far the batches of d are. It may be called again and again.
	Progress(ctx context.Context, d *view.Queue) (Progress, error)
	Close()
}

// Progress is what Redis knows of a queue.
type Progress struct {
	Batches []BatchProgress // those that were asked for
	Hands   []Hand
	Dead    []DeadTask
}

// redisWatch asks Redis about a queue while somebody looks at it: nothing tells when it changes.
type redisWatch struct {
	open  func(ctx context.Context, rec *resource.Record) (Lookout, error)
	rec   *resource.Record
	queue feed[*view.Queue] // as ZooKeeper has it
	shown feed[*asked]
}

// asked is what Redis answered last.
type asked struct {
	Progress
	problem string // why it did not
}

// run asks until ctx ends.
func (w *redisWatch) run(ctx context.Context) {
	var l Lookout
	defer func() {
		if l != nil {
			l.Close()
		}
	}()
	ends := map[string][]endedAt{}
	for {
		d, ok := await(ctx, &w.queue)
		if !ok {
			return
		}
		answer := &asked{}
		if err := w.ask(ctx, &l, d, answer); err != nil {
			answer = &asked{problem: err.Error()} // not a part of it
		}
		addRates(ends, answer.Batches, time.Now())
		w.shown.put(answer)
		if !pause(ctx, redisEvery) {
			return
		}
	}
}

// ask asks once, on a new connection if there is none.
func (w *redisWatch) ask(ctx context.Context, l *Lookout, d *view.Queue, answer *asked) (err error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if *l == nil {
		one, err := w.open(ctx, w.rec)
		if err != nil {
			return err
		}
		*l = one
	}
	answer.Progress, err = (*l).Progress(ctx, d)
	return err
}

// endedAt is how many tasks of a batch had ended at a time.
type endedAt struct {
	at    time.Time
	ended int64
}

// addRates notes how many tasks have ended, and adds how many do in a second.
func addRates(ends map[string][]endedAt, batches []BatchProgress, now time.Time) {
	there := map[string]bool{}
	for i := range batches {
		b := &batches[i]
		if b.BatchCounts == nil {
			continue
		}
		there[b.ID] = true
		all := append(ends[b.ID], endedAt{now, b.Done + b.Dead})
		for len(all) > 2 && now.Sub(all[1].at) >= rateOver {
			all = all[1:]
		}
		ends[b.ID] = all
		first, last := all[0], all[len(all)-1]
		if long := last.at.Sub(first.at).Seconds(); long > 0 && last.ended > first.ended {
			b.PerSecond = float64(last.ended-first.ended) / long
		}
	}
	maps.DeleteFunc(ends, func(id string, _ []endedAt) bool { return !there[id] })
}
