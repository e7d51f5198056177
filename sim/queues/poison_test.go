package queues_test

import (
	"fmt"
	"strconv"
	"strings"

	"muster/resource/queue"
	"muster/sim"
	"muster/tasks"
	"muster/tasks/store/storemodel"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
