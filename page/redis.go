package page

import (
	"context"
	"time"

	"muster/report"
	"muster/resource"
)

// Lookout reads what Redis holds of one queue, and changes nothing.
type Lookout interface {
	// Progress says how far the batches of d are. It may be called again and again.
	Progress(ctx context.Context, d *report.QueueDetail) (Progress, error)
	Close()
}

// Progress is what Redis knows of a queue.
type Progress struct {
	Rows     []report.BatchRow // the batches that were asked for, with what Redis knows of them
	Watchers map[string]string // identity of the watcher that has a batch, by its id
	Hands    []Hand
	Dead     []DeadTask
}

// redisWatch asks Redis about a queue while somebody looks at it: nothing tells when it changes.
type redisWatch struct {
	open  func(ctx context.Context, rec *resource.Record) (Lookout, error)
	rec   *resource.Record
	queue feed[*report.QueueDetail] // as ZooKeeper has it
	shown feed[*asked]
}

// asked is what Redis answered last.
type asked struct {
	Progress
	problem string             // why it did not
	rates   map[string]float64 // tasks that ended in a second, by batch
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
		answer.rates = rates(ends, answer.Rows, time.Now())
		w.shown.put(answer)
		if !pause(ctx, redisEvery) {
			return
		}
	}
}

// ask asks once, on a new connection if there is none.
func (w *redisWatch) ask(ctx context.Context, l *Lookout, d *report.QueueDetail, answer *asked) (err error) {
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

// rates notes how many tasks have ended, and returns how many do in a second.
func rates(ends map[string][]endedAt, rows []report.BatchRow, now time.Time) map[string]float64 {
	found := map[string]float64{}
	there := map[string]bool{}
	for _, r := range rows {
		if r.BatchCounts == nil {
			continue
		}
		there[r.ID] = true
		all := append(ends[r.ID], endedAt{now, r.Done + r.Dead})
		for len(all) > 2 && now.Sub(all[1].at) >= rateOver {
			all = all[1:]
		}
		ends[r.ID] = all
		first, last := all[0], all[len(all)-1]
		if long := last.at.Sub(first.at).Seconds(); long > 0 && last.ended > first.ended {
			found[r.ID] = float64(last.ended-first.ended) / long
		}
	}
	for id := range ends {
		if !there[id] {
			delete(ends, id)
		}
	}
	return found
}

// addTo adds what Redis knows to a queue.
func (a *asked) addTo(d *Detail) {
	d.Redis, d.rows, d.Hands, d.Dead = a.problem, a.Rows, a.Hands, a.Dead
	for _, r := range a.Rows {
		b := BatchProgress{Batch: r.Batch, PerSecond: a.rates[r.ID], Watcher: a.Watchers[r.ID]}
		if c := r.BatchCounts; c != nil {
			b.Known, b.Waiting, b.InHand, b.Done, b.Dead = true, c.Waiting, c.InHand, c.Done, c.Dead
			b.Because, b.Broken = c.Because, c.Broken
		}
		d.Batches = append(d.Batches, b)
	}
}
