package store

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/dev/redisserver"
	"muster/resource/queue"
	"muster/sim/rig"
)

// server is the Redis of all tests of this package; each test has a queue of its own there.
var server *redisserver.Server

func TestMain(m *testing.M) { os.Exit(rig.Main(m, rig.Redis(&server, redisserver.Options{}))) }

func dial(t testing.TB) *redis.Client {
	t.Helper()
	c := Config{}.client(queue.Redis{Hosts: []string{server.Addr()}})
	t.Cleanup(func() { c.Close() })
	return c
}

// testQueue is a queue whose time stands still until the test moves it.
type testQueue struct {
	*Queue
	t   testing.TB
	c   *redis.Client
	now time.Time
}

// testClock makes scripts have the time that a test sets.
const testClock = `local function now() return tonumber(redis.call('GET', 'clock:' .. KEYS[1])) end`

func newQueue(t testing.TB) *testQueue {
	t.Helper()
	c := dial(t)
	q := New(c, t.Name(), "queue-1")
	q.scripts = loadScripts(testClock)
	tq := &testQueue{Queue: q, t: t, c: c}
	tq.at(time.UnixMilli(1_000_000))
	return tq
}

// at sets the queue's time.
func (q *testQueue) at(now time.Time) {
	q.t.Helper()
	q.now = now
	value := strconv.FormatInt(now.UnixMilli(), 10)
	if err := q.c.Set(context.Background(), "clock:"+q.prefix+"q", value, 0).Err(); err != nil {
		q.t.Fatal(err)
	}
}

func (q *testQueue) pass(d time.Duration) { q.t.Helper(); q.at(q.now.Add(d)) }

// keys are the queue's keys in Redis, without their prefix.
func (q *testQueue) keys() map[string]bool {
	q.t.Helper()
	all := map[string]bool{}
	for _, k := range must(q.c.Keys(context.Background(), "muster:{"+q.t.Name()+"}:*").Result())(q.t) {
		all[k[len(q.prefix):]] = true
	}
	return all
}

// must ends the test if a call failed.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// succeeds ends the test if a call failed that returns nothing.
func succeeds(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
