package cli_test

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/report"
)

var stopSignals = map[string]syscall.Signal{
	"SIGHUP": syscall.SIGHUP, "SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM,
}

// runningCommand is a command to which a test sends signals.
type runningCommand struct {
	cmd    *exec.Cmd
	out    bytes.Buffer
	errors bytes.Buffer
	ended  chan struct{}
}

func startCommand(t *testing.T, cmd *exec.Cmd) *runningCommand {
	t.Helper()
	r := &runningCommand{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &r.out, &r.errors
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		_ = cmd.Wait() // the code tells
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-r.ended })
	return r
}

// waitFor waits for an event while the command runs.
func (r *runningCommand) waitFor(t *testing.T, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-r.ended:
		t.Fatalf("it has ended\n%s%s", r.out.String(), r.errors.String())
	}
}

// wait waits for the end of the command.
func (r *runningCommand) wait(t *testing.T) outcome {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	return outcome{r.cmd.ProcessState.ExitCode(), r.out.String(), r.errors.String()}
}

// hangAt makes the server hang at each matching request, and sends on hung. release ends that until the next such
// request.
func hangAt(proxy *fault.Proxy, at func(op int32) bool) (hung <-chan struct{}, release func()) {
	c := make(chan struct{}, 1000)
	proxy.BeforeSend(func(op int32, _ []byte) bool {
		if at(op) {
			proxy.Hang(true)
			c <- struct{}{}
		}
		return false
	})
	return c, func() { proxy.Hang(false) }
}

// releaseUntilEnd releases every request that hangs until the command has ended.
func (r *runningCommand) releaseUntilEnd(hung <-chan struct{}, release func()) {
	release()
	for {
		select {
		case <-hung:
			release()
		case <-r.ended:
			return
		}
	}
}

// TestSignalWhileReading: plan and drift have no write in flight, so they end at once.
func TestSignalWhileReading(t *testing.T) {
	t.Parallel()
	for name, sig := range stopSignals {
		for _, command := range []string{"plan", "drift"} {
			t.Run(name+"_"+command, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, 10, "")
				f.mustApply(t)
				proxy := newProxy(t, 0)
				n := 0
				hung, _ := hangAt(proxy, func(int32) bool { n++; return n == 10 })
				args := append(reportingCommands[command], f.reportFlags(t)...)
				r := startCommand(t, f.command(proxy.Addr(), args...))
				r.waitFor(t, hung)
				sendSignal(t, r.cmd, sig)
				expect(t, r.wait(t), 128+int(sig), "stopped by a signal: "+sig.String()+"\n")
				f.checkReports(t, 128+int(sig), "stopped by a signal")
				f.checkMarkdownSignal(t, sig)
			})
		}
	}
}

// checkMarkdownSignal checks that the markdown report has the code and its meaning.
func (f fixture) checkMarkdownSignal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	want := fmt.Sprintf("(exit code %d: stopped by a signal)", 128+int(sig))
	if got := read(t, filepath.Join(f.dir, "r.markdown")); !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// TestSignalWhileConnecting: a signal ends the wait for a server.
func TestSignalWhileConnecting(t *testing.T) {
	for command, args := range reportingCommands {
		t.Run(command, func(t *testing.T) {
			f := newFixture(t, 1, "")
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			r := startCommand(t, f.command(silent.Addr().String(), append(args, f.reportFlags(t)...)...))
			if _, err := silent.Accept(); err != nil {
				t.Fatal(err)
			}
			sendSignal(t, r.cmd, syscall.SIGTERM)
			expect(t, r.wait(t), 143, "stopped by a signal: terminated\n")
			f.checkReports(t, 143, "stopped by a signal: terminated")
		})
	}
}

// TestSignalDuringAnApply: the change in flight is finished and reported, the rest is not started.
func TestSignalDuringAnApply(t *testing.T) {
	for name, sig := range stopSignals {
		t.Run(name, func(t *testing.T) {
			const jobs = 100
			f := newFixture(t, jobs, "")
			proxy := newProxy(t, 0)
			var changes atomic.Int32
			hung, release := hangAt(proxy, func(op int32) bool { return op == fault.OpMulti && changes.Add(1) > 3 })
			r := startCommand(t, f.command(proxy.Addr(), append(reportingCommands["apply"], f.reportFlags(t)...)...))
			r.waitFor(t, hung)
			sendSignal(t, r.cmd, sig)
			r.releaseUntilEnd(hung, release)
			expect(t, r.wait(t), 128+int(sig), "Applied ", "  not started  job.j[")
			f.checkReports(t, 128+int(sig), "stopped by a signal")
			made := strings.Count(read(t, filepath.Join(f.dir, "r.json")), `"result": "applied"`)
			if made < 4 || made == jobs {
				t.Errorf("%d of %d changes are reported as applied", made, jobs)
			}
			f.mustApply(t)
			expect(t, result(f.command(servers.Connect(), "plan", "--detailed-exitcode")), 0, "100 jobs match")
		})
	}
}

// startHangingApply starts an apply with reports, and returns while its first change hangs.
func startHangingApply(t *testing.T) (f fixture, r *runningCommand, hung <-chan struct{}, release func()) {
	t.Helper()
	f = newFixture(t, 10, "")
	proxy := newProxy(t, 0)
	hung, release = hangAt(proxy, func(op int32) bool { return op == fault.OpMulti })
	r = startCommand(t, f.command(proxy.Addr(), append(reportingCommands["apply"], f.reportFlags(t)...)...))
	r.waitFor(t, hung)
	return f, r, hung, release
}

// TestRepeatedSignal: a signal that comes several times at once, as from timeout(1), counts as one.
func TestRepeatedSignal(t *testing.T) {
	f, r, hung, release := startHangingApply(t)
	for range 5 {
		sendSignal(t, r.cmd, syscall.SIGTERM)
	}
	r.releaseUntilEnd(hung, release)
	expect(t, r.wait(t), 143, "Applied ", "  not started  job.j[")
	f.checkReports(t, 143, "stopped by a signal")
}

// TestSecondSignal ends an apply at once. It prints that reports may be missing, and older reports are as before.
func TestSecondSignal(t *testing.T) {
	f, r, _, _ := startHangingApply(t)
	sendSignal(t, r.cmd, syscall.SIGTERM)
	again := time.NewTicker(100 * time.Millisecond) // the first may not have arrived yet
	defer again.Stop()
	late := time.After(time.Minute)
	for ended := false; !ended; {
		select {
		case <-again.C:
			_ = r.cmd.Process.Signal(syscall.SIGINT) // it may just have ended
		case <-r.ended:
			ended = true
		case <-late:
			t.Fatal("it does not end")
		}
	}
	expect(t, r.wait(t), 130, "muster: stopped at once by a second signal: interrupt; reports may be missing\n"+
		"  next: muster plan shows what is left, if this was an apply\n")
	for _, kind := range report.Formats() {
		if got := read(t, filepath.Join(f.dir, "r."+kind)); got != olderReport {
			t.Errorf("the %s report is now\n%s", kind, got)
		}
	}
	f.checkNoTempFiles(t)
}
