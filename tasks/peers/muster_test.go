package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

const (
	queueName = "peers"
	batchID   = "race"
)

// muster is a side of ours: a batch, and executors of some program. The batch is paused before they start; to begin is
// to resume it.
func muster(name string, program []string) side {
	var o *tasks.Operator
	s := side{name: name, tasks: 400_000}
	s.submit = func(t testing.TB, r *race, n int) {
		t.Helper()
		o = newQueue(t, r)
		submitPaused(t, r, o, batchID, payloads(n))
	}
	s.work = func(t testing.TB, r *race, executors int) []*process {
		t.Helper()
		var all []*process
		for range executors {
			all = append(all, r.launch(t, program))
		}
		awaitSeats(t, o, executors)
		return all
	}
	s.begin = func(t testing.TB, _ *race, _ []*process) {
		t.Helper()
		if _, err := o.Resume(t.Context(), batchID); err != nil {
			t.Fatal(err)
		}
	}
	key := func() string { return fmt.Sprintf("muster:{%s}:b:%s", o.Generation, batchID) }
	s.counts = func(ctx context.Context, c *redis.Client, n int) (int64, int64, error) {
		var found struct {
			Taken int64 `redis:"taken"`
			Done  int64 `redis:"done"`
		}
		err := c.HMGet(ctx, key(), "taken", "done").Scan(&found)
		return found.Taken, found.Done, err
	}
	s.result = func(ctx context.Context, c *redis.Client) (string, error) {
		return c.LIndex(ctx, key()+":r", -1).Result()
	}
	return s
}

// musterGo is a program with package tasks.
func musterGo(string) (side, error) { return muster("muster-go", self("go")), nil }

// musterLines is "muster executor --lines" with a command that answers each line.
func musterLines(string) (side, error) {
	program, err := buildMuster()
	if err != nil {
		return side{}, err
	}
	command := slices.Concat([]string{program, "executor", queueName, "--quiet", "--lines", "--"}, self("lines"))
	return muster("muster-lines", command), nil
}

// buildMuster builds the program muster, once.
var buildMuster = sync.OnceValues(func() (program string, err error) {
	program = filepath.Join(built, "muster")
	return program, install("../..", "go", "build", "-buildvcs=false", "-o", program, ".")
})

// newQueue makes a queue for a race.
func newQueue(t testing.TB, r *race) *tasks.Operator {
	t.Helper()
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: servers.Addrs(), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.after = append(r.after, func() { s.Close() })
	q := queue.Default()
	q.Root, q.Name, q.Redis = "/race-"+zkstate.NewID(), queueName, "redis://"+r.addr+"/0"
	rig.Create(t, rig.Store(t, s, q.Root, zkstate.Queue()), q)
	o, err := tasks.NewOperator(t.Context(), s, tasks.OperatorConfig{Root: q.Root, Queue: q.Name})
	if err != nil {
		t.Fatal(err)
	}
	r.after = append(r.after, o.Close)
	r.session, r.root = s, q.Root
	r.environ = append(r.environ, "MUSTER_ROOT="+q.Root)
	return o
}

// submitPaused puts a batch into the queue of a race.
func submitPaused(t testing.TB, r *race, o *tasks.Operator, id string, all tasks.Source) {
	t.Helper()
	c := tasks.SubmitConfig{Root: r.root, Queue: queueName, ID: id, By: "peers"}
	if _, err := tasks.Submit(t.Context(), r.session, c, all); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

// payloads is the tasks of a race.
func payloads(n int) tasks.Source { return generated(n, payload) }

// generated is n tasks.
func generated(n int, payload func(i int) string) tasks.Source {
	return func(context.Context, queue.Queue) iter.Seq2[[]byte, error] {
		return func(yield func([]byte, error) bool) {
			for i := range n {
				if !yield([]byte(payload(i)), nil) {
					return
				}
			}
		}
	}
}

// awaitSeats waits until so many executors have joined.
func awaitSeats(t testing.TB, o *tasks.Operator, executors int) {
	t.Helper()
	st, err := o.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "the executors to join", func() bool {
		books, err := st.Books(t.Context())
		return err == nil && len(books.Seats) == executors
	})
}

// goMain is the program of musterGo.
func goMain(ctx context.Context) error {
	s, err := zkconn.Dial(ctx, zkconn.Config{
		Servers: strings.Split(os.Getenv("MUSTER_SERVERS"), ","), Timeout: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	p, err := tasks.Join(ctx, s, tasks.Config{
		Root: os.Getenv("MUSTER_ROOT"), Queue: queueName, Identity: fmt.Sprint("go-", os.Getpid()),
		Role: queue.Executor, Parallel: 1,
	})
	if err != nil {
		return err
	}
	answer := []byte(result)
	return tasks.Execute(ctx, p, tasks.ExecutorConfig{}, func(context.Context, *tasks.Task) ([]byte, error) {
		return answer, nil
	})
}

// linesMain is the command of musterLines. As any good filter it flushes when there is nothing more to read.
func linesMain() error {
	in, out := bufio.NewReaderSize(os.Stdin, 64<<10), bufio.NewWriterSize(os.Stdout, 64<<10)
	for {
		if _, err := in.ReadSlice('\n'); err != nil {
			return errors.Join(out.Flush(), err)
		}
		out.WriteString(result + "\n")
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}
