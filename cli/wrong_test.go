package cli_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestNothingIsWrittenToTheWrongPlace: muster refuses an empty directory, an empty configuration, a chroot, and
// another ensemble than that of the plan, before it writes anything. The other ensemble is real and has the same jobs.
func TestNothingIsWrittenToTheWrongPlace(t *testing.T) {
	other := newEnsemble(t, zkserver.Options{})
	f := newFixture(t, 2, "")
	empty, nothing := t.TempDir(), fixture{t.TempDir(), f.root}
	nothing.write(t, 0, "")
	fresh := filepath.Join(f.dir, "fresh.json") // made before the ensemble had an id
	f.mustRun(t, "plan", "--out", fresh)
	f.mustApply(t)
	expect(t, result(f.command(other.Connect(), "apply", "--yes")), 0, "2 created")
	f.write(t, 3, "")
	saved := filepath.Join(f.dir, "plan.json")
	f.mustRun(t, "plan", "--out", saved)

	here, there := lastWrites(t, servers, f.root), lastWrites(t, other, "/")
	for _, c := range []struct {
		servers string
		code    int
		says    string
		args    []string
	}{
		{servers.Connect(), 1, "help: declare the jobs", []string{"apply", "--yes", "--allow-empty", empty}},
		{servers.Connect(), 1, "help: declare the jobs", []string{"plan", "--out", "p.json", empty}},
		{servers.Connect(), 7, "--allow-empty", []string{"apply", "--yes", nothing.dir}},
		{servers.Connect() + "/jobs", 64, "chroot", []string{"apply", "--yes"}},
		{servers.Connect() + "/jobs", 64, "chroot", []string{"apply", saved}},
		{other.Connect(), 5, "it was made for the ensemble", []string{"apply", saved}},
		{servers.Connect(), 5, "it was made for the ensemble", []string{"apply", saved, "--servers", other.Connect()}},
		{other.Connect(), 5, "it was made before anything was applied", []string{"apply", fresh}},
	} {
		expect(t, result(f.command(c.servers, c.args...)), c.code, c.says)
	}
	if d := cmp.Diff(here, lastWrites(t, servers, f.root)); d != "" {
		t.Errorf("something was written here (-before +after):\n%s", d)
	}
	if d := cmp.Diff(there, lastWrites(t, other, "/")); d != "" {
		t.Errorf("something was written there (-before +after):\n%s", d)
	}
	expect(t, result(f.command(servers.Connect(), "apply", saved)), 0, "1 created") // the right one
	if _, err := os.Stat(filepath.Join(f.dir, "p.json")); err == nil {
		t.Error("a plan of nothing was saved")
	}
}

// lastWrites lists the znodes below path, each with the last transactions that changed it and its children.
func lastWrites(t *testing.T, e *zkserver.Ensemble, path string) map[string][2]int64 {
	t.Helper()
	s := rig.Dial(t, 30*time.Second, e.Addrs()...)
	all := map[string][2]int64{}
	var list func(string)
	list = func(path string) {
		stat, _, err := s.Exists(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = [2]int64{stat.Mzxid, stat.Pzxid}
		names, _, err := s.Children(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if path == "/" {
			path = ""
		}
		for _, name := range names {
			list(path + "/" + name)
		}
	}
	list(path)
	if len(all) < 3 {
		t.Fatalf("only %v", all)
	}
	return all
}

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
	sendSignal(t, member, syscall.SIGTERM)
	endsWith(t, member, seen, 143)
}

// TestRecordOfANewerVersion: a muster that does not know the layout of the Record claims nothing by it, and does not
// try all the time. What it holds goes on. New members say which version is needed. Afterwards ticks run again; which
// of them ran meanwhile, and that none runs twice, is for package member.
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
	at := znode.Record(group.KindName, f.root, "shop")
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
	expect(t, result(f.member(servers.Connect(), "b", "1.0.0", "--join-timeout", "20s")), 3, text)

	sent := proxy.Requests()[fault.OpMulti]
	looked := time.Now()
	rig.Await(t, "three seconds", func() bool { return time.Since(looked) > 3*time.Second })
	if n := proxy.Requests()[fault.OpMulti] - sent; n > 30 {
		t.Errorf("the member tried %d transactions in %s", n, time.Since(looked))
	}
	if strings.Contains(f.logged(), "asked a") {
		t.Errorf("the leader's command was ended:\n%s", seen)
	}
	if _, err := s.Set(t.Context(), at, body, stat.Version); err != nil {
		t.Fatal(err)
	}
	f.awaitLog("tick", strings.Count(f.logged(), "tick")+2)
}
