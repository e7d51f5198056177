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

	"muster/report"
	"muster/zkserver"
)

var stopSignals = map[string]syscall.Signal{"SIGHUP": syscall.SIGHUP, "SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM}

// running is a command that a test watches and signals.
type running struct {
	cmd    *exec.Cmd
	out    bytes.Buffer
	errors bytes.Buffer
	ended  chan struct{}
}

func begin(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{cmd: cmd, ended: make(chan struct{})}
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

func (r *running) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// until waits for something that happens while it runs.
func (r *running) until(t *testing.T, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-r.ended:
		t.Fatalf("it has ended\n%s%s", r.out.String(), r.errors.String())
	}
}

// end waits for it.
func (r *running) end(t *testing.T) outcome {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	return outcome{r.cmd.ProcessState.ExitCode(), r.out.String(), r.errors.String()}
}

// hangs makes the server go silent at a request, and tells; release lets everything flow until the next such request.
func hangs(proxy *zkserver.Proxy, at func(op int32) bool) (hung <-chan struct{}, release func()) {
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

// finish lets go of whatever hangs until it has ended.
func (r *running) finish(hung <-chan struct{}, release func()) {
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

// TestSignalInTheMiddleOfReading: nothing is in flight that would have to be finished, so a plan and a check end at once.
func TestSignalInTheMiddleOfReading(t *testing.T) {
	t.Parallel()
	for name, sig := range stopSignals {
		for _, command := range []string{"plan", "drift"} {
			t.Run(name+"_"+command, func(t *testing.T) {
				t.Parallel()
				b := newBed(t, 10, "")
				b.ready(t)
				proxy := slowProxy(t, 0)
				n := 0
				hung, _ := hangs(proxy, func(int32) bool { n++; return n == 10 })
				r := begin(t, b.command(proxy.Addr(), append(commandsOfReports[command], b.everyReport(t)...)...))
				r.until(t, hung)
				r.signal(t, sig)
				expect(t, r.end(t), 128+int(sig), "stopped by a signal: "+sig.String()+"\n")
				b.told(t, 128+int(sig), "stopped by a signal")
				b.markdownEnds(t, sig)
			})
		}
	}
}

// markdownEnds fails the test unless the markdown report has the code's meaning beside it.
func (b bed) markdownEnds(t *testing.T, sig syscall.Signal) {
	t.Helper()
	want := fmt.Sprintf("(exit code %d: stopped by a signal)", 128+int(sig))
	if got := read(t, filepath.Join(b.dir, "r.markdown")); !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// TestSignalWhileConnecting: a server that is not there is no reason to forget the signal.
func TestSignalWhileConnecting(t *testing.T) {
	for command, args := range commandsOfReports {
		t.Run(command, func(t *testing.T) {
			b := newBed(t, 1, "")
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			r := begin(t, b.command(silent.Addr().String(), append(args, b.everyReport(t)...)...))
			if _, err := silent.Accept(); err != nil {
				t.Fatal(err)
			}
			r.signal(t, syscall.SIGTERM)
			expect(t, r.end(t), 143, "stopped by a signal: terminated\n")
			b.told(t, 143, "stopped by a signal: terminated")
		})
	}
}

// TestSignalInTheMiddleOfAnApply: the change in flight is finished and told, the rest is not started.
func TestSignalInTheMiddleOfAnApply(t *testing.T) {
	for name, sig := range stopSignals {
		t.Run(name, func(t *testing.T) {
			const jobs = 100
			b := newBed(t, jobs, "")
			proxy := slowProxy(t, 0)
			var changes atomic.Int32
			hung, release := hangs(proxy, func(op int32) bool { return op == zkserver.OpMulti && changes.Add(1) > 3 })
			r := begin(t, b.command(proxy.Addr(), append(commandsOfReports["apply"], b.everyReport(t)...)...))
			r.until(t, hung)
			r.signal(t, sig)
			r.finish(hung, release)
			expect(t, r.end(t), 128+int(sig), "Applied ", "  not started  job.j[")
			b.told(t, 128+int(sig), "stopped by a signal")
			if made := strings.Count(read(t, filepath.Join(b.dir, "r.json")), `"result": "applied"`); made < 4 || made == jobs {
				t.Errorf("%d of %d changes are reported as applied", made, jobs)
			}
			expect(t, result(b.command(servers.Connect(), "apply", "--yes")), 0)
			expect(t, result(b.command(servers.Connect(), "plan", "--detailed-exitcode")), 0, "100 jobs match")
		})
	}
}

// applyHangs begins an apply that reports, and returns while its first change is in flight.
func applyHangs(t *testing.T) (b bed, r *running, hung <-chan struct{}, release func()) {
	t.Helper()
	b = newBed(t, 10, "")
	proxy := slowProxy(t, 0)
	hung, release = hangs(proxy, func(op int32) bool { return op == zkserver.OpMulti })
	r = begin(t, b.command(proxy.Addr(), append(commandsOfReports["apply"], b.everyReport(t)...)...))
	r.until(t, hung)
	return b, r, hung, release
}

// TestEchoOfASignal: a signal that comes several times at once, as from timeout(1), is one.
func TestEchoOfASignal(t *testing.T) {
	b, r, hung, release := applyHangs(t)
	for range 5 {
		r.signal(t, syscall.SIGTERM)
	}
	r.finish(hung, release)
	expect(t, r.end(t), 143, "Applied ", "  not started  job.j[")
	b.told(t, 143, "stopped by a signal")
}

// TestSecondSignal ends an apply at once: older reports are as they were, and it says that there is no other.
func TestSecondSignal(t *testing.T) {
	b, r, _, _ := applyHangs(t)
	r.signal(t, syscall.SIGTERM)
	again := time.NewTicker(100 * time.Millisecond) // the first may still be on its way, and two of a kind become one
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
	expect(t, r.end(t), 130, "muster: stopped at once by a second signal: interrupt; reports may be missing\n  next: muster plan shows what is left, if this was an apply\n")
	for _, kind := range report.Kinds() {
		if got := read(t, filepath.Join(b.dir, "r."+kind)); got != older {
			t.Errorf("the %s report is now\n%s", kind, got)
		}
	}
	b.nothingHalfWritten(t)
}
