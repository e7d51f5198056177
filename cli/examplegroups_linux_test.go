package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/sim/rig"
)

// lines are the whole lines of a file; none if it does not exist.
func lines(path string) []string {
	text, _ := os.ReadFile(path)
	all := strings.Split(string(text), "\n")
	return all[:len(all)-1]
}

// TestCronExample: the newer version takes its tasks, and from then on the older one runs none until the newer one is
// gone. No tick runs twice, but for a report that the newer version did not finish before it left: that one is lost,
// and the older version runs it again. A cleanup that is lost is not run again.
func TestCronExample(t *testing.T) {
	t.Parallel()
	e := newExample(t, "cron")
	out := filepath.Join(e.temp, "out")
	e.env = append(e.env, "OUT="+out)
	count := func(start, version string) (n int) {
		for _, line := range lines(out) {
			if strings.HasPrefix(line, start+" of ") && strings.Contains(line, " by version "+version) {
				n++
			}
		}
		return n
	}
	e.member(t, "reports", "old", "1.9.0", "--duties", "duties-1.9")
	rig.Await(t, "a report by 1.9", func() bool { return count("report", "1.9.0") > 1 })
	newer, _ := e.member(t, "reports", "new", "2.0.0", "--duties", "duties-2.0")
	rig.Await(t, "reports by 2.0", func() bool { return count("report", "2.0.0") > 2 })
	rig.Await(t, "cleanups by 2.0", func() bool { return count("cleanup", "2.0.0") > 1 })
	if err := newer.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	before := count("report", "1.9.0")
	rig.Await(t, "a report by 1.9 after 2.0 has left", func() bool { return count("report", "1.9.0") > before+1 })
	checkTicks(t, lines(out), "report", true, "1.9.0", "2.0.0", "1.9.0")
	checkTicks(t, lines(out), "cleanup", false, "2.0.0")
}

// checkTicks checks that a task ran at ticks in their order, and on these versions one after another. rerun says that
// another version may run the last tick of the one before again.
func checkTicks(t *testing.T, lines []string, task string, rerun bool, versions ...string) {
	t.Helper()
	run := regexp.MustCompile(`^` + task + ` of (\S+) by version ([\d.]+)`)
	var last time.Time
	var on []string
	for _, line := range lines {
		m := run.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		tick, err := time.Parse(time.RFC3339, m[1])
		again := rerun && tick.Equal(last) && on[len(on)-1] != m[2]
		if err != nil || !tick.After(last) && !again {
			t.Errorf("%s at %s came after %s: %v\n%s", task, m[1], last, err, strings.Join(lines, "\n"))
		}
		last, on = tick, append(on, m[2])
	}
	if on = slices.Compact(on); !slices.Equal(on, versions) {
		t.Errorf("%s ran on versions %q, want %q:\n%s", task, on, versions, strings.Join(lines, "\n"))
	}
}

// TestFencingExample freezes the writer of the ledger with all its processes, and wakes it up after its successor has
// written: what it still wants to write is refused.
func TestFencingExample(t *testing.T) {
	t.Parallel()
	e := newExample(t, "fencing")
	ledger := filepath.Join(e.temp, "ledger")
	e.env = append(e.env, "LEDGER="+ledger)
	screens, members := map[string]*screen{}, map[string]*exec.Cmd{}
	for _, identity := range []string{"a", "b"} {
		members[identity], screens[identity] = e.member(t, "ledger", identity, "1.0.0", "--duties", "duties")
	}
	rig.Await(t, "two entries", func() bool { return len(lines(ledger)) > 1 })
	epoch, entry, _ := strings.Cut(lines(ledger)[0], " ")
	frozen := entry[strings.LastIndex(entry, " ")+1:]
	others := []int{members[frozen].Process.Pid}
	send(t, syscall.SIGSTOP, others...)
	var commands []int
	rig.Await(t, "a leader that is frozen while it does not hold the lock", func() bool {
		commands = nil
		holds := false
		for pid, args := range e.with(t, "MUSTER_EPOCH="+epoch) {
			send(t, syscall.SIGSTOP, pid)
			if strings.Contains(args, "guard-command") {
				others = append(others, pid)
				continue
			}
			commands = append(commands, pid)
			holds = holds || strings.Contains(args, "append")
		}
		if holds {
			send(t, syscall.SIGCONT, commands...)
		}
		return !holds
	})
	var next string
	rig.Await(t, "an entry of the next leader", func() bool {
		all := lines(ledger)
		next, _, _ = strings.Cut(all[len(all)-1], " ")
		return next != epoch
	})
	send(t, syscall.SIGCONT, commands...) // not the guard, which would kill them
	screens[frozen].await(t, fmt.Sprintf("append: refused: epoch %s is over, epoch %s has written\n", epoch, next))
	send(t, syscall.SIGCONT, others...)
	written := len(lines(ledger))
	rig.Await(t, "another entry", func() bool { return len(lines(ledger)) > written })
	var last int64
	for _, line := range lines(ledger) {
		epoch, _, _ := strings.Cut(line, " ")
		n, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || n < last {
			t.Errorf("the ledger is not in order: %v\n%s", err, strings.Join(lines(ledger), "\n"))
		}
		last = n
	}
}
