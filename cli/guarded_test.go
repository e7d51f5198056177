package cli_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkserver"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// guarded is examples/guarded with the ACL that its comments show, on servers of its own.
type guarded struct {
	t     *testing.T
	files fixture
	e     *zkserver.Ensemble
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	e := newEnsemble(t, zkserver.Options{})
	g := &guarded{t, fixture{dir: t.TempDir()}, e}
	hcl := read(t, "../examples/guarded/jobs.hcl")
	commented := regexp.MustCompile(`(?m)^  # (acl = \[|  ".*|\])`)
	if n := len(commented.FindAllString(hcl, -1)); n != 5 {
		t.Fatalf("%d lines of the example are its commented list of users, want 5", n)
	}
	g.write("jobs.hcl", commented.ReplaceAllString(hcl, "  $1"))
	g.write("rules.txt", read(t, "../examples/guarded/rules.txt"))
	return g
}

func (g *guarded) write(name, text string) {
	g.t.Helper()
	write(g.t, filepath.Join(g.files.dir, name), text)
}

// edit replaces text in the configuration.
func (g *guarded) edit(old, now string) {
	g.t.Helper()
	hcl := read(g.t, filepath.Join(g.files.dir, "jobs.hcl"))
	if !strings.Contains(hcl, old) {
		g.t.Fatalf("the example does not say %q", old)
	}
	g.write("jobs.hcl", strings.Replace(hcl, old, now, 1))
}

// as runs a command with the credentials of a user, or without, and checks its code.
func (g *guarded) as(user string, code int, args ...string) string {
	g.t.Helper()
	got := result(g.command(user, args...))
	if got.code != code {
		g.t.Fatalf("%s: %v: code %d, want %d\n%s%s", user, args, got.code, code, got.stdout, got.stderr)
	}
	return got.stdout + got.stderr
}

// command returns a command of a user, whose password is "secret".
func (g *guarded) command(user string, args ...string) *exec.Cmd {
	cmd := g.files.command(g.e.Connect(), args...)
	if user != "" {
		cmd.Env = append(cmd.Env, "MUSTER_ZK_AUTH=digest:"+user+":secret")
	}
	return cmd
}

// run starts n workers of the job audit and waits until they have completed.
func (g *guarded) run(n int, name string) {
	g.t.Helper()
	var workers []*runningCommand
	for i := range n {
		worker := g.command("worker", "worker", "--job", "audit", "--root", "/jobs/prod", "--run", name,
			"--identity", fmt.Sprint("w", i), "--start", "barrier", "--", filepath.Join(bin, "muster"), "members")
		workers = append(workers, startCommand(g.t, worker))
	}
	for _, w := range workers {
		<-w.ended
		if code := w.cmd.ProcessState.ExitCode(); code != 0 {
			g.t.Fatalf("a worker of %s ended with %d\n%s%s", name, code, w.out.String(), w.errors.String())
		}
	}
}

// checkOwnership checks that the record names the deployer, and that every znode of the job has the ACL of the record,
// whoever created it.
func (g *guarded) checkOwnership(workers int, last string) {
	g.t.Helper()
	deployer := zkconn.Auth{Scheme: "digest", Data: []byte("deployer:secret")}
	s, err := zkconn.Dial(g.t.Context(), zkconn.Config{Servers: g.e.Addrs(), Auth: []zkconn.Auth{deployer}})
	if err != nil {
		g.t.Fatal(err)
	}
	defer s.Close()
	at := znode.Record(job.KindName, "/jobs/prod", "audit")
	body, _, err := s.Get(g.t.Context(), at)
	if err != nil {
		g.t.Fatal(err)
	}
	rec, err := znode.DecodeRecord(job.Kind(), body)
	if err != nil {
		g.t.Fatal(err)
	}
	want := []string{
		"digest:deployer:iuIgXRnHEhynFJBU9JUWTmWEwAM=:cdrwa", "digest:worker:omHNdNC4yTDmMuU4WLRCMsPiS0Y=:cdrw",
		"world:anyone:r",
	}
	if d := cmp.Diff(want, rec.ACL); d != "" || rec.Edited() {
		g.t.Errorf("the record names (-want +got):\n%sedited: %v", d, rec.Edited())
	}
	run, j := "", job.Of(&rec)
	if r := job.LastRun(&rec); r != nil {
		run = r.ID
	}
	if j.Workers != workers || run != last {
		g.t.Errorf("it has %d workers and the last run %q, want %d and %q", j.Workers, run, workers, last)
	}
	for _, path := range []string{at, j.Path(), znode.Run(j.Root, rec.Generation), znode.Gate(j.Root, rec.Generation)} {
		found, _, err := s.ACL(g.t.Context(), path)
		if err != nil {
			g.t.Fatal(err)
		}
		var got []string
		for _, a := range found {
			got = append(got, fmt.Sprintf("%s:%s:%d", a.Scheme, a.ID, a.Perms))
		}
		slices.Sort(got)
		if d := cmp.Diff([]string{
			"digest:deployer:iuIgXRnHEhynFJBU9JUWTmWEwAM=:31", "digest:worker:omHNdNC4yTDmMuU4WLRCMsPiS0Y=:15",
			"world:anyone:1",
		}, got); d != "" {
			g.t.Errorf("%s is of (-want +got):\n%s", path, d)
		}
	}
}

// TestGuardedExample runs a job twice with three users. The deployer keeps every right on the znodes that workers
// create when they reset the job, and can update, replace and terminate it.
func TestGuardedExample(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.as("", 8, "apply", "--yes")
	g.as("deployer", 0, "apply", "--yes")
	g.checkOwnership(3, "")
	g.run(3, "first")
	g.checkOwnership(3, "first")
	g.run(3, "second")
	g.checkOwnership(3, "second")

	g.as("", 0, "status", "--root", "/jobs/prod", "audit") // everybody may look
	g.as("", 0, "plan")
	g.as("", 0, "drift")
	g.write("rules.txt", "no posting is changed\n")
	g.as("deployer", 2, "plan", "--detailed-exitcode")
	g.as("deployer", 0, "apply", "--yes") // an update
	g.checkOwnership(3, "second")
	g.edit("workers = 3", "workers = 2")
	if out := g.as("deployer", 0, "apply", "--yes"); !strings.Contains(out, "1 replaced") {
		t.Errorf("no replace:\n%s", out)
	}
	g.checkOwnership(2, "second")
	g.run(2, "third")
	g.checkOwnership(2, "third")
	g.as("", 8, "terminate", "audit", "--root", "/jobs/prod", "--yes")
	g.as("deployer", 0, "terminate", "audit", "--root", "/jobs/prod", "--yes")
	if out := g.as("deployer", 0, "apply", "--yes"); !strings.Contains(out, "1 created") {
		t.Errorf("no create:\n%s", out)
	}
	g.checkOwnership(2, "")
	g.as("deployer", 0, "plan", "--detailed-exitcode")
}
