// Package faults tests queues with real processes, real ZooKeeper servers and a real Redis: many tasks, while
// executors, watchers, submitters, connections and servers fail at random; and bad input from one end to the other. It
// has no code of its own.
package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/dev/daemon"
	"muster/dev/fault"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks"
	"muster/zkstate/zkconn"
)

// process is an executor or a watcher. It can be started again and again. One goroutine uses it at a time.
type process struct {
	w       *world
	name    string
	argv    []string
	stdout  string         // a file of its own for standard output; "": that of standard error
	proxies []*fault.Proxy // one for each ZooKeeper server; nil if it is not relayed
	run     *daemon.Process
}

// add starts a process for the first time.
func (w *world) add(name string, relayed bool, argv ...string) *process {
	w.t.Helper()
	p := &process{w: w, name: name, argv: argv}
	if relayed {
		for _, addr := range w.ensemble.Addrs() {
			proxy := rig.Proxy(w.t, addr)
			p.proxies = append(p.proxies, proxy)
		}
	}
	w.processes[name] = p
	if err := p.start(); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// executor is the command line of an executor.
func (w *world) executor(flags ...string) []string {
	return append([]string{muster(), "executor", w.queue.Name}, flags...)
}

func (p *process) servers() (addrs []string) {
	for _, proxy := range p.proxies {
		addrs = append(addrs, proxy.Addr())
	}
	if addrs == nil {
		addrs = p.w.ensemble.Addrs()
	}
	return addrs
}

// start starts it.
func (p *process) start() error {
	out, err := os.OpenFile(filepath.Join(p.w.dir, p.name+".out"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = p.w.environ(p.servers(), "MUSTER_IDENTITY="+p.name), p.w.dir, out, out
	if p.stdout != "" {
		own, err := os.Create(p.stdout)
		if err != nil {
			return err
		}
		defer own.Close()
		cmd.Stdout = own
	}
	p.run, err = daemon.Start(cmd)
	return err
}

// signal sends a signal. It is no error if the process has ended.
func (p *process) signal(s syscall.Signal) error {
	if err := p.run.OS.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// kill kills it and returns when it has ended.
func (p *process) kill() {
	_ = p.run.Kill() // it may have ended
}

// leave asks it to end, and waits for that.
func (p *process) leave(limit time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.run.Done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s has not left within %s", p.name, limit)
	}
}

// each calls do for each proxy.
func (p *process) each(do func(*fault.Proxy)) {
	for _, proxy := range p.proxies {
		do(proxy)
	}
}

// commands are the living commands of this world's processes, by their process ids: what acts. They have the directory
// of the world among their arguments.
func (w *world) commands() map[int]string {
	found := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		args := bytes.Split(body, []byte{0})
		if len(args) < 3 || string(args[0]) != self || !strings.HasPrefix(string(args[1]), "act-") ||
			string(args[2]) != w.dir {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			found[pid] = string(args[1])
		}
	}
	return found
}

// killCommand kills one of the commands, if it still is one after it was found.
func (w *world) killCommand(choose func(n int) int) error {
	all := w.commands()
	var pids []int
	for pid, act := range all {
		if act != "act-go" {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return nil
	}
	pid := pids[choose(len(pids))]
	found, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer found.Release()
	if w.commands()[pid] == all[pid] {
		_ = found.Kill() // it may have ended
	}
	return nil
}

// patience is how long to wait for what must happen. A busy machine may be slow: only a test that fails waits so long.
const patience = 5 * time.Minute

var (
	bin  string // the directory of muster
	self string // this program, which is also the command of executors and watchers: see act
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && acts[os.Args[1]] != nil {
		os.Exit(acts[os.Args[1]](os.Args[2:]))
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	var err error
	if self, err = os.Executable(); err == nil {
		bin, err = os.MkdirTemp("", "muster-faults-")
	}
	if err == nil {
		defer os.RemoveAll(bin)
		err = rig.Build(bin, map[string]string{"muster": "../.."})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func muster() string { return filepath.Join(bin, "muster") }

// actGo is an executor in Go. Its arguments are the directory and how many executors it is, each with a session of its
// own; with a third one tasks take no time. It ends at SIGTERM.
func actGo(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n, err := strconv.Atoi(args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			name := os.Getenv("MUSTER_IDENTITY")
			if n > 1 {
				name = fmt.Sprint(name, "-", i)
			}
			for ctx.Err() == nil {
				if err := execute(ctx, args[0], name, len(args) > 2); err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, name, err)
					zkconn.Pause(ctx, 100*time.Millisecond) // as a supervisor would
				}
			}
		})
	}
	all.Wait()
	return 0
}

// execute executes tasks until the membership ends.
func execute(ctx context.Context, dir, name string, quick bool) error {
	timeout, err := time.ParseDuration(os.Getenv("FAULTS_SESSION"))
	if err != nil {
		return err
	}
	s, err := zkconn.Dial(ctx, zkconn.Config{
		Servers: strings.Split(os.Getenv("MUSTER_SERVERS"), ","), Timeout: timeout,
	})
	if err != nil {
		return err
	}
	defer s.Close()
	joining, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, err := tasks.Join(joining, s, tasks.Config{
		Root: os.Getenv("MUSTER_ROOT"), Queue: os.Getenv("FAULTS_QUEUE"), Identity: name, Role: queue.Executor,
		Parallel: 4, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	c := tasks.ExecutorConfig{Parallel: 4}
	err = tasks.Execute(ctx, p, c, func(ctx context.Context, t *tasks.Task) ([]byte, error) {
		if quick {
			return t.Payload, nil
		}
		result, err := perform(ctx, dir, string(t.Payload))
		if errors.Is(err, errNever) {
			err = fmt.Errorf("%w: %w", tasks.ErrNever, err)
		}
		return []byte(result), err
	})
	return errors.Join(err, p.Leave())
}
