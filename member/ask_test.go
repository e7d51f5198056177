package member_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/group"
	"muster/member"
	"muster/resource"
	"muster/zkserver"
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
	if err != nil {
		f.t.Fatal(err)
	}
}

// handedOver waits until the assigner has given the duty of a hold to another member, and releases it.
func (f *fixture) handedOver(h *member.Hold) {
	f.t.Helper()
	select {
	case <-h.HandOver():
	case <-time.After(2 * time.Minute):
		f.t.Fatal("the duty was not handed over")
	}
	if err := h.Release(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// requests lists the requests that wait, and counts those that the log has.
func (f *fixture) requests() (waiting []string, logged int) {
	f.t.Helper()
	dir := znode.Asks(f.group.Root, f.generation())
	waiting, _, err := f.s.Children(f.t.Context(), dir)
	if err != nil {
		f.t.Fatal(err)
	}
	body, _, err := f.s.Get(f.t.Context(), dir)
	if err != nil {
		f.t.Fatal(err)
	}
	log, err := znode.DecodeAskLog(body)
	if err != nil {
		f.t.Fatal(err)
	}
	return waiting, len(log.Last)
}

// TestHandoverToAMemberPinsTheDuty until an operator takes the pin away; a handover without a name moves it away.
func TestHandoverToAMemberPinsTheDuty(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a, b, c := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator"), f.join("c", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator", To: "c"})
	f.handedOver(h)
	h = f.take(c, "coordinator")
	assigner := func() znode.AssignerMemory {
		body, _, err := f.s.Get(t.Context(), znode.Assigner(f.group.Root, f.generation()))
		if err != nil {
			t.Fatal(err)
		}
		memory, err := znode.DecodeAssigner(body)
		if err != nil {
			t.Fatal(err)
		}
		return memory
	}
	if assigner().Pins["coordinator"] == "" {
		t.Error("the duty is not pinned")
	}
	f.ask(znode.Ask{Do: znode.AskUnpin, Duty: "coordinator"})
	if pin := assigner().Pins["coordinator"]; pin != "" {
		t.Errorf("the duty is still pinned to %s", pin)
	}
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator"})
	f.handedOver(h)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	taken := make(chan string, 2)
	for _, m := range []*member.Member{a, b} {
		go func() {
			if h, err := m.Take(ctx, "coordinator"); err == nil {
				taken <- m.Identity + h.Duty
			}
		}()
	}
	select {
	case <-taken:
	case <-ctx.Done():
		t.Error("no other member took it")
	}
}

// TestPauseTakesTheDutyAway and resume gives it back.
func TestPauseTakesTheDutyAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	f.ask(znode.Ask{Do: znode.AskPause, Duty: "coordinator"})
	f.handedOver(h)
	f.ask(znode.Ask{Do: znode.AskResume, Duty: "coordinator"})
	f.take(a, "coordinator")
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
	if err := member.AwaitAnswer(ctx, f.s, path); err != nil {
		t.Fatal(err)
	}
	f.take(a, "other")
	body, _, err := f.s.Get(t.Context(), znode.SeatAt(f.group.Root, f.generation(), "s-0000000000"))
	if err != nil {
		t.Fatal(err)
	}
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
	isMulti := func(op int32, _ []byte) bool { return op == zkserver.OpMulti }
	for name, fault := range map[string]func(*zkserver.Proxy) <-chan struct{}{
		"before":      func(p *zkserver.Proxy) <-chan struct{} { return p.BeforeSend(isMulti) },
		"reply lost":  func(p *zkserver.Proxy) <-chan struct{} { return p.DropReply(isMulti) },
		"after reply": func(p *zkserver.Proxy) <-chan struct{} { return p.AfterReply(isMulti) },
	} {
		for _, live := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, live %v", name, live), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, "coordinator")
				if live {
					f.take(f.join("a", "1.0", "coordinator"), "coordinator")
				}
				proxy, err := zkserver.NewProxy(servers.Addrs()[0])
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { proxy.Close() })
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
				if err != nil {
					t.Fatal(err)
				}
				waiting, logged := f.requests()
				if logged != 1 || len(waiting) != 1 && !live || len(waiting) != 0 && live {
					t.Errorf("%d requests were written, and %v wait", logged, waiting)
				}
			})
		}
	}
}
