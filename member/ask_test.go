package member_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// ask sends a request and waits for the assigner's decision.
func (f *fixture) ask(a znode.Ask) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	a.By = "ops@host"
	path, err := member.SendAsk(ctx, f.s, f.group.Root, f.group.Name, a)
	if err == nil {
		err = member.AwaitAnswer(ctx, f.s, path)
	}
	f.must(err)
}

// requests lists the requests that wait, and counts those that the log has.
func (f *fixture) requests() (waiting []string, logged int) {
	f.t.Helper()
	dir := znode.Asks(f.group.Root, f.generation())
	waiting, _, err := f.s.Children(f.t.Context(), dir)
	f.must(err)
	body, _, err := f.s.Get(f.t.Context(), dir)
	f.must(err)
	log, err := znode.DecodeOrZero[znode.AskLog](body)
	f.must(err)
	return waiting, len(log.Last)
}

// TestARequestWaitsForTheFirstMember: nobody has ever joined when the duty is paused.
func TestARequestWaitsForTheFirstMember(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator", "other")
	path, err := member.SendAsk(t.Context(), f.s, f.group.Root, f.group.Name,
		znode.Ask{Do: znode.AskPause, Duty: "coordinator", By: "ops@host"})
	if err != nil || !strings.HasPrefix(path, znode.NewAsk(f.group.Root, f.generation())) {
		t.Fatalf("%q, %v", path, err)
	}
	if o := f.look(); o.Status() != resource.StatusReady {
		t.Errorf("the group is %s: %v", o.Status(), o.Lost)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a := f.join("a", "1.0", "coordinator", "other")
	f.must(member.AwaitAnswer(ctx, f.s, path))
	f.take(a, "other")
	body, _, err := f.s.Get(t.Context(), znode.SeatAt(f.group.Root, f.generation(), "s-0000000000"))
	f.must(err)
	if seat, err := znode.Decode[znode.Seat](body); err != nil || len(seat.Duties) != 1 {
		t.Errorf("the member has %v, %v", seat.Duties, err)
	}
}

// TestRequestsThatAreRefused: nothing is written.
func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator", "other")
	f.change(func(g *group.Group) {
		d := group.NewDuty(group.Leader, "new")
		d.Versions = ">= 2.0"
		g.Add(d)
	})
	f.join("a", "1.0", "coordinator", "new")
	handover := func(duty, to string) znode.Ask { return znode.Ask{Do: znode.AskHandover, Duty: duty, To: to} }
	for name, c := range map[string]struct {
		group string
		ask   znode.Ask
		want  error
		text  string
	}{
		"no_group":       {"none", znode.Ask{Do: znode.AskPause, Duty: "coordinator"}, member.ErrNoGroup, "none"},
		"no_duty":        {"shop", znode.Ask{Do: znode.AskPause, Duty: "nope"}, member.ErrNoDuty, "shop/nope"},
		"not_live":       {"shop", handover("other", "z"), member.ErrUnfit, "z is not live"},
		"not_listed":     {"shop", handover("other", "a"), member.ErrUnfit, "list"},
		"not_fitting":    {"shop", handover("new", "a"), member.ErrUnfit, "wants >= 2.0"},
		"no_such_action": {"shop", znode.Ask{Do: "destroy", Duty: "other"}, nil, "not known"},
	} {
		_, err := member.SendAsk(t.Context(), f.s, f.group.Root, c.group, c.ask)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	if waiting, logged := f.requests(); len(waiting)+logged > 0 {
		t.Errorf("written: %v, %d in the log", waiting, logged)
	}
}

// TestTooManyRequestsWait for an assigner that does not come.
func TestTooManyRequestsWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	pause := znode.Ask{Do: znode.AskPause, Duty: "coordinator"}
	if _, err := member.SendAsk(t.Context(), f.s, f.group.Root, f.group.Name, pause); err != nil {
		t.Fatal(err)
	}
	var ops []zkconn.Op
	for range znode.MaxAsks - 2 {
		ops = append(ops, zkconn.CreateOp(znode.NewAsk(f.group.Root, f.generation()), []byte("{}"),
			zkconn.PersistentSequential, zkconn.World(zkconn.PermAll)))
	}
	if _, err := f.s.Multi(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	if _, err := member.SendAsk(t.Context(), f.s, f.group.Root, f.group.Name, pause); err != nil {
		t.Errorf("the last that is allowed: %v", err)
	}
	if _, err := member.SendAsk(t.Context(), f.s, f.group.Root, f.group.Name, pause); !errors.Is(err, member.ErrManyAsks) {
		t.Errorf("error = %v", err)
	}
}

// TestARequestIsNeverWrittenTwice, wherever its reply is lost, and whether or not an assigner deletes it at once.
func TestARequestIsNeverWrittenTwice(t *testing.T) {
	t.Parallel()
	isMulti := func(op int32, _ []byte) bool { return op == fault.OpMulti }
	for name, fault := range map[string]func(*fault.Proxy) <-chan struct{}{
		"before":      func(p *fault.Proxy) <-chan struct{} { return p.BeforeSend(isMulti) },
		"reply lost":  func(p *fault.Proxy) <-chan struct{} { return p.DropReply(isMulti) },
		"after reply": func(p *fault.Proxy) <-chan struct{} { return p.AfterReply(isMulti) },
	} {
		for _, live := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, live %v", name, live), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, "coordinator")
				if live {
					f.take(f.join("a", "1.0", "coordinator"), "coordinator")
				}
				proxy := newProxy(t)
				s := dial(t, proxy.Addr())
				fired := fault(proxy)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				path, err := member.SendAsk(ctx, s, f.group.Root, f.group.Name,
					znode.Ask{Do: znode.AskPause, Duty: "coordinator"})
				if err == nil {
					<-fired
				}
				if err == nil && live {
					err = member.AwaitAnswer(ctx, s, path)
				}
				f.must(err)
				waiting, logged := f.requests()
				if logged != 1 || len(waiting) != 1 && !live || len(waiting) != 0 && live {
					t.Errorf("%d requests were written, and %v wait", logged, waiting)
				}
			})
		}
	}
}

