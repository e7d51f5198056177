package peers

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/sim/rig"
	"muster/tasks"
	"muster/tasks/store"
)

// mix is executors of --lines, whose commands do what each task says.
type mix struct {
	program             string // muster
	format              string // of lines: plain or json
	executors, parallel int
}

// mixes are all of them, each with six commands.
func mixes(t testing.TB) []mix {
	t.Helper()
	program, err := buildMuster()
	if err != nil {
		t.Fatal(err)
	}
	return []mix{{program, "json", 1, 6}, {program, "plain", 1, 6}, {program, "json", 2, 3}, {program, "plain", 2, 3}}
}

func (m mix) String() string { return fmt.Sprintf("%s=%dx%d", m.format, m.executors, m.parallel) }

// crowd is a mix at work.
type crowd struct {
	mix
	*race
	t     testing.TB
	queue *tasks.Operator
	store *store.Queue
}

// start starts the executors. The batches are paused. Each has so many times the same task.
func (m mix) start(t testing.TB, n int, batches ...[2]string) *crowd {
	t.Helper()
	r := newRace(t, rediss.Addr())
	t.Cleanup(r.close)
	o := newQueue(t, r)
	for _, b := range batches {
		submitPaused(t, r, o, b[0], generated(n, func(int) string { return b[1] }))
	}
	command := slices.Concat([]string{m.program, "executor", queueName, "--quiet", "--lines=" + m.format,
		"--parallel", fmt.Sprint(m.parallel), "--"}, self("mixed-"+m.format))
	for range m.executors {
		r.launch(t, command)
	}
	awaitSeats(t, o, m.executors)
	st, err := o.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &crowd{m, r, t, o, st}
}

func (c *crowd) resume(id string) {
	c.t.Helper()
	if _, err := c.queue.Resume(c.t.Context(), id); err != nil {
		c.t.Fatal(err)
	}
}

func (c *crowd) books(id string) store.Batch {
	c.t.Helper()
	b, err := c.store.Batch(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// mixedMain is the command of a mix. It answers each line when the time is over that it names, or when a connection to
// the address that it names is.
func mixedMain(format string) error {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		task := struct{ Task string }{strings.TrimSuffix(line, "\n")}
		answer := result
		if format == "json" {
			if err := json.Unmarshal([]byte(line), &task); err != nil {
				return err
			}
			answer = fmt.Sprintf(`{"result":%q}`, result)
		}
		if takes, err := time.ParseDuration(task.Task); err == nil {
			<-time.After(takes) // the work
		} else if c, err := net.Dial("tcp", task.Task); err == nil {
			_, _ = c.Read(make([]byte, 1))
		}
		if _, err := fmt.Println(answer); err != nil {
			return err
		}
	}
}

// TestNoLineWaitsBehindAStuckOne: while some commands of an executor work on tasks that do not end, the others do all
// tasks of another batch.
func TestNoLineWaitsBehindAStuckOne(t *testing.T) {
	const n = 5000
	for _, m := range mixes(t)[:2] {
		t.Run(m.String(), func(t *testing.T) {
			stuck, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer stuck.Close()
			c := m.start(t, n, [2]string{"quick", "1ms"}, [2]string{"stuck", stuck.Addr().String()})
			c.resume("quick")
			rig.Await(t, "some quick tasks are done", func() bool { return c.books("quick").Done > n/10 })
			c.resume("stuck")
			rig.Await(t, "all quick tasks are done", func() bool { return c.books("quick").Done == n })
			if b := c.books("stuck"); b.Done > 0 || b.Out == 0 {
				t.Errorf("%d stuck tasks are done, %d are out", b.Done, b.Out)
			}
		})
	}
}

// served is what a batch got.
type served struct {
	rate  float64 // tasks a second
	share float64 // the time that commands worked on it, of what all of them have
}

// measure returns what batches of tasks that take so long get, by their names, while more than can be done wait.
func (m mix) measure(t testing.TB, n int, period time.Duration, batches ...[2]string) map[string]served {
	t.Helper()
	c := m.start(t, n, batches...)
	defer c.close()
	commands := m.executors * m.parallel
	before := map[string]int64{}
	for _, b := range batches {
		c.resume(b[0])
	}
	for _, b := range batches {
		rig.Await(t, "each command has begun", func() bool { return c.books(b[0]).Done >= int64(commands) })
	}
	for _, b := range batches {
		before[b[0]] = c.books(b[0]).Done
	}
	begun := time.Now()
	rig.Await(t, "the period is over", func() bool { return time.Since(begun) >= period })
	all, seconds := map[string]served{}, time.Since(begun).Seconds()
	for id, from := range before {
		var worked time.Duration
		end := c.books(id).Done
		if end == int64(n) {
			t.Fatalf("%s: all tasks were done", id)
		}
		for i := from; i < end; {
			page, err := c.store.Results(c.t.Context(), id, i)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range page[:min(int64(len(page)), end-i)] {
				i, worked = i+1, worked+one.Took
			}
		}
		all[id] = served{float64(end-from) / seconds, worked.Seconds() / seconds / float64(commands)}
	}
	return all
}

// BenchmarkSlowBesideQuick reports what a batch of tasks of 1 s and one of tasks of 2 ms get beside each other: of half
// the tasks a second that each gets alone, and of half the time of all commands.
func BenchmarkSlowBesideQuick(b *testing.B) {
	const n, period = 100_000, 20 * time.Second
	for _, m := range mixes(b) {
		b.Run(m.String(), func(b *testing.B) {
			batches := [][2]string{{"slow", "1s"}, {"quick", "2ms"}}
			both := m.measure(b, n, period, batches...)
			for _, one := range batches {
				id := one[0]
				alone := m.measure(b, n, period, one)[id]
				b.ReportMetric(alone.rate, id+"-alone/s")
				b.ReportMetric(both[id].rate, id+"/s")
				b.ReportMetric(2*both[id].rate/alone.rate, id+"-of-half")
				b.ReportMetric(2*both[id].share, id+"-time-of-half")
			}
			for range b.N { // it is over: these are the results
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
