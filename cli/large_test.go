package cli_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"muster/zkstate"
)

// newManyJobs returns a fixture with n jobs that are applied.
func newManyJobs(tb testing.TB, n int) fixture {
	f := fixture{tb.TempDir(), "/t-" + zkstate.NewID()[:12]}
	var hcl strings.Builder
	fmt.Fprintf(&hcl, "muster {\n  stack = \"tests\"\n  home  = \"%s-home\"\n}\n", f.root)
	for i := range n {
		fmt.Fprintf(&hcl, "job \"plain%d\" {\n  root    = %q\n  workers = %d\n", i, f.root, 1+i%9)
		fmt.Fprint(&hcl, "  labels  = { team = \"data\" }\n}\n")
	}
	if err := os.WriteFile(filepath.Join(f.dir, "main.hcl"), []byte(hcl.String()), 0o644); err != nil {
		tb.Fatal(err)
	}
	if out, err := f.command(servers.Connect(), "apply", "--yes", "-q").CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	return f
}

// TestThousandJobsAreQuick limits the processor time of plan, drift and validate with 1,000 jobs.
// BenchmarkThousandJobs measures how long they take, which depends on what else the machine does.
func TestThousandJobsAreQuick(t *testing.T) {
	f := newManyJobs(t, 1000)
	for _, c := range []struct {
		limit time.Duration
		args  []string
		says  string
	}{
		{3 * time.Second, []string{"plan", "--detailed-exitcode"}, "No changes. 1000 jobs"},
		{3 * time.Second, []string{"drift"}, "No drift. 1000 jobs"},
		{time.Second, []string{"validate"}, "1000 jobs"},
	} {
		best := time.Hour
		for range 10 {
			cmd := f.command(servers.Connect(), c.args...)
			expect(t, result(cmd), 0, c.says)
			if best = min(best, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()); best < c.limit {
				break
			}
		}
		t.Logf("%s: %s", c.args[0], best.Round(time.Millisecond))
		if best > c.limit {
			t.Errorf("%s takes %s of a processor, more than %s", c.args[0], best, c.limit)
		}
	}
}

// BenchmarkThousandJobs measures whole processes: a plan should take less than a second, validate less than a tenth of
// one.
func BenchmarkThousandJobs(b *testing.B) {
	f := newManyJobs(b, 1000)
	for _, command := range []string{"plan", "drift", "validate"} {
		b.Run(command, func(b *testing.B) {
			for b.Loop() {
				if out, err := f.command(servers.Connect(), command).CombinedOutput(); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
}

// BenchmarkPlanOfTenThousandJobs compares the process that plans 10,000 unchanged jobs with the least that it has to
// do: two reads a job with the client library alone, 128 at a time, and the loading, which is what validate does. They
// take turns, since other processes share the machine.
func BenchmarkPlanOfTenThousandJobs(b *testing.B) {
	const n, rounds = 10000, 3
	f := newManyJobs(b, n)
	raw, _, err := zk.Connect([]string{servers.Connect()}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	timed := func(sum *time.Duration, command string) (user time.Duration) {
		start := time.Now()
		cmd := f.command(servers.Connect(), command)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		*sum += time.Since(start)
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	for range b.N {
		var planned, loaded, bare, cpu time.Duration
		for range rounds {
			cpu += timed(&planned, "plan")
			timed(&loaded, "validate")
			var reads errgroup.Group
			reads.SetLimit(128)
			start := time.Now()
			for i := range 2 * n {
				reads.Go(func() error {
					_, _, err := raw.Get(fmt.Sprintf("%s/.muster/job/plain%d", f.root, i%n))
					return err
				})
			}
			if err := reads.Wait(); err != nil {
				b.Fatal(err)
			}
			bare += time.Since(start)
		}
		b.ReportMetric(planned.Seconds()*1000/rounds, "plan-ms")
		b.ReportMetric(loaded.Seconds()*1000/rounds, "load-ms")
		b.ReportMetric(cpu.Seconds()*1000/rounds, "plan-cpu-ms")
		b.ReportMetric(float64(planned)/float64(bare+loaded), "plan/bare-reads-and-load")
	}
}

// TestWhatNeedsNoServerMakesNoConnection: validate, fmt, show, schema, version and help do not connect to the servers
// that are configured.
func TestWhatNeedsNoServerMakesNoConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 3, "")
	plan := filepath.Join(f.dir, "plan.json")
	f.mustRun(t, "plan", "--out", plan)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var calls atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			c.Close()
		}
	}()
	addr := l.Addr().String()
	f.write(t, 3, fmt.Sprintf("zookeeper {\n  servers = [%q]\n}\n", addr))
	saved := read(t, plan)
	for _, args := range [][]string{
		{"validate"}, {"validate", "--json"}, {"fmt"}, {"fmt", "--check"}, {"show", plan}, {"show", "--json", plan},
		{"schema", "plan"}, {"version"}, {"help", "apply"}, {"completion", "bash"},
	} {
		expect(t, result(f.command(addr, append(args, "--servers", addr)...)), 0)
	}
	if n := calls.Load(); n > 0 {
		t.Errorf("%d connections were made", n)
	}
	// A plan does connect, so the listener counts.
	got := result(f.command(addr, "plan"))
	if got.code != 8 || calls.Load() == 0 {
		t.Errorf("plan: %+v, %d connections", got, calls.Load())
	}
	if after, err := os.ReadFile(plan); err != nil || string(after) != saved {
		t.Errorf("the plan file was changed: %v", err)
	}
}

// TestMarkdownOfFiveThousandJobs: the report has 60,000 bytes at most and names every delete.
func TestMarkdownOfFiveThousandJobs(t *testing.T) {
	t.Parallel()
	const most, deletes, all = 60_000, 300, 5000
	f := newFixture(t, 0, "")
	jobs := func(n int, prefix string) string {
		return fmt.Sprintf(`job %q {
  for_each = toset(flatten([for a in range(%d / 100) : [for i in range(100) : "%s-${a * 100 + i}"]]))
  root     = %q
  name     = each.key
  workers  = 8
  labels   = { team = "data", purpose = "a text that takes some room in every row" }
}
`, prefix, n, prefix, f.root)
	}
	f.write(t, 0, jobs(deletes, "gone"))
	f.mustApply(t)
	f.write(t, 0, jobs(all-deletes, "new"))
	report := filepath.Join(t.TempDir(), "plan.md")
	want := fmt.Sprintf("Plan: %d to create, 0 to replace, %d to delete", all-deletes, deletes)
	expect(t, result(f.command(servers.Connect(), "plan", "--report", "markdown="+report)), 0, want)
	text := read(t, report)
	if len(text) > most || len(text) < most/2 {
		t.Errorf("%d bytes, want up to %d", len(text), most)
	}
	for i := range deletes {
		name := regexp.MustCompile(fmt.Sprintf(`%s/gone-%d\D`, regexp.QuoteMeta(f.root), i))
		if !name.MatchString(text) {
			t.Errorf("%s is not named", name)
		}
	}
}
