package member_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/needs"
	"muster/sim/rig"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// childLeader makes this test binary a member that leads: connect string, root, group, identity, session timeout.
const childLeader = "MUSTER_TEST_LEADER"

// runLeader is the counterpart of testdata/Latch.java: it says the same, and leaves at a line of standard input.
func runLeader(ctx context.Context, args []string) error {
	timeout, err := time.ParseDuration(args[4])
	if err != nil {
		return err
	}
	s, err := zkconn.Dial(ctx, zkconn.Config{Servers: strings.Split(args[0], ","), Timeout: timeout})
	if err != nil {
		return err
	}
	m, err := member.Join(ctx, s, member.Config{
		Root: args[1], Group: args[2], Identity: args[3], Version: "1.0", Can: []string{"coordinator"},
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	leading, leave := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() {
		done <- m.Lead(leading, "coordinator", func(ctx context.Context, _ *member.Hold) error {
			fmt.Println("leader")
			<-ctx.Done()
			return nil
		})
	}()
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		leave(member.ErrLeaving)
	}()
	<-done
	return m.Leave()
}

// candidate is a process that may lead.
type candidate struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines <-chan string
}

func startCandidate(t testing.TB, cmd *exec.Cmd) *candidate {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range lines {
		}
	})
	return &candidate{cmd, in, lines}
}

// says waits for a line.
func (c *candidate) says(t testing.TB, want string) {
	t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				t.Fatalf("it ended before it said %q", want)
			}
			if line == want {
				return
			}
		case <-limit:
			t.Fatalf("it has not said %q", want)
		}
	}
}

// contender is one of the two recipes: a leader, and another candidate behind it.
type contender struct {
	start         func() *candidate
	first, second *candidate
	leave, kill   []time.Duration
}

// begin starts both candidates.
func (c *contender) begin(t testing.TB) {
	t.Helper()
	c.first = c.start()
	c.first.says(t, "leader")
	c.second = c.start()
	c.second.says(t, "ready")
}

// takeOver ends the leader after some time, and starts another candidate. It returns how long nobody led.
func (c *contender) takeOver(t testing.TB, after time.Duration, kill bool) time.Duration {
	t.Helper()
	<-time.After(after) // heartbeats of sessions have any phase then
	begun := time.Now()
	if kill {
		if err := c.first.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	} else if _, err := io.WriteString(c.first.in, "leave\n"); err != nil {
		t.Fatal(err)
	}
	c.second.says(t, "leader")
	took := time.Since(begun)
	c.first, c.second = c.second, c.start()
	c.second.says(t, "ready")
	return took
}

// curator starts candidates of Curator's LeaderLatch.
func curator(t testing.TB, path string, timeout time.Duration) *contender {
	t.Helper()
	jars := []string{
		"curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute", "slf4j-api", "guava",
	}
	classpath := needs.Javac(t, "libcurator-recipes-java", jars, filepath.Join("testdata", "Latch.java"))
	return &contender{start: func() *candidate {
		return startCandidate(t, exec.Command("java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "Latch",
			servers.Connect(), path, fmt.Sprint(timeout.Milliseconds())))
	}}
}

// muster starts members of a group with one leader.
func muster(t testing.TB, timeout time.Duration) *contender {
	t.Helper()
	f := newFixture(t, "coordinator")
	n := 0
	return &contender{start: func() *candidate {
		n++
		cmd := exec.Command(os.Args[0])
		args := []string{servers.Connect(), f.group.Root, f.group.Name, fmt.Sprintf("m-%d", n), timeout.String()}
		cmd.Env = append(os.Environ(), childLeader+"="+strings.Join(args, " "))
		cmd.Stderr = os.Stderr
		return startCandidate(t, cmd)
	}}
}

