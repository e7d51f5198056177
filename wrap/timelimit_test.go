package wrap

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/worker"
)

// answeredSoon fails the test if no answer comes while the session stays lost.
func answeredSoon(t *testing.T, what string, answers <-chan error) error {
	t.Helper()
	select {
	case err := <-answers:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s: no answer", what)
		return nil
	}
}

// TestTimeRunsOutWhileTheSessionIsLost, for what was asked before the loss and after it. An arrival stands, and the
// round is aborted for nobody.
func TestTimeRunsOutWhileTheSessionIsLost(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 3), newProxy(t)
	c0 := startWorkerAt(f, "w0", "environ obeys:0", p.Addr()).client()
	c1 := startWorker(f, "w1", "environ obeys:0").client()
	arrived := p.AfterReply(func(_ int32, req []byte) bool {
		if !bytes.Contains(req, []byte("/barrier/before/0/c/c-")) {
			return false
		}
		p.Refuse(true)
		return true
	})
	answers := map[string]chan error{}
	for _, what := range []string{"wait", "before", "after"} {
		answers[what] = make(chan error, 1)
	}
	go func() { answers["wait"] <- c0.Wait(t.Context(), Wait{Timeout: "15s"}) }()
	go func() { answers["before"] <- c0.Barrier(t.Context(), Barrier{Name: "before", Timeout: "15s"}) }()
	<-arrived
	await(t, "the session expires", func() bool { return f.look().Live == 1 })
	go func() { answers["after"] <- c0.Barrier(t.Context(), Barrier{Name: "after", Timeout: "200ms"}) }()
	for what, text := range map[string]string{
		"wait":   "it is not known whether all 3 workers have joined",
		"before": "at round 0 of barrier before",
		"after":  "at barrier after",
	} {
		err := answeredSoon(t, what, answers[what])
		if !errors.Is(err, ErrLate) || !strings.Contains(err.Error(), text) ||
			!strings.Contains(err.Error(), "ZooKeeper") {
			t.Errorf("%s: %v", what, err)
		}
	}
	c2 := startWorker(f, "w2", "environ obeys:0").client()
	others := make(chan error, 2)
	for _, c := range []*Client{c1, c2} {
		go func() { others <- c.Barrier(t.Context(), Barrier{Name: "before"}) }()
	}
	for range 2 {
		if err := answeredSoon(t, "the others", others); err != nil {
			t.Errorf("the arrival did not stand: %v", err)
		}
	}
	p.Refuse(false)
	zero := 0
	if err := c0.Barrier(t.Context(), Barrier{Name: "before", Round: &zero}); err != nil {
		t.Errorf("asking again: %v", err)
	}
}

// TestTheTimeOfABarrierIsOneTime, in however many sessions: what remains of it after a loss aborts the round.
func TestTheTimeOfABarrierIsOneTime(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 2), newProxy(t)
	c0 := startWorkerAt(f, "w0", "environ obeys:0", p.Addr()).client()
	arrived := p.AfterReply(func(_ int32, req []byte) bool { return bytes.Contains(req, []byte("/barrier/b/0/c/c-")) })
	answers := make(chan error, 1)
	begun := time.Now()
	go func() { answers <- c0.Barrier(t.Context(), Barrier{Name: "b", Timeout: "15s"}) }()
	<-arrived
	lose(p, f)
	var aborted *worker.AbortedError
	if err := answeredSoon(t, "the barrier", answers); !errors.As(err, &aborted) {
		t.Fatal(err)
	}
	await(t, "it joins again", func() bool { return f.look().Live == 1 })
	remained, err := time.ParseDuration(aborted.Why[strings.LastIndex(aborted.Why, " ")+1:])
	if err != nil || remained >= 15*time.Second {
		t.Errorf("%s after %s: %v, %v", aborted.Why, time.Since(begun), remained, err)
	}
}

// TestTheWayToTheStartHasALimit while nobody can be asked, and at the start barrier also where it leads through many
// sessions.
func TestTheWayToTheStartHasALimit(t *testing.T) {
	const (
		address = "it is not known where worker 0 is: ZooKeeper does not answer"
		roll    = "it is not known who has joined: ZooKeeper does not answer"
		barrier = "at the start barrier, and its outcome is not known"
		aborted = "the start barrier was aborted"
		arrival = "/barrier/.start/0/a/"
	)
	for name, c := range map[string]struct {
		start Start
		op    int32
		path  string // of the first request that does not reach the server, or the job's
		back  bool   // there is a server again, for another session, which aborts the barrier for all
		text  string
	}{
		"address":                 {StartJoined, zkserver.OpGetData, "/id/n-0000000000", false, address},
		"roll":                    {StartAll, zkserver.OpGetData, "", false, roll},
		"barrier":                 {StartBarrier, zkserver.OpMulti, arrival, false, barrier},
		"barrier_in_two_sessions": {StartBarrier, zkserver.OpMulti, arrival, true, aborted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p := newTestJob(t, 0), newProxy(t)
			f.job.Workers = 2
			f.job.Timeouts.Join, f.job.Timeouts.Barrier = resource.Duration(10*time.Second), resource.Duration(10*time.Second)
			f.create()
			path := cmp.Or(c.path, f.job.Path())
			gone := p.BeforeSend(func(op int32, req []byte) bool {
				if op != c.op || !bytes.Contains(req, []byte(path)) {
					return false
				}
				p.Refuse(true)
				return true
			})
			w := startWorkerAt(f, "w0", "obeys:0", p.Addr(), starting(c.start))
			<-w.joined
			startWorker(f, "w1", "obeys:0").says("ready")
			<-gone
			if c.back {
				await(t, "the session expires", func() bool { return f.look().Live == 1 })
				p.Refuse(false)
			}
			e := w.ends()
			if late := errors.Is(e.Err, ErrLate); late == c.back || !strings.Contains(e.Err.Error(), c.text) {
				t.Errorf("%+v", e)
			}
		})
	}
}
