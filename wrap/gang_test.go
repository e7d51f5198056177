package wrap

import (
	"errors"
	"log/slog"
	"syscall"
	"testing"

	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/zkstate/znode"
)

// newTestGang makes a gang of n workers, which may fail a few times.
func newTestGang(t *testing.T, n int) *testJob {
	t.Helper()
	f := newTestJob(t, 0)
	f.job.Workers, f.job.Gang = n, &job.Gang{Restarts: 5, Wait: resource.Duration(long)}
	f.create()
	return f
}

func asGang(c *Config) { c.Start, c.OnLoss = "", "" }

// TestALossWithinTheGraceOfAGang: a command that has its grace, since its attempt is over, is killed with its session.
func TestALossWithinTheGraceOfAGang(t *testing.T) {
	t.Parallel()
	f, p := newTestGang(t, 2), rig.Proxy(t, servers.Addrs()[0])
	other := startWorker(f, "w1", "ends:9 obeys:0", asGang)
	w := startWorkerAt(f, "w0", "leaves:ignores ignores", p.Addr(), asGang)
	rest := w.pid("left")
	leader := w.pid("ready")
	other.says("ready")
	other.signals <- syscall.SIGUSR1
	w.says("got SIGTERM")
	cutOff(p)
	f.expires(1)
	for _, pid := range []int{leader, rest} {
		rig.Await(t, "its end", func() bool { return !lives(t, pid) })
	}
	p.Refuse(false)
	leader = w.pid("ready")
	other.says("ready")
	w.signals <- syscall.SIGTERM
	w.says("got SIGTERM")
	_ = syscall.Kill(-leader, syscall.SIGKILL)
	if e := w.ends(); e.Code != 128+int(syscall.SIGKILL) {
		t.Errorf("%+v", e)
	}
}

// TestAnAttemptThatIsPutBack: somebody has written an attempt that is over. A worker says so, does not ask all the
// time, and goes on as soon as that is put right.
func TestAnAttemptThatIsPutBack(t *testing.T) {
	t.Parallel()
	f := newTestGang(t, 2)
	at := func() string { return znode.GangAttemptAt(f.job.Root, f.look().Record.Generation) }
	first := startWorker(f, "w0", "obeys:0", asGang)
	w := startWorker(f, "w1", "obeys:0", asGang)
	w.says("ready")
	over, _, err := f.s.Get(t.Context(), at())
	w.signals <- syscall.SIGTERM
	w.ends()
	next, _, err2 := f.s.Get(t.Context(), at())
	_, err3 := f.s.Set(t.Context(), at(), over, -1)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	log := slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	w = startWorker(f, "w1", "obeys:0", asGang, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(c.Files[1], &log))
	})
	w.says(`level=WARN msg="the attempt is over, and no other has begun"`)
	if _, err := f.s.Set(t.Context(), at(), next, -1); err != nil {
		t.Fatal(err)
	}
	w.says("ready")
	first.says("ready")
}