// compare lets both recipes take over in turn, with the same session timeout, and returns the times.
func compare(t testing.TB, rounds int, timeout time.Duration) (ours, theirs *contender) {
	t.Helper()
	ours, theirs = muster(t, timeout), curator(t, "/latch-"+fmt.Sprint(rand.Uint64()), timeout)
	for _, c := range []*contender{ours, theirs} {
		c.begin(t)
		c.takeOver(t, 0, false) // warms up
	}
	for i := range rounds {
		after := time.Duration(float64(timeout) * rand.Float64())
		order := []*contender{ours, theirs}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			c.leave = append(c.leave, c.takeOver(t, after/10, false))
		}
		for _, c := range order {
			c.kill = append(c.kill, c.takeOver(t, after, true))
		}
	}
	return ours, theirs
}

// median is the middle one of times.
func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// BenchmarkTakeOver measures how long nobody leads when the leader leaves and when it is killed, beside Curator's
// LeaderLatch in the same run: medians of rounds in turn, all processes with the same session timeout. The ratios are
// muster's time over Curator's.
func BenchmarkTakeOver(b *testing.B) {
	for range b.N {
		ours, theirs := compare(b, 15, 3*time.Second)
		ms := func(name string, times []time.Duration) {
			b.ReportMetric(float64(median(times).Microseconds())/1000, name+"-ms")
		}
		ms("leave", ours.leave)
		ms("kill", ours.kill)
		ms("curator-leave", theirs.leave)
		ms("curator-kill", theirs.kill)
		b.ReportMetric(float64(median(ours.leave))/float64(median(theirs.leave)), "leave-ratio")
		b.ReportMetric(float64(median(ours.kill))/float64(median(theirs.kill)), "kill-ratio")
	}
}

// joinBehind joins behind a proxy of its own.
func (f *fixture) joinBehind(identity string, can ...string) (*member.Member, *fault.Proxy) {
	f.t.Helper()
	p := newProxy(f.t)
	return f.joinBy(p, 4*time.Second, identity, can...), p
}

// TestFrozenHolderCannotWrite: a holder that is frozen does not learn that somebody deleted held and that another
// member took the duty. Its session lives, and what it sends is refused.
func TestFrozenHolderCannotWrite(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	assigner := f.join("assigner", "1.0")
	frozen := newProxy(t)
	a := f.joinBy(frozen, time.Minute, "a", "coordinator") // its connection outlives all of this, on any machine
	h := f.take(a, "coordinator")
	b := f.join("b", "1.0", "coordinator")
	frozen.Hang(true)
	written := make(chan error, 1)
	go func() { written <- h.Check(t.Context()) }()
	f.until("the write to be under way", func() bool { return frozen.Requests()[fault.OpMulti] >= 3 })
	f.must(f.s.Delete(t.Context(), f.run("duty/coordinator/held"), -1))
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator", To: "b"})
	next := f.take(b, "coordinator")
	frozen.Hang(false)
	if err := rig.Receive(t, written, "the write of the old holder"); !errors.Is(err, member.ErrNotHeld) {
		t.Errorf("the holder of epoch %d wrote after %d had taken the duty: %v", h.Epoch, next.Epoch, err)
	}
	f.ended(h.Context(), member.ErrNotHeld)
	if a.Context().Err() != nil || assigner.Context().Err() != nil {
		t.Error("a membership has ended too")
	}
}

// TestTakeWithoutAReply: the answer to a take is lost, whether or not it was committed. The member holds the duty once.
func TestTakeWithoutAReply(t *testing.T) {
	t.Parallel()
	for name, arm := range sentOrNot() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "coordinator")
			f.join("assigner", "1.0")
			a, p := f.joinBehind("a", "coordinator")
			held := []byte(f.run("duty/coordinator/held"))
			cut := arm(p, func(op int32, req []byte) bool { return op == fault.OpMulti && bytes.Contains(req, held) })
			h := f.take(a, "coordinator")
			rig.Receive(t, cut, "the fault")
			if err := h.Check(t.Context()); err != nil {
				t.Error(err)
			}
			_, stat, err := f.s.Get(t.Context(), f.run("duty/coordinator"))
			if err != nil || stat.Mzxid != h.Epoch {
				t.Errorf("epoch %d of a take at %d, %v", h.Epoch, stat.Mzxid, err)
			}
		})
	}
}

