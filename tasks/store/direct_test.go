package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"muster/resource/queue"
	"muster/tasks/store/lua"
	"muster/tasks/store/storemodel"
)

// TestDirectCommandsAreTheModel: what muster sends beside scripts is answered alike, also to who is blocked.
func TestDirectCommandsAreTheModel(t *testing.T) {
	clock := lua.Clock() + fmt.Sprintf("-- %d", time.Now().UnixNano()) // nobody has loaded these scripts
	model := storemodel.NewServer(storemodel.Options{Scripts: lua.Scripts(clock)})
	got, want := direct(t, clock, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.Addr())
	}), direct(t, clock, dialModel(model))
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("answers (-model +redis):\n%s", d)
	}
}

// direct makes calls on one of the two servers, and notes the answers.
func direct(t *testing.T, clock string, dial func(context.Context, string, string) (net.Conn, error)) (log []string) {
	ctx := t.Context()
	client := redis.NewClient(&redis.Options{Protocol: 2, MaxRetries: -1, DisableIdentity: true, Dialer: dial})
	t.Cleanup(func() { client.Close() })
	note := func(v any, err error) { log = append(log, fmt.Sprintf("%v, %v", v, err)) }
	info, err := client.InfoMap(ctx, "server", "memory", "replication").Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, section := range info {
		maps.Copy(all, section)
	}
	if err := suits(all); err != nil {
		t.Error(err)
	}
	q := New(client, "direct", "queue-1")
	q.scripts = loadScripts(clock)
	_, err = client.EvalSha(ctx, q.scripts["hello"].Hash(), []string{q.prefix + "q"}, "a", "queue-1", "e", 1).Result()
	note(nil, err) // NOSCRIPT
	note(q.Hello(ctx, "e", queue.Executor, 1))
	note(q.Hello(ctx, "f", queue.Executor, 1))

	waits := client.Conn()
	t.Cleanup(func() { waits.Close() })
	id := must(waits.ClientID(ctx).Result())(t)
	note(client.ClientUnblock(ctx, id).Result()) // it is not blocked
	list := q.prefix + "wake:e"
	begun := time.Now()
	note(waits.BLPop(ctx, time.Second, list).Result()) // its time is over
	note(time.Since(begun) >= time.Second && time.Since(begun) < time.Minute, nil)
	ended := make(chan string)
	block := func() {
		got, err := waits.BLPop(ctx, limit, list).Result()
		ended <- fmt.Sprint(got, err)
	}
	go block()
	for must(client.ClientUnblock(ctx, id).Result())(t) == 0 { // until it is blocked
	}
	log = append(log, <-ended)
	go block()
	succeeds(t, q.Begin(ctx, NewBatch{ID: "b", Life: "life", Weight: 1, Attempts: 1, Results: "watcher"}, manyBytes))
	must(q.Append(ctx, "b", "life", 0, payloads(4)))(t)
	succeeds(t, q.Open(ctx, "b", "life", 4))
	log = append(log, <-ended) // the token, before or after it has blocked
	note(waits.BLPop(ctx, time.Second, list).Result())
	note(q.Turn(ctx, "e", 1, Turn{Idle: 1, MaxBytes: manyBytes})) // leaves a token: f could take one, too
	note(waits.BLPop(ctx, time.Second, list).Result())
	return append(log, directEnd(t, q)...)
}

// limit is how long a test waits for what must happen.
const limit = 5 * time.Minute

// directPages reads results and dead tasks that are too large for one page.
func directPages(t *testing.T, q *Queue, note func(any, error)) {
	ctx := t.Context()
	large := bytes.Repeat([]byte("x"), MaxBytes/3)
	succeeds(t, q.Begin(ctx, NewBatch{ID: "large", Life: "life", Weight: 1, Attempts: 1, Results: "watcher"}, manyBytes))
	must(q.Append(ctx, "large", "life", 0, [][]byte{large, large, large, nil, nil, nil, nil}))(t)
	succeeds(t, q.Open(ctx, "large", "life", 7))
	for seq := int64(1); seq < 40; seq++ {
		out := must(q.Turn(ctx, "f", seq, Turn{Idle: 1, MaxBytes: manyBytes}))(t)
		seq++
		var ends []Result
		for _, g := range out.Granted {
			outcome := Done
			if len(g.Payloads[0]) > 0 {
				outcome = Never
			}
			ends = append(ends, Result{Task{g.Batch, g.Index}, 1, outcome, time.Second, large})
		}
		must(q.Turn(ctx, "f", seq, Turn{Results: ends, MaxBytes: manyBytes}))(t)
	}
	for skip := range int64(6) {
		results, err := q.Results(ctx, "large", skip)
		note(len(results), err)
		dead, err := q.DeadTasks(ctx, "large", skip)
		note(len(dead), err)
	}
	succeeds(t, q.Remove(ctx, "large", "life"))
}

// directEnd makes a task dead, and deletes all keys.
func directEnd(t *testing.T, q *Queue) (log []string) {
	ctx := t.Context()
	note := func(v any, err error) { log = append(log, fmt.Sprintf("%v, %v", v, err)) }
	note(q.Turn(ctx, "e", 2, Turn{Results: []Result{{Task{"b", 0}, 1, Never, time.Second, []byte("no")}}}))
	note(q.DeadBatches(ctx, time.UnixMilli(0), 10))
	note(q.DeadBatches(ctx, time.Now().Add(time.Hour), 10))
	_, err := q.Hello(ctx, "a\r\n", queue.Executor, 1)
	note(nil, err)
	other := *q
	other.id = "queue-2"
	_, err = other.Hello(ctx, "z", queue.Executor, 1)
	note(nil, err)
	err = other.Begin(ctx, NewBatch{ID: "c", Weight: 1, Attempts: 1, Results: "watcher"}, manyBytes)
	note(nil, err)
	directPages(t, q, note)
	var keys []string
	for cursor := uint64(0); ; {
		var page []string
		page, cursor, err = q.client.Scan(ctx, cursor, q.prefix+"*", 1000).Result()
		if err != nil {
			t.Fatal(err)
		}
		if keys = append(keys, page...); cursor == 0 {
			break
		}
	}
	slices.Sort(keys)
	note(keys, nil)
	note(q.client.Unlink(ctx, keys...).Result())
	books, err := q.Books(ctx)
	books.Now = time.Time{}
	note(books, err)
	return log
}
