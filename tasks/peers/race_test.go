package peers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/zkstate/zkconn"
)

const (
	taskBytes = 64         // of a task: its number with zeros before it
	result    = "resulted" // of each task
	patience  = 3 * time.Minute
	lookEvery = time.Millisecond // how often a race looks at the counts
)

// side is one of those who race.
type side struct {
	name  string
	tasks int // in a race: some seconds' worth
	// submit fills the queue; it does not let the executors begin.
	submit func(t testing.TB, r *race, n int)
	// work starts executors as processes of their own, and returns when they are ready to begin.
	work func(t testing.TB, r *race, executors int) []*process
	// begin lets them begin.
	begin func(t testing.TB, r *race, all []*process)
	// counts is how many tasks were taken, and of how many Redis holds the result.
	counts func(ctx context.Context, c *redis.Client, n int) (taken, done int64, err error)
	// result is the result of some task.
	result func(ctx context.Context, c *redis.Client) (string, error)
}

// race is one side's run on a Redis that holds nothing else.
type race struct {
	addr    string
	client  *redis.Client
	environ []string        // of its programs
	after   []func()        // called at the end of the race
	session *zkconn.Session // of one of muster's sides, and the root of its queue
	root    string
}

// outcome is what a race showed.
type outcome struct {
	rate  float64 // tasks a second, from when the first was taken until the last result was stored
	bytes float64 // of Redis's memory for each waiting task, beside its payload
	cost  float64 // of each task: microseconds of Redis's processor, which do not depend on what else the machine does
}

// run lets a side finish n tasks with some executors.
func run(t testing.TB, addr string, s side, executors, n int) outcome {
	t.Helper()
	r := newRace(t, addr)
	defer r.close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	before := r.memory(ctx, t)
	s.submit(t, r, n)
	out := outcome{bytes: (r.memory(ctx, t)-before)/float64(n) - taskBytes}
	all := s.work(t, r, executors)
	if taken, done, err := s.counts(ctx, r.client, n); taken != 0 || done != 0 || err != nil {
		t.Fatalf("%s: before the start: %d taken, %d done, %v", s.name, taken, done, err)
	}
	s.begin(t, r, all)
	used := r.processor(ctx, t)
	out.rate = float64(n) / r.watch(ctx, t, s, n).Seconds()
	out.cost = (r.processor(ctx, t) - used) / float64(n) * 1e6
	if got, err := s.result(ctx, r.client); err != nil || !strings.Contains(got, result) {
		t.Fatalf("%s: the result of a task is %q, %v", s.name, got, err)
	}
	return out
}

// newRace is a race on an empty Redis.
func newRace(t testing.TB, addr string) *race {
	t.Helper()
	r := &race{
		addr: addr, client: redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}),
		environ: append(os.Environ(), "PEERS_REDIS="+addr, "MUSTER_SERVERS="+servers.Connect()),
	}
	if err := r.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *race) close() {
	for _, f := range slices.Backward(r.after) {
		f()
	}
	r.after = nil
	r.client.Close()
}

// watch returns how long it takes from the first taken task to the last result.
func (r *race) watch(ctx context.Context, t testing.TB, s side, n int) time.Duration {
	t.Helper()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var begun time.Time
	for {
		taken, done, err := s.counts(ctx, r.client, n)
		now := time.Now()
		switch {
		case err != nil:
			t.Fatalf("%s: %d taken, %d done of %d: %v", s.name, taken, done, n, err)
		case begun.IsZero() && taken > 0:
			begun = now
		}
		if done >= int64(n) {
			return now.Sub(begun)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %d taken, %d done of %d after %s", s.name, taken, done, n, patience)
		case <-tick.C:
		}
	}
}

// memory is how many bytes Redis uses now.
func (r *race) memory(ctx context.Context, t testing.TB) float64 {
	t.Helper()
	return r.info(ctx, t, "Memory", "used_memory")
}

// processor is how many seconds Redis's main thread has used until now.
func (r *race) processor(ctx context.Context, t testing.TB) float64 {
	t.Helper()
	return r.info(ctx, t, "CPU", "used_cpu_user_main_thread") + r.info(ctx, t, "CPU", "used_cpu_sys_main_thread")
}

func (r *race) info(ctx context.Context, t testing.TB, section, name string) float64 {
	t.Helper()
	info, err := r.client.InfoMap(ctx, section).Result()
	if err != nil {
		t.Fatal(err)
	}
	v, err := strconv.ParseFloat(info[section][name], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// process is a program of a side: it prints "ready", and reads a line before it begins.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// launch starts a program with these arguments.
func (r *race) launch(t testing.TB, program []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(program[0], slices.Concat(program[1:], args)...)}
	p.cmd.Env = r.environ
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.after = append(r.after, p.end)
	return p
}

// ready waits until the program says so.
func (p *process) ready(t testing.TB) {
	t.Helper()
	stuck := time.AfterFunc(patience, func() { p.cmd.Process.Kill() })
	defer stuck.Stop()
	if line, err := p.out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%s says %q, not ready: %v", p.cmd, line, err)
	}
}

// end kills the program.
func (p *process) end() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// programs is a side whose program submits with "submit N", and with "work C" is an executor that runs C tasks at once.
func programs(s side, program []string, parallel int) side {
	s.submit = func(t testing.TB, r *race, n int) {
		t.Helper()
		p := r.launch(t, program, "submit", strconv.Itoa(n))
		p.ready(t)
		if err := p.cmd.Wait(); err != nil {
			t.Fatalf("%s: %v", p.cmd, err)
		}
	}
	s.work = func(t testing.TB, r *race, executors int) []*process {
		t.Helper()
		var all []*process
		for range executors {
			all = append(all, r.launch(t, program, "work", strconv.Itoa(parallel)))
		}
		for _, p := range all {
			p.ready(t)
		}
		return all
	}
	s.begin = func(t testing.TB, _ *race, all []*process) {
		t.Helper()
		for _, p := range all {
			if _, err := fmt.Fprintln(p.in, "go"); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}