// TestGivingBackWithoutAReply: the next member gets the duty, however the answer was lost, and a resignation is told
// once.
func TestGivingBackWithoutAReply(t *testing.T) {
	t.Parallel()
	for name, arm := range sentOrNot() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "coordinator")
			f.join("assigner", "1.0")
			a, p := f.joinBehind("a", "coordinator")
			h := f.take(a, "coordinator")
			b := f.join("b", "1.0", "coordinator")
			inbox := []byte(f.run("resigned"))
			cut := arm(p, func(op int32, req []byte) bool { return op == fault.OpMulti && bytes.Contains(req, inbox) })
			f.must(h.Resign(t.Context(), true, "exit code 3"))
			rig.Receive(t, cut, "the fault")
			f.take(b, "coordinator")
			heard := map[string]int{"committed": 2, "not sent": 1}[name] // sent again, it may come after the decision
			for seat, failure := range f.memory().Failures["coordinator"] {
				if failure.Count < 1 || failure.Count > heard || failure.Tries != failure.Count {
					t.Errorf("%s: %+v", seat, failure)
				}
			}
		})
	}
}

// TestAssignerDiesBetweenTwoTransactions: a roster of 600 seats takes two transactions. The assigner dies after the
// first, and its successor completes what it began. The decision that lost its answer is not made twice.
func TestAssignerDiesBetweenTwoTransactions(t *testing.T) {
	t.Parallel()
	const many = 600
	for name, arm := range map[string]requestFault{
		"after the first": (*fault.Proxy).BeforeSend, "after the second": (*fault.Proxy).DropReply,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.change(func(g *group.Group) {
				for i := range many {
					g.Add(group.NewDuty(group.Leader, fmt.Sprintf("duty-%04d", i)))
				}
			})
			assigner, p := f.joinBehind("first")
			rosters, seat := 0, []byte(f.run("seat")+"/")
			cut := arm(p, func(op int32, req []byte) bool {
				if op == fault.OpMulti && bytes.Count(req, seat) > many/10 { // not one that only says why
					rosters++
				}
				return rosters == 2
			})
			f.seatsByHand(many)
			rig.Receive(t, cut, "the second transaction")
			p.Refuse(true)
			p.Cut()
			f.ended(assigner.Context(), member.ErrSessionLost)
			if n := f.given(); (n == many) != (name == "after the second") || n == 0 {
				t.Errorf("%d duties were given when the assigner died", n)
			}
			f.raiseAssign(2) // the seats made by hand come before, and know the first method
			successor, err := member.JoinKnowing(t.Context(), dial(t), f.config("second", "1.0"), 2)
			f.must(err)
			t.Cleanup(func() { successor.Leave() })
			f.until("all seats to have a duty", func() bool { return f.given() == many })
			f.change(func(g *group.Group) { g.Duties = nil })
			f.until("all seats to be empty", func() bool { return f.given() == 0 })
		})
	}
}

// TestDutyDeletedByHand: its next holder has a larger epoch nevertheless. That the assigner's seat is gone costs nobody
// a duty.
func TestDutyDeletedByHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	f.join("assigner", "1.0")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	f.must(f.s.Delete(t.Context(), f.run("seat/s-0000000000"), -1))
	f.must(h.Check(t.Context()))
	held, duty := f.run("duty/coordinator/held"), f.run("duty/coordinator")
	_, err := f.s.Multi(t.Context(), zkconn.DeleteOp(held, -1), zkconn.DeleteOp(duty, -1))
	f.must(err)
	f.ended(h.Context(), member.ErrNotHeld)
	f.takeAfter(h, a)
}

