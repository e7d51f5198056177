package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
	"muster/zkstate/znode"
)

// submitCommand is a muster submit of this queue with tasks on standard input.
func (f queueFixture) submitCommand(at, input string, more ...string) *exec.Cmd {
	cmd := f.command(at, append([]string{"submit", "primes", "--root", f.root}, more...)...)
	for _, name := range []string{"MUSTER_REDIS_PASSWORD", "MUSTER_REDIS_HOSTS"} {
		cmd.Env = append(cmd.Env, name+"="+credentials(name))
	}
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
	cmd := f.submitCommand(servers.Connect(), input, "--wait", "--id", "all")
	var notes bytes.Buffer
	cmd.Stderr = &notes
	if out, err := cmd.Output(); err != nil || string(out) != want {
		t.Errorf("%v, %d bytes of results, want %d\n%s", err, len(out), len(want), &notes)
	}
	if !strings.Contains(notes.String(), "batch all: 3000 done in ") {
		t.Error(&notes)
	}
	f.ended("all")
	notes.Reset()
	cmd = f.submitCommand(servers.Connect(), input, "--wait", "--id", "all")
	cmd.Stderr = &notes
	if out, _ := cmd.Output(); cmd.ProcessState.ExitCode() != 4 || len(out) != 0 ||
		!strings.Contains(notes.String(), "its results are gone") {
		t.Errorf("again: code %d, %q\n%s", cmd.ProcessState.ExitCode(), out, &notes)
	}
	notes.Reset()
	cmd = f.submitCommand(servers.Connect(), "a\x00dead\x00\x00b\n", "--wait", "--null")
	cmd.Stderr = &notes
	out, _ := cmd.Output()
	if cmd.ProcessState.ExitCode() != 3 || string(out) != "A\x00\x00B\n\x00" ||
		!strings.Contains(notes.String(), "task 1 is dead: ") || !strings.Contains(notes.String(), "as it was told") {
		t.Errorf("code %d, %q\n%s", cmd.ProcessState.ExitCode(), out, &notes)
	}
	cmd = f.submitCommand(servers.Connect(), "a\ndead\n", "--wait", "--json", "--quiet")
	out, _ = cmd.Output()
	if cmd.ProcessState.ExitCode() != 3 || !strings.Contains(string(out), `"result":"A"`) ||
		!strings.Contains(string(out), `"dead":true`) || strings.Count(string(out), "\n") != 2 {
		t.Errorf("code %d\n%s", cmd.ProcessState.ExitCode(), out)
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
		if err := first.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
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
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
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

// TestCommandsAboutALostOrBrokenBatch: Redis lost a batch, or somebody wrote into its keys. Each command that needs
// them ends with 4 and says what helps; so does one about a manifest that somebody wrote.
func TestCommandsAboutALostOrBrokenBatch(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.submit("lost", []byte("a"))
	f.submit("broken", []byte("b"))
	c, err := store.FromEnvironment("redis://"+sharedRedis(t).Addr()+"/0", credentials)
	if err != nil {
		t.Fatal(err)
	}
	client, err := store.Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	st := store.New(client, f.generation(), f.root+"/primes")
	if _, err := st.Remove(t.Context(), "lost", f.inRedis("lost").Life); err != nil {
		t.Fatal(err)
	}
	key := "muster:{" + f.generation() + "}:b:broken"
	if n, err := client.HDel(t.Context(), key, "born").Result(); n != 1 {
		t.Fatal(n, err)
	}
	for id, next := range map[string]string{
		"lost":   "next: submit it again with its --id, or: muster cancel " + f.root + "/primes/lost",
		"broken": "next: muster cancel " + f.root + "/primes/broken, then submit it again",
	} {
		for _, args := range [][]string{
			{"batch", "primes/" + id, "--results"}, {"pause", "primes/" + id}, {"retry", "primes/" + id},
		} {
			cmd := f.command(servers.Connect(), append(args, "--root", f.root)...)
			cmd.Env = append(cmd.Env, redisEnviron()...)
			if code, text := said(cmd); code != 4 || !strings.Contains(text, next) {
				t.Errorf("%s: code %d\n%s", args, code, text)
			}
		}
	}
	f.submit("unreadable", []byte("c"))
	at := resource.Join(znode.Batches(f.root, f.generation()), "unreadable")
	if _, err := f.s.Set(t.Context(), at, []byte("{"), -1); err != nil {
		t.Fatal(err)
	}
	if code, text := said(f.submitCommand(servers.Connect(), "c\n", "--id", "unreadable")); code != 1 ||
		!strings.Contains(text, at) || !strings.Contains(text, "next: delete that znode") {
		t.Errorf("unreadable: code %d\n%s", code, text)
	}
	code, text := said(f.submitCommand(servers.Connect(), "b\n", "--id", "broken"))
	if code != 4 || !strings.Contains(text, "/primes/broken, then submit it again") {
		t.Errorf("submit: code %d\n%s", code, text)
	}
}

// said runs a command, and returns its code and its standard error.
func said(cmd *exec.Cmd) (code int, text string) {
	var notes bytes.Buffer
	cmd.Stderr = &notes
	_ = cmd.Run() // the code tells
	return cmd.ProcessState.ExitCode(), notes.String()
}
