package cli_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// deleteAll deletes everything below a path, and the path.
func deleteAll(t *testing.T, s *zkconn.Session, path string) {
	t.Helper()
	names, _, err := s.Children(t.Context(), path)
	if err == nil {
		for _, name := range names {
			deleteAll(t, s, resource.Join(path, name))
		}
		err = s.Delete(t.Context(), path, -1)
	}
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		t.Fatal(err)
	}
}

// TestGroupIsDeletedUnderItsMembers: commands end, the members wait for the group, and come back when it is applied.
func TestGroupIsDeletedUnderItsMembers(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", obedient)
	member, seen := f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("begins a", 1)
	s := rig.Dial(t, 0, servers.Addrs()...)
	before := f.generation(s)
	deleteAll(t, s, f.root)
	deleteAll(t, s, f.root+"-home")
	seen.await(t, "waiting for the group to be created: "+f.root+"/shop")
	if n := strings.Count(f.logged(), "begins a"); n != 1 {
		t.Errorf("the log says\n%s", f.logged())
	}
	f.mustApply(t)
	f.awaitLog("begins a", 2)
	if after := f.generation(s); after == before {
		t.Error("the generation is the same")
	}
	if err := member.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	endsWith(t, member, seen, 143)
}

// TestRecordOfANewerVersion: a muster that does not know the layout of the Record claims nothing by it, and does not
// try all the time. What it holds goes on. New members say which version is needed. Afterwards nothing is lost.
func TestRecordOfANewerVersion(t *testing.T) {
	t.Parallel()
	const blocks = `leader "main" {}
cron "report" {
  schedule = "@every 1s"
  missed   = "all"
  keep     = 100
}`
	f := newGroupFixture(t, blocks)
	f.declareWith("20s", blocks) // when a session is lost, a run may be repeated
	f.duty("main", obedient)
	f.duty("report", "say tick $MUSTER_TICK")
	proxy := newProxy(t, 0)
	_, seen := f.memberWithDuties(proxy.Addr(), "a", "1.0.0")
	f.awaitLog("begins a", 1)
	f.awaitLog("tick", 2)
	s := rig.Dial(t, 0, servers.Addrs()...)
	generation, at := f.generation(s), znode.Record(group.KindName, f.root, "shop")
	body, stat, err := s.Get(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Replace(body, []byte(`"format":1`), []byte(`"format":2`), 1)
	stat, err = s.Set(t.Context(), at, newer, stat.Version)
	if err != nil {
		t.Fatal(err)
	}
	const text = "it has format 2, this muster knows 1"
	expect(t, result(f.command(servers.Connect(), "status", "--root", f.root)), 3, "unreadable")
	expect(t, result(f.command(servers.Connect(), "explain", f.root+"/shop")), 0,
		"leave it alone, and use the muster that wrote it")
	expect(t, result(f.command(servers.Connect(), "apply", "--yes")), 3, text)
	expect(t, result(f.member(servers.Connect(), "b", "1.0.0", "--join-timeout", "20s")), 1, text)

	sent := proxy.Requests()[zkserver.OpMulti]
	looked := time.Now()
	rig.Await(t, "three seconds", func() bool { return time.Since(looked) > 3*time.Second })
	if n := proxy.Requests()[zkserver.OpMulti] - sent; n > 30 {
		t.Errorf("the member tried %d transactions in %s", n, time.Since(looked))
	}
	if strings.Contains(f.logged(), "asked a") {
		t.Errorf("the leader's command was ended:\n%s", seen)
	}
	if _, err := s.Set(t.Context(), at, body, stat.Version); err != nil {
		t.Fatal(err)
	}
	back := time.Now().UTC()
	ranAt := func() (all []time.Time) {
		for line := range strings.Lines(f.logged()) {
			text, ok := strings.CutPrefix(strings.TrimSpace(line), "tick ")
			if tick, err := time.Parse(time.RFC3339, text); ok && err == nil {
				all = append(all, tick)
			}
		}
		return all
	}
	rig.Await(t, "a tick after the Record is back", func() bool {
		all := ranAt()
		return all[len(all)-1].After(back)
	})
	all := ranAt()
	if !slices.IsSortedFunc(all, time.Time.Compare) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("ticks ran twice or in another order: %v", all)
	}
	names, _, err := s.Children(t.Context(), znode.Ticks(f.root, generation, "report"))
	if err != nil {
		t.Fatal(err)
	}
	accounted := 0
	for _, name := range names {
		body, _, err := s.Get(t.Context(), znode.Ticks(f.root, generation, "report")+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := znode.Decode[znode.TickRecord](body)
		if err != nil {
			t.Fatal(err)
		}
		tick, err := znode.TickTime(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := max(r.Count, 1); tick.Before(back) {
			accounted += n
		}
	}
	if want := int(back.Truncate(time.Second).Sub(all[0])/time.Second) + 1; accounted < want {
		t.Errorf("%d ticks from %s to %s are accounted for, of %d", accounted, all[0], back, want)
	}
}
