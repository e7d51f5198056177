package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/member"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Each test here is named after a bug of the old fault tolerant coordinator: standby masters, of which the one with the
// smallest sequence number leads, and workers that follow it. These have their tests elsewhere:
//
//	nobody knows an epoch                          TestSmallestSeatLeads, faults.TestGroupSoak
//	the shared state is a constant                 the tests of state.go
//	a lost session is made anew without a connection  faults.TestCutOffLeaderEndsBeforeTheNextBegins
//	addresses are those of this machine            TestFollowersSeeEachLeader
//	nobody compares who led before (Ballerina)     TestFrozenHolderCannotWrite
//	an interrupted checkpoint is lost              the tests of operation.go

// TestC1AssignerThatDiesUnseen: a coordinator died after it was listed and before it was watched. Nobody took over.
func TestC1AssignerThatDiesUnseen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "first", "second")
	a := f.join("a", "1.0", "first")
	f.take(a, "first")
	proxy, err := zkserver.NewProxy(servers.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	seat := []byte(f.run("seat/s-0000000000"))
	died := make(chan error, 1)
	proxy.BeforeSend(func(op int32, req []byte) bool {
		if op == zkserver.OpExists && bytes.Contains(req, seat) && len(died) == 0 {
			died <- a.Leave() // b has listed the seats, and is about to watch this one
		}
		return false
	})
	b, err := member.Join(t.Context(), dial(t, proxy.Addr()), f.config("b", "1.0", "first", "second"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Leave() })
	f.take(b, "first")
	f.take(b, "second")
	if err := receive(t, died, "the death"); err != nil {
		t.Error(err)
	}
}

