// Package queues_test has worlds of a queue: submitters, executors and watchers. It has no code of its own.
package queues_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
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

// worlds are all worlds of this package.
func worlds() []sim.Named {
	faults := sim.Faults{Crashes: 2, Cuts: 2, Expiries: 1, LostReplies: 2, Pauses: 1, Outages: 1}
	o := sim.Options{Seeds: 10, Steps: 700, Faults: faults, Own: own, Kind: kind, Path: batches, End: 72 * time.Hour}
	lossy := o
	lossy.Faults.Outages = 3
	return []sim.Named{
		{Name: "work", Options: o, World: workWorld},
		{Name: "poison", Options: o, World: poisonWorld},
		{Name: "cancel", Options: o, World: cancelWorld},
		{Name: "pause", Options: o, World: pauseWorld},
		{Name: "retry-watcher", Options: o, World: retryWorld(queue.ResultsWatcher)},
		{Name: "retry-discard", Options: o, World: retryWorld(queue.ResultsDiscard)},
		{Name: "retry-keep", Options: o, World: retryWorld(queue.KeepResults + "15s")},
		{Name: "retry-end", Options: o, World: endRetryWorld},
		{Name: "full", Options: o, World: fullWorld},
		{Name: "wait", Options: o, World: waitWorld},
		{Name: "dead", Options: o, World: deadWorld},
		{Name: "loss", Options: lossy, World: lossWorld},
		{Name: "declare", Options: o, World: declareWorld},
		{Name: "unattended", Options: o, World: unattendedWorld},
		{Name: "clash", Options: o, World: clashWorld},
		{Name: "gone", Options: o, World: goneWorld},
		{Name: "anew", Options: o, World: anewWorld},
	}
}

func TestWorlds(t *testing.T) { sim.Test(t, worlds()...) }

func TestMutants(t *testing.T) { sim.Mutants(t, "testdata/guards.txt", worlds()...) }

func BenchmarkWorlds(b *testing.B) { sim.Bench(b, worlds()...) }

// kinds are the transactions of package tasks that have guards, by what is in their operations: the first that fits.
var kinds = []struct {
	name string
	ops  *regexp.Regexp
}{
	{"join", regexp.MustCompile(`check .*/gate, .*create /q/\.muster/run/<id>/seat/s-<seq>`)},
	{"submit", regexp.MustCompile(`check .*/gate, .*create /q/\.muster/run/<id>/batch/`)},
	{"end a batch", regexp.MustCompile(`delete /q/\.muster/run/<id>/batch/[^,]*, .*/ended/`)},
	{"take a manifest back", regexp.MustCompile(`^delete /q/\.muster/run/<id>/batch/[^,]*$`)},
	{"write a manifest", regexp.MustCompile(`^set /q/\.muster/run/<id>/batch/[^,]*$`)},
}

// kind names a transaction; those of others, such as apply, keep their operations.
func kind(ops string) string {
	for _, k := range kinds {
		if k.ops.MatchString(ops) {
			return k.name
		}
	}
	return ops
}

// own tells which transactions belong to this package: those of processes of a queue.
func own(kind string) bool {
	for _, k := range kinds {
		if k.name == kind {
			return true
		}
	}
	return false
}

// batches gives all batches one name.
func batches(path string) string { return batchPath.ReplaceAllString(path, "${1}<batch>") }

var batchPath = regexp.MustCompile(`(/run/[^/]*/(?:batch|ended/[^/]*)/)[^/@]+`)

// unattendedWorld: who submits a batch may crash for good, or stop in the middle for long. Nobody serves the queue in
// that hour. Then a watcher comes, which ends the batch if nobody goes on with it, and somebody goes on with it.
func unattendedWorld(w *sim.World) {
	k := newShop(w)
	w.Process("s1", -1, func(p *sim.Process) error { return k.submitLate(p, 0) })
	w.Process("s2", 0, func(p *sim.Process) error { return k.submitLate(p, time.Hour) })
	w.Service("w1", 1, func(p *sim.Process) error {
		wait(p.Context(), time.Hour-10*time.Second)
		if p.Context().Err() != nil {
			return p.Context().Err()
		}
		return k.watcher(p)
	})
	w.AtEnd(func() error {
		for _, one := range k.book.batches {
			if !one.submitted && one.ended == 0 {
				return fmt.Errorf("%s is there, and nobody was told", one.id)
			}
		}
		return nil
	})
}

