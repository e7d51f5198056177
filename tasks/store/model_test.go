package store

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"muster/tasks/store/lua"
	"muster/tasks/store/storemodel"
)

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
func num(s string) float64                       { n, _ := strconv.ParseFloat(s, 64); return n }
func str(n float64) string                       { return strconv.FormatFloat(n, 'f', -1, 64) }

// onModel is the same queue on a model, which has the same time.
func (q *testQueue) onModel() (*Queue, *storemodel.Server) {
	server := storemodel.NewServer(storemodel.Options{
		Scripts: lua.Scripts(testClock), Now: func() time.Time { return q.now },
	})
	client := redis.NewClient(&redis.Options{
		Protocol: 2, MaxRetries: -1, DisableIdentity: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go server.ServeConn(far)
			return near, nil
		},
	})
	q.t.Cleanup(func() { client.Close() })
	on := *q.Queue
	on.client = client
	return &on, server
}

// both compares what two queues answer to a call.
func both[T any](w *world, what string, call func(q *Queue) (T, error)) {
	w.t.Helper()
	got, err := call(w.Queue)
	want, refused := call(w.model)
	if d := cmp.Diff(want, got); d != "" || message0(err) != message0(refused) {
		w.t.Fatalf("%s: %v, the model: %v (-model +redis):\n%s", what, err, refused, d)
	}
	w.calls[what]++
}

func message0(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// lookOne reads something, and takes a token if there is one.
func (w *world) lookOne() {
	ctx := context.Background()
	id, skip := "b"+strconv.Itoa(w.rng.IntN(8)), int64(w.rng.IntN(30))
	switch w.rng.IntN(7) {
	case 0:
		both(w, "books", func(q *Queue) (Books, error) { return q.Books(ctx) })
	case 1:
		n := 1 + w.rng.IntN(10)
		both(w, "batches", func(q *Queue) ([]Batch, error) { return q.Batches(ctx, int(skip%5), n) })
	case 2:
		both(w, "batch", func(q *Queue) (Batch, error) { return q.Batch(ctx, id) })
	case 3:
		both(w, "results", func(q *Queue) ([]Finished, error) { return q.Results(ctx, id, skip) })
	case 4:
		both(w, "dead", func(q *Queue) ([]DeadTask, error) { return q.DeadTasks(ctx, id, skip) })
	case 5:
		before, n := w.now.Add(-time.Duration(w.rng.IntN(3000))*time.Millisecond), 1+w.rng.IntN(5)
		if dead := w.m.Dead[id]; len(dead) > 0 && n > 2 { // exactly when one died
			before = time.UnixMilli(int64(dead[0].At))
		}
		both(w, "dead batches", func(q *Queue) ([]string, error) { return q.DeadBatches(ctx, before, n) })
	default:
		list := w.prefix + pick(w.rng, []string{"wake:e", "wake:w"})
		if there, err := w.c.LLen(ctx, list).Result(); err != nil || there == 0 {
			return
		}
		both(w, "token", func(q *Queue) ([]string, error) { return q.client.BLPop(ctx, time.Second, list).Result() })
	}
}
