package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"muster/dev/fault"
	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/zkstate/znode"
)

// submitCommand is a muster submit of this queue with tasks on standard input.
func (f queueFixture) submitCommand(at, input string, more ...string) *exec.Cmd {
	cmd := f.command(at, append([]string{"submit", "primes", "--root", f.root}, more...)...)
	cmd.Stdin = strings.NewReader(input)
	return cmd
}

// execute executes what is in the queue until the test ends: a result is the payload in capitals; "dead" is not done.
func (f queueFixture) execute() {
	f.t.Helper()
	p := f.join("executor")
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	f.t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		_ = tasks.Execute(ctx, p, tasks.ExecutorConfig{Parallel: 4}, func(_ context.Context, t *tasks.Task) ([]byte, error) {
			if string(t.Payload) == "dead" {
				return nil, fmt.Errorf("%w: as it was told", tasks.ErrNever)
			}
			return bytes.ToUpper(t.Payload), nil
		})
	}()
}

// numberedLines are so many lines, and what execute makes of them.
func numberedLines(n int) (input, output string) {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "line-%d\n", i)
	}
	return all.String(), strings.ToUpper(all.String())
}

// TestSubmitWaits: results come in the order of the tasks, the batch ends, and dead tasks make the code 3.
func TestSubmitWaits(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.execute()
	input, want := numberedLines(3000)
	all := result(f.submitCommand(servers.Connect(), input, "--wait", "--id", "all"))
	expect(t, all, 0, "batch all: 3000 done in ")
	if all.stdout != want {
		t.Errorf("%d bytes of results, want %d", len(all.stdout), len(want))
	}
	f.ended("all")
	again := result(f.submitCommand(servers.Connect(), input, "--wait", "--id", "all"))
	expect(t, again, 4, "its results are gone")
	null := result(f.submitCommand(servers.Connect(), "a\x00dead\x00\x00b\n", "--wait", "--null"))
	expect(t, null, 3, "task 1 is dead: ", "as it was told")
	if again.stdout != "" || null.stdout != "A\x00\x00B\n\x00" {
		t.Errorf("results %q, %q", again.stdout, null.stdout)
	}
	json := result(f.submitCommand(servers.Connect(), "a\ndead\n", "--wait", "--json", "--quiet"))
	expect(t, json, 3, `"result":"A"`, `"dead":true`)
	if strings.Count(json.stdout, "\n") != 2 {
		t.Errorf("not two lines:\n%s", json.stdout)
	}
}

// TestSubmitInterrupted: a wait that is interrupted says how to go on, and that works. The batch is the same.
func TestSubmitInterrupted(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	input, want := numberedLines(50)
	for code, signal := range map[int]os.Signal{130: os.Interrupt, -1: os.Kill} {
		first := f.submitCommand(servers.Connect(), input, "--wait", "--id", "b")
		seen := startOnScreen(t, first)
		seen.await(t, "batch b: 50 tasks")
		seen.await(t, "no executor is live now; one is started by: muster executor primes --root "+f.root+" -- COMMAND")
		sendSignal(t, first, signal)
		_ = first.Wait() // the code tells
		if first.ProcessState.ExitCode() != code {
			t.Errorf("code %d, want %d\n%s", first.ProcessState.ExitCode(), code, seen)
		}
		if code == 130 && !strings.Contains(seen.String(), "with the same tasks: muster submit primes --root "+f.root+
			" --wait --id b") {
			t.Error(seen)
		}
	}
	f.execute()
	out, err := f.submitCommand(servers.Connect(), input, "--wait", "--id", "b").Output()
	if err != nil || string(out) != want {
		t.Errorf("%v, %q", err, out)
	}
	f.ended("b")
}

// TestSubmitBeforeTheInputEnds: an interrupt while a pipe is read writes nothing.
func TestSubmitBeforeTheInputEnds(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	cmd := f.submitCommand(servers.Connect(), "", "--id", "b")
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	cmd.Stdin = in
	seen := startOnScreen(t, cmd)
	if _, err := out.WriteString("one\n"); err != nil {
		t.Fatal(err)
	}
	sendSignal(t, cmd, syscall.SIGTERM)
	_ = cmd.Wait() // the code tells
	at := znode.Batch(f.root, f.generation(), "b")
	if _, there, err := f.s.Exists(t.Context(), at); err != nil || there || cmd.ProcessState.ExitCode() == 0 {
		t.Errorf("there %v, %v, code %d\n%s", there, err, cmd.ProcessState.ExitCode(), seen)
	}
}

// TestSubmitWithoutAReader: results that could not be printed are kept for the next one who waits.
func TestSubmitWithoutAReader(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.execute()
	input, want := numberedLines(30_000)
	cmd := f.submitCommand(servers.Connect(), input, "--wait", "--id", "b", "--quiet")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	out.Close()
	if cmd.Wait(); cmd.ProcessState.ExitCode() == 0 {
		t.Error("it ended with 0")
	}
	if b := f.inRedis("b"); b.Done != 30_000 || b.Results != string(queue.ResultsSubmitter) {
		t.Errorf("%+v", b)
	}
	all, err := f.submitCommand(servers.Connect(), input, "--wait", "--id", "b").Output()
	if err != nil || string(all) != want {
		t.Errorf("%v, %d bytes", err, len(all))
	}
}