// submitLate submits b1 after a while.
func (k *shop) submitLate(p *sim.Process, after time.Duration) error {
	if wait(p.Context(), after); p.Context().Err() != nil {
		return p.Context().Err()
	}
	s, err := p.Dial(sessionTimeout)
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = k.submit(p, s, tasks.SubmitConfig{ID: "b1"}, k.payloads("b1", 2))
	return err
}

// workWorld: two executors and a watcher, and a batch that two submitters submit with one id.
func workWorld(w *sim.World) {
	k := newShop(w)
	k.crew()
	for _, submitter := range []string{"s1", "s2"} {
		w.Process(submitter, 1, k.submitAndWait("b1", 3, 1))
	}
	w.AtEnd(func() error {
		if all := k.book.lives("b1"); len(all) != 1 || len(all[0].collected) == 0 {
			return fmt.Errorf("b1 had %d lives, or nobody has collected it", len(all))
		}
		return nil
	})
}

// lossWorld: the Redis forgets what came last when it is started again. Who submits looks again and again.
func lossWorld(w *sim.World) {
	k := newShop(w)
	k.loses = true
	k.crew()
	for i, id := range []string{"b1", "b2"} {
		w.Process(fmt.Sprint("s", i), 1, k.operate(func(p *sim.Process, s *zkconn.Session, o *tasks.Operator) error {
			for p.Context().Err() == nil {
				out, err := k.submit(p, s, tasks.SubmitConfig{ID: id}, k.payloads(id, 3, 1))
				switch {
				case err != nil:
					return err
				case out.Ended == nil:
					wait(p.Context(), 20*time.Second)
					continue
				}
				if out.Ended.How != znode.EndCollected {
					return fmt.Errorf("%s has ended as %s", id, out.Ended.How)
				}
				return nil
			}
			return p.Context().Err()
		}))
	}
	w.AtEnd(func() error {
		for _, id := range []string{"b1", "b2"} {
			if all := k.book.lives(id); len(all) != 1 || len(all[0].collected) == 0 {
				return fmt.Errorf("%s had %d lives, or nobody has collected it", id, len(all))
			}
		}
		return nil
	})
}

// submitAndWait submits a batch of n tasks, and waits until it was collected.
func (k *shop) submitAndWait(id string, n int, bad ...int) func(*sim.Process) error {
	return sim.InSession(sessionTimeout, func(p *sim.Process, s *zkconn.Session) error {
		if _, err := k.submit(p, s, tasks.SubmitConfig{ID: id}, k.payloads(id, n, bad...)); err != nil {
			return err
		}
		o, err := k.operator(p, s)
		if err != nil {
			return err
		}
		defer o.Close()
		end, err := k.awaitEnd(p, o, id)
		if err == nil && (end.How != znode.EndCollected || end.Done != int64(n-len(bad)) || end.Dead != int64(len(bad))) {
			err = fmt.Errorf("%s has ended as %s with %d done and %d dead", id, end.How, end.Done, end.Dead)
		}
		return err
	})
}

// clashWorld: three submit batches of one name, of which one has other tasks. The Redis has dead tasks of an earlier
// batch of the name until somebody drops them. Nobody executes anything.
func clashWorld(w *sim.World) {
	k := newShop(w)
	w.Setup(func(context.Context, *zkconn.Session) error { return k.leaveDead("b1") })
	there := map[string]int{} // how many were told so
	for i, content := range []string{"b1", "b1", "other"} {
		k.submitUnlessDead(fmt.Sprint("s", i), content, func() { there[content]++ })
	}
	w.Process("o1", 0, k.operate(func(p *sim.Process, _ *zkconn.Session, o *tasks.Operator) error {
		_, err := o.DropDead(p.Context(), "b1")
		return err
	}))
	w.AtEnd(func() error {
		if len(there) != 1 || len(k.book.current) != 1 {
			return fmt.Errorf("%v were submitted, and there are %d batches", there, len(k.book.current))
		}
		return nil
	})
}

