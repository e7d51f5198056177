package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/sim/rig"
)

// TestPrimesExample runs the example as its README does: a batch of 5,000 numbers, an executor with a process for each
// number, which is killed while it has some, one with lines, and a watcher that counts. The result is right.
func TestPrimesExample(t *testing.T) {
	t.Parallel()
	redis := "MUSTER_VAR_redis=redis://" + sharedRedis(t).Addr() + "/0"
	e := newExample(t, "primes", append(redisEnviron(), redis)...)
	e.env = append(e.env, "COUNTS="+e.temp, "MUSTER_ROOT="+e.root)
	build := exec.Command("go", "build", "-o", e.temp+"/", "../examples/primes")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	start := func(args ...string) (*exec.Cmd, *screen) {
		cmd := e.command("muster", args...)
		return cmd, startOnScreen(t, cmd)
	}
	watcher, counted := start("watcher", "primes", "--identity", "w", "--", "./count")
	one, _ := start("executor", "primes", "--identity", "one", "--parallel", "2", "--", "sh", "-c",
		`touch "$TMPDIR/begun"; exec primes`)
	submit := func(input string, more ...string) outcome {
		cmd := e.command("muster", append([]string{"submit", "primes"}, more...)...)
		cmd.Stdin = strings.NewReader(input)
		return result(cmd)
	}
	var numbers strings.Builder
	for n := range 5000 {
		fmt.Fprintln(&numbers, n)
	}
	if got := submit(numbers.String(), "--id", "first"); got.code != 0 || got.stdout != "first\n" {
		t.Fatalf("submit: %+v", got)
	}
	rig.Await(t, "a number that one works on", func() bool {
		_, err := os.Stat(filepath.Join(e.temp, "begun"))
		return err == nil
	})
	two, lines := start("executor", "primes", "--identity", "two", "--lines", "--", "primes")
	lines.await(t, "joined "+e.root+"/primes as two")
	kill(t, one) // of 5,000 processes it has run a few
	counted.await(t, "669 primes among 5000 numbers; 0 lines were no numbers\n")
	if got := read(t, filepath.Join(e.temp, "first")); !strings.HasPrefix(got, "669 primes among 5000 ") {
		t.Errorf("the file says %q", got)
	}
	want := "composite\ncomposite\nprime\nprime\nprime\n"
	got := submit("0\n1\n2\n3\nx\n5\n", "--wait")
	if got.code != 3 || got.stdout != want || !strings.Contains(got.stderr, "task 4") {
		t.Errorf("submit --wait: %+v", got)
	}
	for _, cmd := range []*exec.Cmd{two, watcher} {
		send(t, syscall.SIGTERM, cmd.Process.Pid)
		endsWith(t, cmd, lines, 143)
	}
}
