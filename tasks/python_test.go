package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/sim/needs"
	"muster/sim/rig"
)

// squares is what the executor in Python runs for each task. Task 13 is hopeless, and task 14 fails once.
const squares = `read n
case $n in
13) exit 65 ;;
14) [ "$MUSTER_ATTEMPT" = 2 ] || exit 1 ;;
esac
echo $((n * n))`

// startPython starts examples/python as an executor, in a process group of its own.
func (f *fixture) startPython(identity string) *exec.Cmd {
	f.t.Helper()
	python := needs.Program(f.t, "python3", "python3")
	cmd := exec.Command(python, "../examples/python/executor.py", f.queue.Path(), "store/lua", identity,
		"sh", "-c", squares)
	cmd.Env = append(os.Environ(), "MUSTER_SERVERS="+servers.Connect(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		}
		if f.t.Failed() {
			f.t.Logf("%s:\n%s", identity, out.String())
		}
	})
	return cmd
}

// TestAnExecutorInPython: examples/python knows only docs/protocol.md. Two of it execute a batch beside a watcher of
// ours, while Redis is cut off and one of them is killed; each task is in the results once. Then the other leaves.
func TestAnExecutorInPython(t *testing.T) {
	t.Parallel()
	redis := rig.Proxy(t, rediss.Addr())
	f := newFixture(t, func(q *queue.Queue) {
		q.Redis, q.Backoff = "redis://"+redis.Addr(), resource.Duration(10*time.Millisecond)
		q.Timeouts.Session = resource.Duration(3 * time.Second)
	})
	const tasks = 300
	killed, left := f.startPython("killed"), f.startPython("left")
	rig.Await(t, "both executors", func() bool { return f.books().Slots == 2 })
	w := f.join("watcher", queue.Watcher) // the first seat of those that look after the queue
	f.submit("b", numbered(tasks))
	rig.Await(t, "50 results", func() bool { return f.inRedis("b").Done >= 50 })
	redis.Cut()
	rig.Await(t, "100 results", func() bool { return f.inRedis("b").Done >= 100 })
	if err := syscall.Kill(-killed.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	got, want := map[int64]string{}, map[int64]string{}
	for n := range int64(tasks) {
		want[n] = fmt.Sprintln(n * n)
	}
	want[13] = "dead: exit code 65"
	ctx, end := context.WithTimeout(t.Context(), limit)
	defer end()
	err := Watch(ctx, w, func(ctx context.Context, b *Completed) error {
		for r, err := range b.Records(ctx) {
			switch {
			case err != nil:
				return err
			case got[r.Index] != "":
				t.Errorf("task %d is in the results twice", r.Index)
			case r.Dead:
				got[r.Index] = "dead: " + r.Error
			default:
				got[r.Index] = string(r.Result)
			}
			if r.Index == 14 && r.Attempt != 2 {
				t.Errorf("task 14 has attempt %d", r.Attempt)
			}
		}
		end()
		return nil
	})
	if !errors.Is(err, context.Canceled) || !maps.Equal(got, want) {
		t.Errorf("watch: %v; %d results:\n%v", err, len(got), got)
	}
	if err := left.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := left.Wait(); err != nil {
		t.Errorf("after TERM: %v", err)
	}
	if b := f.books(); len(b.Seats) != 1 || b.Slots != 0 {
		t.Errorf("it has left, and the seats are %+v with %d commands", b.Seats, b.Slots)
	}
}

// TestProtocolPageNamesTheScripts: docs/protocol/queues.md has a row for each script, and names each refusal.
func TestProtocolPageNamesTheScripts(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/protocol/queues.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir("store/lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name, ok := strings.CutSuffix(file.Name(), ".lua")
		if !ok {
			continue
		}
		want := "\n| `" + name + "` | "
		switch name {
		case "clock", "common", "dead":
			want = "`" + name + ".lua`"
		}
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("docs/protocol/queues.md does not describe %s", file.Name())
		}
	}
}