// askRun asks for a run.
func (f *fixture) askRun(want int64) {
	f.t.Helper()
	got, err := member.AskRun(f.t.Context(), f.s, f.group.Root, f.group.Name, job, "me@here")
	if err != nil || got != want {
		f.t.Fatalf("request %d, %v; want %d", got, err, want)
	}
}

// send sends a request to the assigner.
func (f *fixture) send(a znode.Ask) {
	f.t.Helper()
	body, err := znode.Encode(a)
	if err == nil {
		path := znode.NewAsk(f.group.Root, f.generation())
		_, err = f.s.Create(f.t.Context(), path, body, zkconn.PersistentSequential, zkconn.World(zkconn.PermAll))
	}
	f.must(err)
}

// isHeld reports whether somebody holds the cron.
func (f *fixture) isHeld() bool {
	f.t.Helper()
	_, there, err := f.s.Exists(f.t.Context(), znode.Held(f.group.Root, f.generation(), job))
	f.must(err)
	return there
}

// TestRunNowWhileDeleting: nobody asks for a run while the assigner deletes what the cron had left before it was
// declared again, because the request would be deleted too.
func TestRunNowWhileDeleting(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule = "@yearly" })
	f.askRun(1) // makes the folders
	body, err := znode.EncodeAssigner(znode.AssignerMemory{Purge: []string{job}})
	if err == nil {
		_, err = f.s.Set(t.Context(), f.run("assigner"), body, -1)
	}
	f.must(err)
	number, err := member.AskRun(t.Context(), f.s, f.group.Root, f.group.Name, job, "me@here")
	if !errors.Is(err, member.ErrNotOpen) {
		t.Errorf("request %d, %v", number, err)
	}
}

// TestRunNow: a run that was asked for before any member joined, one while another run goes on, and what is refused.
func TestRunNow(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule, d.Retries = "@yearly", 0 })
	f.change(func(g *group.Group) { g.Add(group.NewDuty(group.Leader, "zeta")) })
	f.askRun(1)
	w := f.startCron(f.join("a", "1.0", job))
	first := w.next()
	f.askRun(2)
	f.askRun(3)
	if !first.Tick.IsZero() || first.Asked != 1 || first.Attempt != 1 {
		t.Errorf("run %+v", first.Run)
	}
	r := f.record("request", func(r member.RunRecord) bool { return r.Asked == 2 })
	if r.AskedBy != "me@here" || r.TickRecord.Asked.IsZero() {
		t.Errorf("record %+v", r)
	}
	first.end <- failed
	for want := int64(2); want <= 3; want++ {
		c := w.next()
		if c.Asked != want || !c.Tick.IsZero() {
			t.Errorf("run %+v, want that of request %d", c.Run, want)
		}
		c.end <- ok
		f.record("end", func(r member.RunRecord) bool {
			return r.Asked == want && r.State == znode.TickDone && r.AskedBy == "me@here" && r.By == "a"
		})
	}
	f.record("failure", func(r member.RunRecord) bool { return r.Asked == 1 && r.State == znode.TickFailed })
	for duty, want := range map[string]error{"zeta": member.ErrNoCron, "nothing": member.ErrNoCron} {
		_, err := member.AskRun(t.Context(), f.s, f.group.Root, f.group.Name, duty, "me@here")
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", duty, err)
		}
	}
	_, err := member.AskRun(t.Context(), f.s, f.group.Root, "nothing", job, "me@here")
	if !errors.Is(err, member.ErrNoGroup) {
		t.Errorf("no group: %v", err)
	}
}

// TestTooManyRequests: the 101st that waits is refused.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule = "@yearly" })
	for n := int64(1); n <= 100; n++ {
		f.askRun(n)
	}
	_, err := member.AskRun(t.Context(), f.s, f.group.Root, f.group.Name, job, "me@here")
	if !errors.Is(err, member.ErrAskedTooOften) {
		t.Errorf("error %v", err)
	}
	if got := f.runsOf(); len(got) != 100 || got[0].Asked != 100 {
		t.Errorf("records: %s", f.records())
	}
}