// TestC2LeaderThatDiesUnseen: the same for a follower, which reads who leads, and then watches. Neither who dies before
// the read, nor who begins to lead before the watch, is missed.
func TestC2LeaderThatDiesUnseen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	f.take(a, "coordinator")
	b := f.join("b", "1.0", "coordinator")
	proxy, err := zkserver.NewProxy(servers.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	held := []byte(f.run("duty/coordinator/held"))
	died, led := false, make(chan *member.Hold, 1)
	proxy.BeforeSend(func(op int32, req []byte) bool {
		switch {
		case !bytes.Contains(req, held) || len(led) > 0:
		case op == zkserver.OpGetData && !died: // the read
			died = true
			f.ask(znode.Ask{Do: znode.AskPause, Duty: "coordinator"})
			if err := a.Leave(); err != nil {
				t.Error(err)
			}
		case op == zkserver.OpExists: // the watch
			f.ask(znode.Ask{Do: znode.AskResume, Duty: "coordinator"})
			led <- f.take(b, "coordinator")
		}
		return false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for l, err := range member.Follow(ctx, dial(t, proxy.Addr()), f.group.Root, f.group.Name, "coordinator") {
		if err != nil {
			t.Fatal(err)
		}
		h := receive(t, led, "b to lead")
		if l.Identity != "b" || l.Epoch != h.Epoch {
			t.Errorf("the follower sees %+v, and b leads with epoch %d", l, h.Epoch)
		}
		break
	}
}

// TestC3ThousandthCoordinatorLeads: the search for the smallest number began at 999.
func TestC3ThousandthCoordinatorLeads(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	first := f.join("first", "1.0")
	seat := f.run("seat/s-")
	for _, upTo := range []int{1000, 2000, 3000} {
		var ops []zkconn.Op
		for range 1000 {
			ops = append(ops, zkconn.CreateOp(seat, []byte("{}"), zkconn.PersistentSequential, f.acl()))
		}
		results, err := f.s.Multi(t.Context(), ops...)
		if err != nil {
			t.Fatal(upTo, err)
		}
		ops = nil
		for _, r := range results {
			ops = append(ops, zkconn.DeleteOp(r.Path, -1))
		}
		if _, err := f.s.Multi(t.Context(), ops...); err != nil {
			t.Fatal(upTo, err)
		}
	}
	last := f.join("last", "1.0", "coordinator")
	if err := first.Leave(); err != nil {
		t.Fatal(err)
	}
	f.take(last, "coordinator")
	if names := f.children("seat"); len(names) != 1 || names[0] < "s-0000003000" {
		t.Errorf("the seats are %q", names)
	}
}

// TestC4DeathWakesOne: at the death of a coordinator every process listed all others again.
func TestC4DeathWakesOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	assigner := f.join("assigner", "1.0")
	leader := f.join("leader", "1.0", "coordinator")
	f.take(leader, "coordinator")
	var others []*member.Member
	var proxies []*zkserver.Proxy
	for i := range 8 {
		m, p := f.joinBehind(fmt.Sprint("m", i), "coordinator")
		others, proxies = append(others, m), append(proxies, p)
	}
	f.until("all to be seated", func() bool { return len(f.children("seat")) == 10 })
	next := make(chan int, len(others))
	for i, m := range others {
		go func() {
			if _, err := m.Take(t.Context(), "coordinator"); err == nil {
				next <- i
			}
		}()
	}
	before := make([]int, len(proxies))
	quiet := time.Now()
	f.until("the members to be quiet", func() bool {
		for i, p := range proxies {
			if n := requests(p); n != before[i] {
				before[i], quiet = n, time.Now()
			}
		}
		return time.Since(quiet) > 3*time.Second
	})
	if err := leader.Leave(); err != nil {
		t.Fatal(err)
	}
	who := receive(t, next, "the next leader")
	f.until("the assigner to be done", func() bool { return len(f.seats()[others[who].Identity]) == 1 })
	for i, p := range proxies {
		most := 2
		if i < 2 { // the seats after the dead one look for their assigner
			most = 4
		}
		if n := requests(p) - before[i]; i != who && n > most {
			t.Errorf("%s, which the death does not concern, sent %d requests", others[i].Identity, n)
		}
	}
	if assigner.Context().Err() != nil {
		t.Error("the assigner was lost")
	}
}

// requests counts those that are not only signs of life.
func requests(p *zkserver.Proxy) (n int) {
	for op, count := range p.Requests() {
		if op != zkserver.OpPing && op != zkserver.OpExists && op != zkserver.OpSync {
			n += count
		}
	}
	return n
}

// TestC5LeaderKnowsThatItLeads: coordinators went on although they did not know whether their node was made.
func TestC5LeaderKnowsThatItLeads(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	f.join("assigner", "1.0")
	a, proxy := f.joinBehind("a", "coordinator")
	held := []byte(f.run("duty/coordinator/held"))
	cut := proxy.BeforeSend(func(op int32, req []byte) bool {
		return op == zkserver.OpMulti && bytes.Contains(req, held)
	})
	terms, _ := lead(t.Context(), a, "coordinator")
	first := receive(t, terms, "a to lead")
	receive(t, cut, "the fault")
	_, stat, err := f.s.Get(t.Context(), f.run("duty/coordinator/held"))
	if err != nil || stat.Czxid != first.hold.Epoch {
		t.Errorf("it leads with epoch %d, and held is of %d: %v", first.hold.Epoch, stat.Czxid, err)
	}
	first.end <- errors.New("over")
}

// TestC6LongNamesStayWhole: a buffer for a name was smaller than the name.
func TestC6LongNamesStayWhole(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	c := f.config(strings.Repeat("ä", 200), "1.0.0-"+strings.Repeat("a", 200), "coordinator")
	c.Address = strings.Repeat("h", 250) + ":65535"
	m, err := member.Join(t.Context(), dial(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Leave() })
	h := f.take(m, "coordinator")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for l, err := range member.Follow(ctx, dial(t), f.group.Root, f.group.Name, "coordinator") {
		if err != nil {
			t.Fatal(err)
		}
		want := member.Leader{Identity: c.Identity, Address: c.Address, Version: c.Version, Epoch: h.Epoch, Since: l.Since}
		if l != want {
			t.Errorf("followers see %+v", l)
		}
		break
	}
}