// seatsByHand makes the seats of many members that do nothing themselves, at once; one session has them all. Each can
// do the duty of its number.
func (f *fixture) seatsByHand(many int) {
	f.t.Helper()
	var ops []zkconn.Op
	acl := f.acl()
	for i := range many {
		identity := fmt.Sprintf("m-%04d", i)
		live, err := znode.Encode(znode.Present{
			Nonce: "n", Version: "1.0", Can: []string{fmt.Sprintf("duty-%04d", i)}, Ready: true,
		})
		f.must(err)
		seat, err := znode.Encode(znode.Seat{Identity: identity, Nonce: "n", Assign: 1})
		f.must(err)
		ops = append(ops,
			zkconn.CreateOp(f.group.Path()+"/"+identity, live, zkconn.Ephemeral, acl),
			zkconn.CreateOp(f.run("seat/s-"), seat, zkconn.EphemeralSequential, acl))
	}
	if _, err := dial(f.t).Multi(f.t.Context(), ops...); err != nil {
		f.t.Fatal(err)
	}
}

// TestFrozenAssignerWritesNothing: a roster is on its way to the server when its assigner loses its seat, and the next
// assigner decides otherwise. What was on its way is refused.
func TestFrozenAssignerWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	slow := newProxy(t)
	a := f.joinBy(slow, time.Minute, "a") // its connection outlives all of this, on any machine
	b := f.join("b", "1.0", "coordinator")
	f.join("c", "1.0", "coordinator")
	f.take(b, "coordinator")
	slow.Delay(300 * time.Millisecond)
	sent := slow.Requests()[fault.OpMulti]
	f.ask2(znode.AskHandover, "c")
	f.until("the assigner to decide", func() bool { return slow.Requests()[fault.OpMulti] > sent })
	slow.Hang(true)
	f.must(f.s.Delete(t.Context(), f.run("seat/s-0000000000"), -1))
	f.ask(znode.Ask{Do: znode.AskPause, Duty: "coordinator"})
	slow.Hang(false)
	slow.Delay(0)
	if err := a.Leave(); err != nil { // the server executes what came before
		t.Fatal(err)
	}
	f.must(f.s.Sync(t.Context(), f.group.Path()))
	if seats := f.seats(); len(seats["b"])+len(seats["c"]) != 0 {
		t.Errorf("the duty is paused, and the seats are %q", seats)
	}
	if by := f.memory().Paused["coordinator"]; by == "" {
		t.Error("the pause was forgotten")
	}
	f.ask(znode.Ask{Do: znode.AskResume, Duty: "coordinator"})
	f.until("the duty to be given", func() bool {
		seats := f.seats()
		return len(seats["b"])+len(seats["c"]) == 1
	})
}

// TestHandOverJustAfterTheTake: a leader is told to go before it listens, and hears of it.
func TestHandOverJustAfterTheTake(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "task")
	f.join("assigner", "1.0")
	a, proxy := f.joinBehind("a", "task")
	held := f.run("duty/task/held")
	told := make(chan struct{})
	tell := sync.OnceFunc(func() {
		f.ask(znode.Ask{Do: znode.AskPause, Duty: "task"})
		close(told)
	})
	proxy.BeforeSend(func(op int32, req []byte) bool { // never happens: it only looks
		if op != fault.OpExists || !bytes.Contains(req, []byte(held)) {
			return false
		}
		if _, taken, err := f.s.Exists(t.Context(), held); err == nil && taken { // the holder begins to watch
			tell()
		}
		return false
	})
	h := f.take(a, "task")
	rig.Receive(t, told, "the pause")
	rig.Receive(t, h.HandOver(), "the holder to know that it has to hand over")
	f.must(h.Release(t.Context()))
	f.ask(znode.Ask{Do: znode.AskResume, Duty: "task"})
	f.takeAfter(h, a)
}

