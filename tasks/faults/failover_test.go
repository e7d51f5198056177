package faults

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestQueueFailOverSoak: a Redis with a replica loses what it had acknowledged, each time the replica becomes the
// primary without the last writes. What is lost of a batch is named; submitted again, it is executed; and watchers get
// each task of each batch exactly once.
func TestQueueFailOverSoak(t *testing.T) {
	t.Parallel()
	w := startWorld(t, zkserver.Options{}, sessions(sessionTimeout))
	watched, err := redisserver.StartWatched(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { watched.Stop() })
	w.watched = watched
	w.queue.Redis = "redis+sentinel://" + strings.Join(watched.SentinelAddrs(), ",") + "/" + watched.Name
	w.create()
	w.seed = rig.Seed(t)
	tasks, failOvers := 5_000, 2
	if rig.Long() {
		tasks, failOvers = 200_000, 12
	}
	batches := batchesOf(w.seed, tasks, 1_000)
	for i := range 3 {
		w.add(fmt.Sprint("e-", i), false, w.executor("--parallel", "2", "--lines=json", "--", self, "act-json", w.dir)...)
	}
	w.add("e-go", false, self, "act-go", w.dir, "1")
	w.add("w", false, muster(), "watcher", w.queue.Name, "--", self, "act-ledger", w.dir, fmt.Sprint(w.seed))

	random := rand.New(rand.NewPCG(w.seed, 1))
	submitted := make(chan error, 1)
	go func() { submitted <- w.submitEach(batches, time.Duration(failOvers)*12*time.Second) }()
	for range failOvers {
		w.failOver(random)
	}
	if err := <-submitted; err != nil {
		t.Fatal(err)
	}
	w.resubmitLost(batches)
	w.everyBatchOnce(batches)
}

// submitEach submits all batches over a while, each until it is acknowledged.
func (w *world) submitEach(batches []batch, over time.Duration) error {
	for i, b := range batches {
		path, err := w.writeTasks(b)
		if err != nil {
			return err
		}
		for late := time.Now().Add(patience); ; zkconn.Pause(w.t.Context(), rig.PollEvery) {
			if _, err = w.muster("submit", w.queue.Name, path, "--id", b.id()); err == nil {
				break
			}
			if time.Now().After(late) || w.t.Context().Err() != nil {
				return err
			}
		}
		if i%10 == 0 {
			zkconn.Pause(w.t.Context(), over*10/time.Duration(len(batches)))
		}
	}
	return nil
}

// failOver makes the replica the primary, in most cases without what the primary has acknowledged in the last moment.
func (w *world) failOver(random *rand.Rand) {
	w.t.Helper()
	at, both := 0, w.watched.Servers
	rig.Until(w.t, patience, "the replica to follow", func() string {
		at = w.primary() // each time: the sentinels agree only after a while, and may change it again
		c := redis.NewClient(&redis.Options{Addr: both[at].Addr(), MaxRetries: -1, Protocol: 2})
		defer c.Close()
		info := c.Info(w.t.Context(), "replication").Val()
		if !strings.Contains(info, "role:master") || !strings.Contains(info, "state=online") {
			return info
		}
		return ""
	})
	steps := []func() error{both[1-at].Pause, w.cutReplica, nil, both[at].Kill, both[1-at].Resume}
	how := "is killed"
	if random.IntN(3) == 0 { // it goes on as a second primary until the sentinels see it again
		steps[3], how = both[at].Pause, "is frozen"
	}
	for _, step := range steps {
		if step == nil {
			zkconn.Pause(w.t.Context(), rig.Between(random, 0, 2*time.Second)) // this is lost
		} else if err := step(); err != nil {
			w.t.Fatal(err)
		}
	}
	rig.Until(w.t, patience, "another primary", func() string {
		if w.primary() == at {
			return "it is still the same"
		}
		return ""
	})
	w.t.Logf("the primary %s; the other one is it now", how)
	err := both[at].Resume()
	if how == "is killed" {
		err = both[at].Restart(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// cutReplica closes the connection of the replica, which would still read what is on the way when it is resumed.
func (w *world) cutReplica() error {
	c, _ := w.books()
	return c.ClientKillByFilter(w.t.Context(), "TYPE", "replica").Err()
}

// primary is which of both servers the sentinels name.
func (w *world) primary() int {
	w.t.Helper()
	for {
		for _, addr := range w.watched.SentinelAddrs() {
			c := redis.NewSentinelClient(&redis.Options{Addr: addr, MaxRetries: -1, Protocol: 2})
			names, err := c.GetMasterAddrByName(w.t.Context(), w.watched.Name).Result()
			c.Close()
			if err == nil && len(names) == 2 {
				return slices.IndexFunc(w.watched.Servers, func(s *redisserver.Server) bool {
					return s.Addr() == net.JoinHostPort(names[0], names[1])
				})
			}
		}
		if w.t.Context().Err() != nil {
			w.t.Fatal("no sentinel answers")
		}
		zkconn.Pause(w.t.Context(), rig.PollEvery)
	}
}

// resubmitLost waits until all batches have ended, and submits those again that are named as lost.
func (w *world) resubmitLost(batches []batch) {
	w.t.Helper()
	named := map[string]bool{}
	rig.Until(w.t, patience, "all batches to end", func() string {
		s, err := w.state()
		if err != nil {
			return err.Error()
		}
		for _, id := range s.Lost {
			i := slices.IndexFunc(batches, func(b batch) bool { return b.id() == id })
			if i < 0 {
				w.t.Fatalf("%s is named as lost, and was never submitted", id)
			}
			path, err := w.writeTasks(batches[i])
			if err != nil {
				w.t.Fatal(err)
			}
			named[id] = true
			if _, err := w.muster("submit", w.queue.Name, path, "--id", id); err != nil {
				return err.Error()
			}
		}
		if len(s.Batches) > 0 {
			return fmt.Sprintf("%d are unfinished, the first is %+v: %+v", len(s.Batches), s.Batches[0], s)
		}
		return ""
	})
	w.t.Logf("%d of %d batches were lost, named, and submitted again", len(named), len(batches))
}

// everyBatchOnce checks the ledger, and that nothing is left.
func (w *world) everyBatchOnce(batches []batch) {
	w.t.Helper()
	found, twice, problems, err := readLedger(w.dir + "/ledger")
	if err != nil {
		w.t.Fatal(err)
	}
	ended, err := w.ended()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range batches {
		if _, ok := found[b.id()]; !ok || ended[b.id()].How != znode.EndCollected {
			problems = append(problems, fmt.Sprintf("%s: watched %t, ended as %+v", b.id(), ok, ended[b.id()]))
		}
	}
	for _, p := range problems[:min(len(problems), 20)] {
		w.t.Error(p)
	}
	w.t.Logf("%d batches were watched, %d of them twice; %d problems", len(found), twice, len(problems))
	if out, err := w.muster("queue", "drop", "--yes", w.queue.Name); err != nil {
		w.t.Error(err, out)
	}
	rig.Until(w.t, patience, "nothing to be left in Redis", func() string {
		left, err := w.keysLeft()
		if left = slices.DeleteFunc(left, func(k string) bool { return strings.HasSuffix(k, ":hands") }); len(left) > 0 ||
			err != nil {
			return fmt.Sprintf("%q, %v", left, err)
		}
		return ""
	})
	_ = os.Remove(w.dir + "/ledger")
}