// deadWorld: two submit a batch. When its manifest is made, the Redis gets dead tasks of an earlier batch of the name,
// of which ZooKeeper knows nothing. They are dropped again.
func deadWorld(w *sim.World) {
	k := newShop(w)
	for _, name := range []string{"s1", "s2"} {
		k.submitUnlessDead(name, "b1", func() {})
	}
	left := false
	w.OnTxn(func(*zkmodel.Txn) (err error) {
		if !left && k.book.current["b1"] != "" {
			left, err = true, k.leaveDead("b1")
		}
		return err
	})
	w.Process("o1", 0, k.operate(func(p *sim.Process, _ *zkconn.Session, o *tasks.Operator) error {
		for i, done := 0, false; !done && p.Context().Err() == nil; i++ {
			if p.Saw(func() { done = left }); !done && i > 30 {
				wait(p.Context(), time.Second)
			}
			if _, err := o.DropDead(p.Context(), "b1"); err != nil {
				return err
			}
		}
		return p.Context().Err()
	}))
	w.AtEnd(func() error {
		if len(k.book.current) != 1 {
			return fmt.Errorf("there are %d batches", len(k.book.current))
		}
		return nil
	})
}

// submitUnlessDead adds a process that submits b1 again and again while the Redis has dead tasks of that name, until it
// is there, or another one is.
func (k *shop) submitUnlessDead(name, content string, there func()) {
	k.w.Process(name, 1, sim.InSession(sessionTimeout, func(p *sim.Process, s *zkconn.Session) error {
		for i := 0; p.Context().Err() == nil; i++ {
			_, err := k.submit(p, s, tasks.SubmitConfig{ID: "b1"}, k.payloads(content, 2))
			switch {
			case err == nil:
				p.Saw(there)
				return nil
			case errors.Is(err, tasks.ErrOtherBatch):
				return nil
			case !errors.Is(err, store.ErrDead):
				return err
			}
			if i > 10 {
				wait(p.Context(), time.Second)
			}
		}
		return p.Context().Err()
	}))
}

// errKilled is how an executor ends that a task has killed: without a word.
var errKilled = fmt.Errorf("a task has killed this executor: %w", zkconn.ErrSessionLost)

// poisonWorld: tasks kill each executor that works on them.
func poisonWorld(w *sim.World) {
	k := newShop(w, func(q *queue.Queue) { q.Attempts = 2 })
	for _, name := range []string{"e1", "e2", "e3"} {
		w.Service(name, 1, k.executor)
	}
	w.Service("w1", 1, k.watcher)
	w.Process("s1", 1, k.operate(func(p *sim.Process, s *zkconn.Session, o *tasks.Operator) error {
		source := tasks.Payloads([]byte("b1:0:"), []byte("kill b1:1:"), []byte("b1:2:"), []byte("kill b1:3:"))
		if _, err := k.submit(p, s, tasks.SubmitConfig{ID: "b1"}, source); err != nil {
			return err
		}
		end, err := k.awaitEnd(p, o, "b1")
		if err == nil && (end.How != znode.EndCollected || end.Dead < 2) {
			err = fmt.Errorf("it has ended as %s, with %d dead tasks", end.How, end.Dead)
		}
		return err
	}))
}

// kills reports whether a task kills its executor.
func kills(t *tasks.Task) bool { return strings.HasPrefix(string(t.Payload), "kill") }

// noteHands notes what each seat has in hand, by its attempt; and checks an eviction: a task is charged if it was alone
// in the hand, and its executors had died twice before.
func (b *book) noteHands(q *storemodel.Queue, script string, args []string) error {
	if script == "evict" && !b.k.loses { // else the hand may have been an older one
		for _, seat := range args[1:] {
			for f, attempt := range b.hands[seat] {
				id, index, _ := strings.Cut(f, ":")
				batch := q.Batches[id]
				if batch == nil || index == "watch" {
					continue
				}
				task := batch.Life + ":" + index
				if attemptOf(q, id, index) > attempt && (len(b.hands[seat]) > 1 || args[0] == "0" || b.deaths[task] < 2) {
					return fmt.Errorf("%s is charged after %d deaths, with %v in hand", f, b.deaths[task], b.hands[seat])
				}
				if args[0] != "0" {
					b.deaths[task]++
				}
			}
		}
	}
	b.hands = map[string]map[string]float64{}
	for name, s := range q.Seats {
		b.hands[name] = map[string]float64{}
		for f, t := range s.Hand {
			b.hands[name][f] = t.Attempt
		}
	}
	return nil
}

// attemptOf is the attempt that a returned task will have. One that is dead will have none.
func attemptOf(q *storemodel.Queue, id, index string) float64 {
	for _, d := range q.Dead[id] {
		if d.Index == index {
			return d.Attempt + 1
		}
	}
	for entry := range strings.SplitSeq(q.Keys()["b:"+id+":again"], " | ") {
		if part := strings.SplitN(entry, ":", 3); part[0] == index {
			n, _ := strconv.ParseFloat(part[1], 64)
			return n
		}
	}
	return 0
}