// TestReconnectingMovesNothing: Curator's LeaderLatch made a new node at each reconnect, and two processes handed the
// lead to each other for ever (CURATOR-644, CURATOR-645, FLINK-28078).
func TestReconnectingMovesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "task")
	a, aProxy := f.joinBehind("a", "task")
	b, bProxy := f.joinBehind("b", "task")
	h := f.take(a, "task")
	for range 20 {
		aProxy.Cut()
		bProxy.Cut()
		if err := h.Check(t.Context()); err != nil && !errors.Is(err, member.ErrUnknown) {
			t.Fatalf("after a reconnect: %v", err)
		}
	}
	if err := h.Check(t.Context()); err != nil {
		t.Error(err)
	}
	_, stat, err := f.s.Get(t.Context(), f.run("duty/task"))
	if err != nil || stat.Version != 1 || len(f.children("seat")) != 2 {
		t.Errorf("%v: the duty was taken %d times, and the seats are %q", err, stat.Version, f.children("seat"))
	}
	if b.Context().Err() != nil {
		t.Error("the other member was lost")
	}
}

// TestNothingIsTakenWithADyingSession: a process that came back found the node of its old session, believed to lead,
// and lost the node with that session (CURATOR-498, CURATOR-604).
func TestNothingIsTakenWithADyingSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "task")
	f.join("assigner", "1.0")
	old, proxy := f.joinBehind("a", "task")
	h := f.take(old, "task")
	proxy.Hang(true) // the process has died; its session has not
	s := dial(t)
	again := f.joinIn(s, f.config("a", "1.0", "task"))
	next := f.take(again, "task")
	proxy.Hang(false)
	rig.Receive(t, old.Context().Done(), "the end of the old membership")
	for _, path := range []string{f.group.Path() + "/a", f.run("duty/task/held")} {
		if _, stat, err := f.s.Get(t.Context(), path); err != nil || stat.EphemeralOwner != s.ID() {
			t.Errorf("%s belongs to session %x, %v", path, stat.EphemeralOwner, err)
		}
	}
	if err := next.Check(t.Context()); err != nil || next.Epoch <= h.Epoch {
		t.Errorf("epoch %d after %d: %v", next.Epoch, h.Epoch, err)
	}
}

// foreign is a member of other software: it has its znodes, and does what a test says.
type foreign struct {
	f       *fixture
	s       *zkconn.Session
	seat    string
	present znode.Present
}

// foreign joins with a seat of this prefix. assign 0 stands for a body without that field.
func (f *fixture) foreign(identity, prefix string, assign int, can ...string) *foreign {
	f.t.Helper()
	o := &foreign{f: f, s: dial(f.t), present: znode.Present{
		Nonce: zkstate.NewID(), Version: "1.0", Can: can, Ready: true,
	}}
	live, err := znode.Encode(o.present)
	f.must(err)
	seat := `{"identity":"` + identity + `","nonce":"` + o.present.Nonce + `"}`
	if assign > 0 {
		seat = seat[:len(seat)-1] + `,"assign":1}`
	}
	results, err := o.s.Multi(f.t.Context(), zkconn.CheckOp(f.run("gate"), 0),
		zkconn.CreateOp(f.group.Path()+"/"+identity, live, zkconn.Ephemeral, f.acl()),
		zkconn.CreateOp(f.run("seat/"+prefix), []byte(seat), zkconn.EphemeralSequential, f.acl()))
	f.must(err)
	o.seat = results[2].Path
	return o
}

// take takes a duty as docs/protocol.md says, once its seat names it.
func (o *foreign) take(duty string) {
	o.f.t.Helper()
	var version int32
	o.f.until("its seat to name the duty", func() bool {
		body, stat, err := o.s.Get(o.f.t.Context(), o.seat)
		seat, bad := znode.Decode[znode.Seat](body)
		if err != nil || bad != nil {
			o.f.t.Fatal(err, bad)
		}
		version = stat.Version
		return len(seat.Duties) == 1 && seat.Duties[0] == duty
	})
	body := []byte(`{"nonce":"n","identity":"` + seatOf(o) + `"}`)
	at := o.f.run("duty/" + duty)
	_, err := o.s.Multi(o.f.t.Context(), zkconn.CheckOp(o.f.run("gate"), 0), zkconn.CheckOp(o.seat, version),
		zkconn.CreateOp(at, nil, zkconn.Persistent, o.f.acl()), zkconn.SetOp(at, body, -1),
		zkconn.CreateOp(at+"/held", body, zkconn.Ephemeral, o.f.acl()))
	if err != nil {
		o.f.t.Fatal(err)
	}
}