// TestSubmitOutlivesAnOutage: a wait goes on in another session when ZooKeeper is back.
func TestSubmitOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	proxy := newProxy(t, 0)
	input, want := numberedLines(10)
	cmd := f.submitCommand(proxy.Addr(), input, "--wait", "--id", "b")
	seen := startOnScreen(t, cmd)
	seen.await(t, "batch b: 10 tasks")
	proxy.Refuse(true)
	proxy.Cut()
	seen.await(t, "waiting for ZooKeeper")
	proxy.Refuse(false)
	f.execute()
	if err := cmd.Wait(); err != nil || !strings.Contains(seen.String(), want) {
		t.Errorf("%v\n%s", err, seen)
	}
	f.ended("b")
}

// TestSubmitPrintsOnce: what was printed is not printed again when ZooKeeper is lost before the batch has ended, or
// before the reply to that has come.
func TestSubmitPrintsOnce(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"not ended": false, "ended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newQueueFixture(t, "")
			f.execute()
			expect(t, result(f.submitCommand(servers.Connect(), "a\n", "--wait")), 0) // the first that ends on this day
			proxy := newProxy(t, 0)
			arm := map[bool]func(func(int32, []byte) bool) <-chan struct{}{false: proxy.BeforeSend, true: proxy.DropReply}
			lost := arm[ended](func(op int32, request []byte) bool {
				ends := op == fault.OpMulti && bytes.Contains(request, []byte("/ended/"))
				if ends {
					proxy.Refuse(true)
				}
				return ends
			})
			cmd := f.submitCommand(proxy.Addr(), "a\ndead\nb\n", "--wait", "--id", "b")
			var out bytes.Buffer
			seen := newScreen()
			cmd.Stdout, cmd.Stderr = &out, seen
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-lost
			seen.await(t, "waiting for ZooKeeper")
			proxy.Refuse(false)
			endsWith(t, cmd, seen, 3)
			f.ended("b")
			if all := out.String(); all != "A\nB\n" {
				t.Errorf("results %q", all)
			}
			for _, once := range []string{"task 1 is dead", "batch b: 2 done, 1 dead in "} {
				if n := strings.Count(seen.String(), once); n != 1 {
					t.Errorf("%q is there %d times:\n%s", once, n, seen)
				}
			}
		})
	}
}

// TestSubmitPrintsOnWhereItStopped: Redis loses a batch while its results are printed. It is executed again, and what
// was printed is left out.
func TestSubmitPrintsOnWhereItStopped(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.execute()
	input, want := numberedLines(30_000)
	cmd := f.submitCommand(servers.Connect(), input, "--wait", "--id", "b")
	seen := newScreen()
	cmd.Stderr = seen
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	all := make([]byte, 1)
	if _, err := out.Read(all); err != nil { // a page at a time is read for what the pipe takes
		t.Fatal(err)
	}
	_, st := f.redis()
	if err := st.Remove(t.Context(), "b", f.inRedis("b").Life); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if all = append(all, rest...); err != nil || string(all) != want {
		t.Errorf("%v, %d bytes of results, want %d", err, len(all), len(want))
	}
	endsWith(t, cmd, seen, 0)
	if !strings.Contains(seen.String(), "waiting for the batch to be written again") {
		t.Error(seen)
	}
	f.ended("b")
}

// TestCommandsAboutALostOrBrokenBatch: Redis lost a batch, or somebody wrote into its keys. Each command that needs
// them ends with 4 and says what helps; so does one about a manifest that somebody wrote.
func TestCommandsAboutALostOrBrokenBatch(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.submit("lost", []byte("a"))
	f.submit("broken", []byte("b"))
	client, st := f.redis()
	if err := st.Remove(t.Context(), "lost", f.inRedis("lost").Life); err != nil {
		t.Fatal(err)
	}
	key := "muster:{" + f.generation() + "}:b:broken"
	if n, err := client.HDel(t.Context(), key, "born").Result(); n != 1 {
		t.Fatal(n, err)
	}
	for id, next := range map[string]string{
		"lost":   "next: submit it again with its --id, or: muster queue cancel " + f.root + "/primes/lost",
		"broken": "next: muster queue cancel " + f.root + "/primes/broken, then submit it again",
	} {
		for _, args := range [][]string{{"batches", "--results"}, {"pause"}, {"retry"}} {
			args = slices.Concat([]string{"queue"}, args, []string{"--root", f.root, "primes", id})
			expect(t, result(f.command(servers.Connect(), args...)), 4, next)
		}
	}
	f.submit("unreadable", []byte("c"))
	at := resource.Join(znode.Batches(f.root, f.generation()), "unreadable")
	if _, err := f.s.Set(t.Context(), at, []byte("{"), -1); err != nil {
		t.Fatal(err)
	}
	expect(t, result(f.submitCommand(servers.Connect(), "c\n", "--id", "unreadable")), 3, at, "next: delete that znode")
	expect(t, result(f.submitCommand(servers.Connect(), "b\n", "--id", "broken")), 4,
		"/primes/broken, then submit it again")
}
