package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster/dev/daemon"
	"muster/dev/zkserver"
	"muster/sim/rig"
)

// process is an executor or a watcher. It can be started again and again. One goroutine uses it at a time.
type process struct {
	w       *world
	name    string
	argv    []string
	stdout  string            // a file of its own for standard output; "": that of standard error
	proxies []*zkserver.Proxy // one for each ZooKeeper server; nil if it is not relayed
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
func (p *process) each(do func(*zkserver.Proxy)) {
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