// seatOf is the name of its seat.
func seatOf(o *foreign) string { return o.seat[len(o.seat)-len("s-0000000000"):] }

// session sets the session timeout that the group declares: that of the sessions of these tests stays.
func (f *fixture) session(timeout time.Duration) {
	f.t.Helper()
	f.change(func(g *group.Group) { g.Timeouts.Session = resource.Duration(timeout) })
}

// TestSeatThatHoldsAndNeverDecides: a member with a seat x-, or without a method of assignment, has duties, also if its
// seat is the first one, and another decides.
func TestSeatThatHoldsAndNeverDecides(t *testing.T) {
	t.Parallel()
	for prefix, assign := range map[string]int{"x-": 0, "s-": 0, "x": 1} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "coordinator", "other")
			f.join("first", "1.0").Leave() // makes the folders
			if prefix == "x" {
				prefix = "x-"
			}
			o := f.foreign("foreign", prefix, assign, "coordinator")
			a := f.join("a", "1.0", "other")
			o.take("coordinator")
			f.take(a, "other")
			if seats := f.seats(); len(seats["foreign"]) != 1 {
				t.Errorf("the seats are %v", seats)
			}
		})
	}
}

// TestOnlyForeignMembers: members that hold duties and never assign are all that is left. The group is degraded, though
// every duty is held, and says why, until a member joins that assigns.
func TestOnlyForeignMembers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0")
	o := f.foreign("foreign", "x-", 0, "coordinator")
	o.take("coordinator")
	status := func() (resource.Status, *view.Group) {
		now := f.look()
		s, err := f.store.GroupState(t.Context(), now, time.Now())
		f.must(err)
		return now.Status(), s
	}
	nobody := func(s *view.Group) bool {
		return strings.Contains(strings.Join(s.Waits(), "\n"), "nobody assigns duties")
	}
	if is, s := status(); is != group.Running || s.Assigner != "a" || nobody(s) {
		t.Errorf("with a it is %s, and the assigner is %q: %q", is, s.Assigner, s.Waits())
	}
	f.must(a.Leave())
	is, s := status()
	if is != group.Degraded || s.Assigner != "" || s.Duties[0].Holder == "" {
		t.Errorf("without a it is %s, the assigner is %q, and %q holds", is, s.Assigner, s.Duties[0].Holder)
	}
	if !nobody(s) {
		t.Errorf("what waits: %q", s.Waits())
	}
	found := f.look()
	want := plan.Want{Stack: found.Record.Stack, Home: found.Record.Home, Declared: []resource.Declaration{f.group}}
	have := plan.State{Found: map[string]resource.Observed{f.group.Path(): *found}}
	if all := plan.Diff(want, have).Drift(nil).Findings; len(all) != 1 || all[0].Kind != plan.DriftDegraded {
		t.Errorf("drift: %+v", all)
	}
	f.join("b", "1.0")
	f.until("b to be the assigner", func() bool { is, s = status(); return is == group.Running && s.Assigner == "b" })
}

// TestDutyThatIsNotTaken: it goes to another member, and whoever did not take it is to blame. A member that waits for
// the last holder is not.
func TestDutyThatIsNotTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "neglected", "slow")
	f.session(time.Second)
	assigner := f.join("assigner", "1.0")
	told := make(chan member.Event, 10)
	go func() {
		for e := range assigner.Events(t.Context()) {
			if e.Kind == member.EventNotTaken {
				told <- e
			}
		}
	}()
	holder := f.join("holder", "1.0", "slow")
	held := f.take(holder, "slow")
	o := f.foreign("foreign", "s-", 1, "neglected")
	next := f.join("next", "1.0", "slow")
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "slow"})
	rig.Receive(t, held.HandOver(), "the hand-over")
	failures := func(duty, seat string) znode.Failure { return f.memory().Failures[duty][seat] }
	f.until("it to be blamed twice, while nobody else can do it", func() bool {
		return failures("neglected", seatOf(o)).Count >= 2
	})
	if e := rig.Receive(t, told, "the event"); e.Duty != "neglected" || e.Text == "" {
		t.Errorf("event %+v", e)
	}
	b := f.join("b", "1.0", "neglected")
	h := f.take(b, "neglected")
	if e := f.memory().Failures["slow"]; len(e) != 0 {
		t.Errorf("who waits for the last holder is to blame: %+v", e)
	}
	f.must(held.Release(t.Context()))
	f.take(next, "slow")
	if err := h.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDutyThatIsGivenBackInSilence: a member deletes held and does not resign. The duty goes to another one.
