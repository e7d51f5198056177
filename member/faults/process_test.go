// Package faults tests groups with real processes and real ZooKeeper servers: a rolling upgrade, and members, commands,
// connections, servers and clocks that fail at random. It has no code of its own.
package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"muster/dev/daemon"
	"muster/dev/zkserver"
	"muster/sim/soak"
)

// process is a member as a process. It can be started again and again. One goroutine uses it at a time.
type process struct {
	w                 *world
	identity, version string
	program           string
	args              []string
	servers           []string
	proxies           []*zkserver.Proxy // one for each server; nil if it is not relayed
	clock             string            // file

	run    *daemon.Process
	frozen bool
}

// start starts it.
func (p *process) start() error {
	out, err := os.OpenFile(filepath.Join(p.w.dir, p.identity+".out"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(p.program, p.args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = p.w.environ(p), p.w.dir, out, out
	p.run, err = daemon.Start(cmd)
	return err
}

// kill kills it and returns when it has ended.
func (p *process) kill() {
	_ = p.run.Kill() // it returns when it has ended
	p.frozen = false
}

// freeze stops it, but not its guards and their commands.
func (p *process) freeze() error {
	p.frozen = true
	return p.run.OS.Signal(syscall.SIGSTOP)
}

func (p *process) thaw() error {
	p.frozen = false
	return p.run.OS.Signal(syscall.SIGCONT)
}

// leave asks it to end, and waits for that.
func (p *process) leave(limit time.Duration) error {
	if err := p.run.OS.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.run.Done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s has not left within %s", p.identity, limit)
	}
}

// shift sets its clock: by so much it is ahead of this machine's.
func (p *process) shift(by time.Duration) error {
	if by == 0 {
		return os.Remove(p.clock)
	}
	temp := p.clock + ".new"
	if err := os.WriteFile(temp, []byte(by.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, p.clock)
}

// cutOff makes the servers unreachable.
func (p *process) cutOff() error {
	for _, proxy := range p.proxies {
		proxy.Refuse(true)
		proxy.Cut()
	}
	return nil
}

// reachable ends cutOff.
func (p *process) reachable() error {
	for _, proxy := range p.proxies {
		proxy.Refuse(false)
	}
	return nil
}

// holdBack keeps all bytes back between the member and the servers.
func (p *process) holdBack() error {
	for _, proxy := range p.proxies {
		proxy.Hang(true)
	}
	return nil
}

// letGo ends holdBack.
func (p *process) letGo() error {
	for _, proxy := range p.proxies {
		proxy.Hang(false)
	}
	return nil
}

// bin is the directory of what the tests run: muster, clockmember (a member whose clock can be set), duty.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "muster-faults-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	if err := soak.Build(bin, map[string]string{
		"muster": "../..", "clockmember": "./testdata/member", "duty": "./testdata/duty",
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