// TestAskIsWrittenOnce: whatever is lost, a request is one znode, and its number is returned.
func TestAskIsWrittenOnce(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule = "@yearly" })
	p := newProxy(t)
	s := dial(t, p.Addr())
	for i, arm := range []func(func(int32, []byte) bool) <-chan struct{}{p.BeforeSend, p.DropReply, p.AfterReply} {
		done := arm(func(op int32, _ []byte) bool { return op == fault.OpMulti })
		got, err := member.AskRun(t.Context(), s, f.group.Root, f.group.Name, job, "me@here")
		if err != nil || got != int64(i)+1 {
			t.Errorf("request %d, %v", got, err)
		}
		<-done
	}
	if got := f.runsOf(); len(got) != 3 {
		t.Errorf("records: %s", f.records())
	}
}

// TestEditedScheduleBeginsAnew: what was due by the old schedule is forgotten, and nothing is missed by the new one.
func TestEditedScheduleBeginsAnew(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule, d.Missed = "@yearly", group.MissedAll })
	a := f.join("a", "1.0", job)
	f.setCursor(time.Now().AddDate(0, 0, -1), f.group.Duties[0])
	w := f.startCron(a)
	f.until("held", f.isHeld)
	edited := time.Now()
	f.editCron(func(d *group.Duty) { d.Schedule = "@every 1s" })
	c := w.next()
	if c.Tick.Before(edited.Truncate(time.Second)) {
		t.Errorf("%s runs, and the schedule was edited at %s", c.Tick, edited)
	}
	c.end <- ok
	for _, r := range f.runsOf() {
		if r.State == znode.TickMissed {
			t.Errorf("records: %s", f.records())
		}
	}
}

// TestPauseForgetsWhatFellDue: nobody holds a paused cron, nothing runs, and at the end nothing was missed.
func TestPauseForgetsWhatFellDue(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule, d.Missed = "@every 2s", group.MissedAll })
	w := f.startCron(f.join("a", "1.0", job))
	w.next().end <- ok
	f.send(znode.Ask{Do: znode.AskPause, Duty: job, By: "me@here"})
	f.until("nobody holds it", func() bool { return !f.isHeld() })
	for len(w.runs) > 0 {
		(<-w.runs).end <- ok
	}
	for _, r := range f.runsOf() { // as if the pause had begun a minute earlier
		f.must(f.s.Delete(t.Context(), znode.Tick(f.group.Root, f.generation(), job, r.Tick), -1))
	}
	f.setCursor(f.cursor().Tick.Add(-time.Minute), f.group.Duties[0])
	f.askRun(1)
	resumed := time.Now()
	f.send(znode.Ask{Do: znode.AskResume, Duty: job, By: "me@here"})
	c := w.next()
	if c.Asked != 1 {
		t.Errorf("%+v runs first", c.Run)
	}
	c.end <- ok
	c = w.next()
	if c.Tick.Before(resumed.Truncate(time.Second)) {
		t.Errorf("%s runs, and the pause ended at %s", c.Tick, resumed)
	}
	c.end <- ok
	for _, r := range f.runsOf() {
		if r.State == znode.TickMissed {
			t.Errorf("records: %s", f.records())
		}
	}
}

// TestKeep: the oldest records go, and so do those of requests.
func TestKeep(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Keep = 2 })
	w := f.startCron(f.join("a", "1.0", job))
	f.askRun(1)
	var last time.Time
	for range 5 {
		c := w.next()
		if c.Asked == 0 {
			last = c.Tick
		}
		c.end <- ok
	}
	f.record("end", func(r member.RunRecord) bool { return r.Tick.Equal(last) && r.Final() })
	over := 0
	for _, r := range f.runsOf() {
		if r.Final() && !r.Range() {
			over++
		}
		if r.Asked == 1 {
			t.Errorf("the request is still there: %s", f.records())
		}
	}
	if over > 3 { // the next one may have ended meanwhile, and deletes with its next write
		t.Errorf("%d runs are kept: %s", over, f.records())
	}
}

// TestLostReplyOfARequestThatIsForgotten: its run has ended, and its record is deleted, before who asked looks. It is
// not asked for again.
func TestLostReplyOfARequestThatIsForgotten(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule = "@yearly" })
	f.askRun(1)
	p := newProxy(t)
	s := dial(t, p.Addr())
	dropped := p.DropReply(isMulti)
	p.Refuse(true) // it cannot look before the record is gone
	asked := make(chan error, 1)
	go func() {
		_, err := member.AskRun(t.Context(), s, f.group.Root, f.group.Name, job, "me@here")
		asked <- err
	}()
	rig.Receive(t, dropped, "the request")
	second := znode.Now(f.group.Root, f.generation(), job, 2)
	f.must(f.s.Delete(t.Context(), second, -1))
	p.Refuse(false)
	if err := rig.Receive(t, asked, "the answer"); err == nil || !strings.Contains(err.Error(), "it was asked for") {
		t.Errorf("error = %v", err)
	}
	if got := f.runsOf(); len(got) != 1 {
		t.Errorf("records: %s", f.records())
	}
}