func TestDutyThatIsGivenBackInSilence(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	f.session(time.Second)
	f.join("assigner", "1.0")
	o := f.foreign("foreign", "s-", 1, "coordinator")
	o.take("coordinator")
	a := f.join("a", "1.0", "coordinator")
	f.must(o.s.Delete(t.Context(), f.run("duty/coordinator/held"), -1))
	f.take(a, "coordinator")
}

// TestAssignerThatIsSilent: a live member with the first seat decides nothing. The next one takes the office, once, and
// keeps it; status names who was passed over.
func TestAssignerThatIsSilent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	f.session(time.Second)
	f.join("first", "1.0").Leave() // makes the folders
	o := f.foreign("foreign", "s-", 1)
	a := f.join("a", "1.0", "coordinator")
	b := f.join("b", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	if passed := f.memory().Passed; !slices.Equal(passed, []string{seatOf(o)}) {
		t.Errorf("passed over: %q", passed)
	}
	s, err := f.store.GroupState(t.Context(), f.look(), time.Now())
	if err != nil || s.Assigner != "a" || !slices.Equal(s.Passed, []string{"foreign"}) {
		t.Errorf("the assigner is %q, and %q were passed over: %v", s.Assigner, s.Passed, err)
	}
	// The next one after it, and who was passed over, have no reason to take it.
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator"})
	rig.Receive(t, h.HandOver(), "the hand-over")
	f.must(h.Release(t.Context()))
	f.take(b, "coordinator")
	f.must(a.Leave())
	f.ask(znode.Ask{Do: znode.AskPause, Duty: "coordinator"}) // b decides
	o.s.Close()
	f.until("what is gone to be forgotten", func() bool { return len(f.memory().Passed) == 0 })
}

// TestAssignerThatIsSilentBehindAnother: a seat before the assigner's, of a member that never decides, keeps nobody
// from passing the assigner over.
func TestAssignerThatIsSilentBehindAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	f.session(time.Second)
	f.join("first", "1.0").Leave() // makes the folders
	f.foreign("guest", "s-", 0)
	o := f.foreign("foreign", "s-", 1)
	f.take(f.join("a", "1.0", "coordinator"), "coordinator")
	if passed := f.memory().Passed; !slices.Equal(passed, []string{seatOf(o)}) {
		t.Errorf("passed over: %q", passed)
	}
}

// TestSilenceIsSeen: without a member that could take the office, readers see since when nobody has decided.
func TestSilenceIsSeen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	m := f.join("first", "1.0")
	f.until("it to have decided", func() bool {
		s, err := f.store.GroupState(t.Context(), f.look(), time.Now())
		return err == nil && s.Assigner == "first" && s.Undecided.IsZero()
	})
	f.must(m.Leave())
	f.foreign("guest", "x-", 0, "coordinator")
	f.foreign("foreign", "s-", 1)
	s, err := f.store.GroupState(t.Context(), f.look(), time.Now())
	if err != nil || s.Assigner != "foreign" || len(s.Members) != 2 || !s.Undecided.Equal(s.Members[0].Since) {
		t.Errorf("the assigner is %q, and since %s nobody has decided: %+v, %v", s.Assigner, s.Undecided, s.Members, err)
	}
}
