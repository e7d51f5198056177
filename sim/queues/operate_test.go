package queues_test

import (
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"muster/dev/zkmodel"
	"muster/resource/queue"
	"muster/sim"
	"muster/tasks"
	"muster/tasks/store"
	"muster/tasks/store/storemodel"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// crew is two executors and a watcher.
func (k *shop) crew() {
	k.w.Service("e1", 1, k.executor)
	k.w.Service("e2", 1, k.executor)
	k.w.Service("w1", 1, k.watcher)
}

// operate gives a body a session and an operator.
func (k *shop) operate(body func(p *sim.Process, s *zkconn.Session, o *tasks.Operator) error) func(*sim.Process) error {
	return sim.InSession(sessionTimeout, func(p *sim.Process, s *zkconn.Session) error {
		o, err := k.operator(p, s)
		if err != nil {
			wait(p.Context(), time.Second) // until the queue is there
			return again(err)
		}
		defer o.Close()
		return again(body(p, s, o))
	})
}

// awaitManifest waits until a batch is there, or has ended.
func awaitManifest(p *sim.Process, o *tasks.Operator, id string) (there bool, err error) {
	for p.Context().Err() == nil {
		_, err := o.Manifest(p.Context(), id)
		if !errors.Is(err, tasks.ErrNoBatch) {
			return err == nil, err
		}
		if end, err := o.Ended(p.Context(), id); err != nil || end != nil {
			return false, err
		}
		wait(p.Context(), 300*time.Millisecond)
	}
	return false, p.Context().Err()
}

// cancelWorld: somebody cancels a batch at any time.
func cancelWorld(w *sim.World) {
	k := newShop(w)
	k.crew()
	w.Process("s1", 1, k.operate(func(p *sim.Process, s *zkconn.Session, o *tasks.Operator) error {
		_, err := k.submit(p, s, tasks.SubmitConfig{ID: "b1"}, k.payloads("b1", 3))
		if err != nil && !errors.Is(err, tasks.ErrCancelled) {
			return err
		}
		_, err = k.awaitEnd(p, o, "b1")
		return err
	}))
	w.Process("c1", 1, k.operate(func(p *sim.Process, _ *zkconn.Session, o *tasks.Operator) error {
		there, err := awaitManifest(p, o, "b1")
		if err != nil || !there {
			return err
		}
		if err = o.Cancel(p.Context(), "b1"); errors.Is(err, tasks.ErrNoBatch) {
			return nil
		}
		if err == nil {
			_, err = o.Manifest(p.Context(), "b1")
			if err == nil {
				return errors.New("a cancelled batch is still there")
			}
		}
		if errors.Is(err, tasks.ErrNoBatch) {
			err = nil
		}
		return err
	}))
}

// pauseWorld: somebody gives a batch a weight, pauses it for a while, and resumes it.
func pauseWorld(w *sim.World) {
	k := newShop(w)
	k.crew()
	w.Process("s1", 1, k.submitAndWait("b1", 3))
	w.Process("o1", 0, k.operate(func(p *sim.Process, _ *zkconn.Session, o *tasks.Operator) error {
		for p.Context().Err() == nil {
			there, err := awaitManifest(p, o, "b1")
			if err != nil || !there {
				return err
			}
			if err = o.SetWeight(p.Context(), "b1", 7); err == nil {
				p.Saw(func() { k.book.weights["b1"] = 7 })
				_, err = o.Pause(p.Context(), "b1")
			}
			if err == nil {
				p.Saw(func() { k.book.paused["b1"] = true })
				wait(p.Context(), 3*time.Second)
				p.Saw(func() { k.book.paused["b1"] = false })
				_, err = o.Resume(p.Context(), "b1")
			}
			switch {
			case err == nil, errors.Is(err, tasks.ErrNoBatch):
				return nil
			case !errors.Is(err, tasks.ErrSubmitting) && !errors.Is(err, tasks.ErrLost):
				return err
			}
			wait(p.Context(), 300*time.Millisecond)
		}
		return p.Context().Err()
	}))
}

// retryWorld: two tasks of a batch fail until somebody retries them, whether the batch has ended or not.
func retryWorld(results queue.Results) func(*sim.World) {
	return func(w *sim.World) {
		k := newShop(w)
		k.crew()
		retried := ""
		w.Process("s1", 0, k.operate(func(p *sim.Process, s *zkconn.Session, o *tasks.Operator) error {
			c := tasks.SubmitConfig{ID: "b1", Results: results}
			if _, err := k.submit(p, s, c, k.payloads("b1", 3, 0, 2)); err != nil {
				return err
			}
			_, err := k.awaitEnd(p, o, "b1")
			return err
		}))
		w.Process("r1", 0, k.operate(func(p *sim.Process, _ *zkconn.Session, o *tasks.Operator) error {
			if retried != "" {
				return k.awaitRetried(p, o, retried)
			}
			if err := k.awaitDead(p, o, "b1"); err != nil {
				return err
			}
			p.Saw(func() { k.book.retried = true })
			r, err := o.Retry(p.Context(), "b1")
			switch {
			case errors.Is(err, tasks.ErrOtherBatch): // of an earlier life: it has ended before
				r.Batch = tasks.RetryID("b1")
			case errors.Is(err, tasks.ErrNoDead): // likewise: they run
				r.Batch = "b1"
			case errors.Is(err, store.ErrClaimed), errors.Is(err, store.ErrNoBatch), errors.Is(err, store.ErrLife),
				errors.Is(err, tasks.ErrNoBatch), errors.Is(err, tasks.ErrSubmitting):
				wait(p.Context(), time.Second) // it ends now, or is opened: once more
				return again(tasks.ErrRemoved)
			case err != nil:
				return err
			}
			p.Saw(func() { retried = r.Batch })
			return k.awaitRetried(p, o, r.Batch)
		}))
	}
}

// endRetryWorld: a dead task is retried while its batch is being ended: whoever ends it has just asked for the time.
func endRetryWorld(w *sim.World) {
	k := newShop(w)
	k.crew()
	ends, once := make(chan struct{}), sync.Once{}
	w.OnTxn(func(t *zkmodel.Txn) error {
		if len(t.Ops) == 1 && t.Ops[0].Type == zkmodel.OpSetData && path.Base(t.Ops[0].Path) == "ended" {
			once.Do(func() { close(ends) })
		}
		return nil
	})
	w.Process("s1", 0, k.operate(func(p *sim.Process, s *zkconn.Session, o *tasks.Operator) error {
		c := tasks.SubmitConfig{ID: "b1", Results: queue.ResultsDiscard}
		if _, err := k.submit(p, s, c, k.payloads("b1", 1, 0)); err != nil {
			return err
		}
		_, err := k.awaitEnd(p, o, "b1")
		return err
	}))
	w.Process("r1", 0, k.operate(func(p *sim.Process, _ *zkconn.Session, o *tasks.Operator) error {
		select {
		case <-ends:
			_, _ = o.Retry(p.Context(), "b1") // it may have ended
		case <-p.Context().Done():
		}
		return p.Context().Err()
	}))
}

// awaitDead waits until a batch has two dead tasks.
func (k *shop) awaitDead(p *sim.Process, o *tasks.Operator, id string) error {
	for p.Context().Err() == nil {
		st, err := o.Store(p.Context())
		if err != nil {
			return err
		}
		dead, err := st.DeadTasks(p.Context(), id, 0)
		if err == nil && len(dead) == 2 || k.book.retried {
			return nil
		}
		wait(p.Context(), 300*time.Millisecond)
	}
	return p.Context().Err()
}

// awaitRetried waits for the end of a batch that got the dead tasks of b1. None of them is dead again.
func (k *shop) awaitRetried(p *sim.Process, o *tasks.Operator, id string) error {
	end, err := k.awaitEnd(p, o, id)
	if err == nil && end.Dead != 0 {
		err = fmt.Errorf("%s has ended as %s with %d dead tasks, which were retried", id, end.How, end.Dead)
	}
	return err
}

// fullWorld: three submitters of two batches, of which the queue has room for one.
func fullWorld(w *sim.World) {
	k := newShop(w, func(q *queue.Queue) { q.MaxTask, q.MaxBytes = 1<<20, 1<<20 })
	k.large = 300 << 10
	k.crew()
	for i, id := range []string{"b1", "b2", "b2"} {
		w.Process(fmt.Sprint("s", i), 1, k.submitAndWait(id, 2))
	}
}

// waitWorld: a submitter waits for the results, reads them, and ends the batch.
func waitWorld(w *sim.World) {
	k := newShop(w)
	k.crew()
	w.Process("s1", 1, k.operate(func(p *sim.Process, s *zkconn.Session, o *tasks.Operator) error {
		out, err := k.submit(p, s, tasks.SubmitConfig{ID: "b1", Results: queue.ResultsSubmitter}, k.payloads("b1", 3, 1))
		if err != nil {
			return err
		}
		if out.Ended != nil {
			return attended(out.Ended)
		}
		b, end, err := o.Await(p.Context(), "b1", out.Manifest, nil)
		switch {
		case err != nil:
			return err
		case end != nil:
			return attended(end)
		}
		if err := k.readBatch(p, o, b, out.Manifest); err != nil {
			return err
		}
		p.Saw(func() { k.book.batches[out.Manifest.Life].collected[p.String()] = true })
		if err := o.Collected(p.Context(), "b1", out.Manifest); err != nil {
			return err
		}
		end, err = k.awaitEnd(p, o, "b1")
		if err == nil {
			err = attended(end)
		}
		return err
	}))
}

// attended demands that a batch has ended because its results were read.
func attended(end *znode.BatchEnd) error {
	if end.How != znode.EndCollected {
		return fmt.Errorf("it has ended as %s, and its submitter waits", end.How)
	}
	return nil
}

// readBatch reads the results as a submitter does.
func (k *shop) readBatch(p *sim.Process, o *tasks.Operator, b store.Batch, m tasks.Manifest) error {
	st, err := o.Store(p.Context())
	if err != nil {
		return err
	}
	records := tasks.Records(p.Context(), st, b.ID, o.Away(p.Context()))
	return checkRecords(b.ID, records, m.Tasks, b.Done, b.Dead)
}

// leaveDead leaves a dead task of a batch that was removed.
func (k *shop) leaveDead(id string) (err error) {
	k.redis.Look(k.book.record().Generation, func(q *storemodel.Queue) {
		for _, call := range [][]string{
			{"hello", "1", k.queue.Path(), "e", "1"},
			{"begin", id, k.queue.Path(), "life", "1", "1", "watcher", "33", "1000"},
			{"append", id, "life", "0", "x"},
			{"open", id, "life", "1"},
			{"turn", "1", "1", "1", "0", "0", "1000"},
			{"turn", "1", "2", "0", "0", "0", "1000", id + ":0", "1:d:1", "no"},
			{"remove", id, "life"},
			{"evict", "0", "1"},
		} {
			if r, refused := q.Call(call[0], call[1:]).(storemodel.Refused); refused {
				err = fmt.Errorf("%s: %s", call[0], r)
			}
		}
	})
	return err
}
