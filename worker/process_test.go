package worker_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/zkconn"
)

// A test that needs a process to kill or to stop runs this test binary again as one, which follows a script:
// a list of words, each answered on standard output by a line. A duration before them is its session timeout; the
// line "<word> lost" says that it has lost its session. It ends with its standard input.
const (
	childScript  = "MUSTER_TEST_SCRIPT"
	childServers = "MUSTER_TEST_SERVERS"
	childJob     = "MUSTER_TEST_JOB" // root, name
	childWorkers = "MUSTER_TEST_IDENTITIES"
)

// child is such a process.
type child struct {
	cmd   *exec.Cmd
	lines chan string // closed when it has ended
}

func spawn(t *testing.T, j job.Job, script, identities string, addrs ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000)}
	c.cmd.Env = append(os.Environ(), childScript+"="+script, childServers+"="+strings.Join(addrs, ","),
		childJob+"="+j.Root+" "+j.Name, childWorkers+"="+identities)
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		defer c.cmd.Wait()
		for in := bufio.NewScanner(stdout); in.Scan(); {
			c.lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		c.cmd.Process.Kill()
		for range c.lines {
		}
	})
	return c
}

// kill ends the process at once and returns when it is gone, with what it said last.
func (c *child) kill() []string {
	c.cmd.Process.Kill()
	var last []string
	for line := range c.lines {
		last = append(last, line)
	}
	return last
}

// quit ends the process with the stacks of its goroutines on standard error.
func (c *child) quit() error {
	err := c.cmd.Process.Signal(syscall.SIGQUIT)
	for range c.lines {
	}
	return err
}

// expect waits for a line.
func (c *child) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got, ok := <-c.lines:
		if got != want {
			t.Fatalf("the process said %q (%v), want %q", got, ok, want)
		}
	case <-time.After(patience):
		t.Fatalf("the process did not say %q", want)
	}
}

// reach waits until the process has come to a fault. It may have joined before.
func (c *child) reach(t *testing.T, fault <-chan struct{}) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case <-fault:
			return
		case line, alive := <-c.lines:
			if (!alive || !strings.HasPrefix(line, "joined ")) && !happened(fault) {
				t.Fatalf("the process said %q (%v) before the fault", line, alive)
			}
		case <-limit:
			t.Fatal("the process did not come to the fault")
		}
	}
}

// childMain is the process.
func childMain() int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		}
		os.Exit(0)
	}()
	root, name, _ := strings.Cut(os.Getenv(childJob), " ")
	cfg := zkconn.Config{Servers: strings.Split(os.Getenv(childServers), ","), Timeout: time.Second}
	script := strings.Fields(os.Getenv(childScript))
	if timeout, err := time.ParseDuration(script[0]); err == nil {
		script, cfg.Timeout = script[1:], timeout
	}
	if script[0] == "many" {
		return childMany(ctx, cfg, root, name)
	}
	s, err := zkconn.Dial(ctx, cfg)
	if err != nil {
		fmt.Println("dial", err)
		return 1
	}
	j := job.Job{Common: resource.Common{Root: root, Name: name}}
	m, err := worker.Join(ctx, s, config(j, os.Getenv(childWorkers)))
	if err != nil {
		fmt.Println("join", outcome(err, s))
		return 1
	}
	fmt.Println("joined", m.ID)
	for _, word := range script {
		switch word {
		case "leave":
			err = m.Leave(ctx, worker.End{})
		case "complete":
			err = m.Complete(ctx, 0)
		case "stay":
			<-m.Context().Done()
			err = context.Cause(m.Context())
		case "rejoin":
			var next *zkconn.Session
			if next, err = zkconn.Dial(ctx, cfg); err == nil {
				s = next
				_, err = m.Rejoin(ctx, s)
			}
		}
		fmt.Println(word, outcome(err, s))
	}
	<-ctx.Done()
	return 0
}

// outcome is the word for err, which a call in s returned.
func outcome(err error, s *zkconn.Session) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, worker.ErrFenced):
		return "fenced"
	case errors.Is(err, worker.ErrDone):
		return "done"
	case errors.Is(err, zkconn.ErrSessionLost), errors.Is(err, worker.ErrUnfinished) && s.Context().Err() != nil:
		return "lost"
	}
	return err.Error()
}
