package cli_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkserver"
	"muster/zkstate/zkconn"
)

// TestNothingIsWrittenToTheWrongPlace: muster refuses an empty directory, an empty configuration, a chroot, and
// another ensemble than that of the plan, before it writes anything. The other ensemble is real and has the same jobs.
func TestNothingIsWrittenToTheWrongPlace(t *testing.T) {
	other, err := zkserver.Start(t.Context(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	f := newFixture(t, 2, "")
	empty, nothing := t.TempDir(), fixture{t.TempDir(), f.root}
	nothing.write(t, 0, "")
	fresh := filepath.Join(f.dir, "fresh.json") // made before the ensemble had an id
	f.mustRun(t, "plan", "--out", fresh)
	f.mustRun(t, "apply", "--yes")
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
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: e.Addrs(), Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
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
