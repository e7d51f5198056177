package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/job"
	"muster/sim/needs"
	"muster/sim/rig"
	"muster/zkstate"
)

// TestSoakOldAndNewMixed changes and runs jobs, each command with the present or the previous muster at random. Neither
// reports what the other wrote as edited, and neither loses it: after each round every record has what is declared,
// with its labels and its last run. With MUSTER_SOAK=1 it has 200 rounds.
func TestSoakOldAndNewMixed(t *testing.T) {
	t.Parallel()
	binaries := map[string]string{"new": filepath.Join(bin, "muster"), "old": previous(t)}
	lanes, rounds := 2, 6
	if os.Getenv("MUSTER_SOAK") != "" {
		rounds = 100
	}
	for i := range lanes {
		t.Run(fmt.Sprint("lane ", i), func(t *testing.T) {
			t.Parallel()
			m := newMixed(t, binaries)
			for round := range rounds {
				m.round(round)
			}
			m.checkNoChanges("old")
			m.checkNoChanges("new")
		})
	}
	for _, newer := range []string{"ids = \"index\"", "gang {\n  }"} {
		t.Run("formats/"+strings.Fields(newer)[0], func(t *testing.T) {
			testOldLeavesNewFormats(t, newMixed(t, binaries), newer)
		})
	}
}

// testOldLeavesNewFormats: a muster of before changes nothing in a job whose record has a format that it does not know,
// nor does its worker join that, and both say why.
func testOldLeavesNewFormats(t *testing.T, m *mixed, newer string) {
	m.jobs["a"] = &mixedJob{workers: 1, join: 60}
	m.write()
	file := filepath.Join(m.files.dir, "main.hcl")
	old := read(t, file)
	write(t, file, strings.Replace(old, "workers = 1", "workers = 1\n  "+newer, 1))
	m.muster(0, "new", "apply", "--yes")
	write(t, file, old)
	path := resource.Join(m.files.root, "a")
	before := m.export(path)
	const why = "it has format 2, this muster knows 1"
	worker := []string{"worker", "--job", "a", "--root", m.files.root, "--identity", "w-0", "--", "true"}
	for _, try := range []struct {
		code int
		args []string
	}{
		{0, []string{"explain", path}}, {3, []string{"plan", "--detailed-exitcode"}}, {3, []string{"apply", "--yes"}},
		{3, []string{"drift"}}, {1, []string{"terminate", path, "--yes"}}, {3, worker},
	} {
		if out := strings.Join(strings.Fields(m.muster(try.code, "old", try.args...)), " "); !strings.Contains(out, why) {
			m.fail("it does not say that %s:\n%s", why, out)
		}
	}
	if d := cmp.Diff(before, m.export(path)); d != "" {
		m.fail("it changed (-before +after):\n%s", d)
	}
	m.muster(0, "new", worker...)
}

// export is what somebody sees of a job.
func (m *mixed) export(path string) string {
	m.t.Helper()
	return m.muster(0, "new", "status", "--json", path)
}

// mixed is a configuration in a root of its own, and what its records must have.
type mixed struct {
	t        *testing.T
	files    fixture
	binaries map[string]string
	dice     *rand.Rand
	reader   *zkstate.Reader
	jobs     map[string]*mixedJob
	log      []string // every command, for a failure
}

// mixedJob is a job as it is declared, and its last run.
type mixedJob struct {
	workers, join int
	labels        map[string]string
	last          string // empty: it has not run yet
}

func newMixed(t *testing.T, binaries map[string]string) *mixed {
	t.Helper()
	s := rig.Dial(t, 30*time.Second, servers.Addrs()...)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := &mixed{
		t: t, files: fixture{dir: t.TempDir(), root: "/mixed-" + zkstate.NewID()[:12]}, binaries: binaries,
		dice: rand.New(rand.NewPCG(seed, 0)), jobs: map[string]*mixedJob{},
	}
	m.reader = zkstate.NewReader(s, m.files.root+"-home", zkstate.Job())
	return m
}

// round changes the declarations, plans, applies and checks, and then runs a job until it is reset.
func (m *mixed) round(round int) {
	m.t.Helper()
	m.change(round)
	m.write()
	m.muster(2, m.randomBinary(), "plan", "--detailed-exitcode")
	if m.dice.IntN(2) == 0 {
		m.muster(0, m.randomBinary(), "apply", "--yes")
	} else {
		m.applySaved()
	}
	m.check()
	m.checkNoChanges(m.randomBinary())
	m.run(round)
	m.check()
	m.checkNoChanges(m.randomBinary())
}

// applySaved saves a plan and applies it. The old muster refuses a file of the new one with keys that it does not know.
func (m *mixed) applySaved() {
	m.t.Helper()
	by, to := m.randomBinary(), m.randomBinary()
	if by == "new" {
		to = "new"
	}
	m.muster(2, by, "plan", "--detailed-exitcode", "--out", "plan.json")
	m.muster(0, to, "apply", "plan.json")
}

// change creates, updates, replaces or deletes one or two jobs.
func (m *mixed) change(round int) {
	for _, name := range []string{"a", "b", "c", "d"}[:1+m.dice.IntN(4)] {
		j := m.jobs[name]
		switch what := m.dice.IntN(4); {
		case j == nil:
			m.jobs[name] = &mixedJob{workers: 1 + m.dice.IntN(2), join: 60 + round}
		case what == 0 && len(m.jobs) > 1:
			delete(m.jobs, name)
		case what == 1: // a replace, with the last run
			j.workers = 3 - j.workers
		case what == 2:
			j.labels = map[string]string{"team": fmt.Sprint("data & co ", round), fmt.Sprint("r", round): "<ü>"}
		default:
			j.labels, j.join = nil, 1000+round
		}
	}
}

func (m *mixed) write() {
	m.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "muster {\n  stack = \"mixed\"\n  home  = \"%[1]s-home\"\n  roots = [\"%[1]s\"]\n}\n", m.files.root)
	for _, name := range slices.Sorted(maps.Keys(m.jobs)) {
		j := m.jobs[name]
		fmt.Fprintf(&b, "job %q {\n  root    = %q\n  workers = %d\n", name, m.files.root, j.workers)
		fmt.Fprintf(&b, "  timeouts {\n    join = \"%ds\"\n  }\n  labels = {\n", j.join)
		for _, key := range slices.Sorted(maps.Keys(j.labels)) {
			fmt.Fprintf(&b, "    %q = %q\n", key, j.labels[key])
		}
		fmt.Fprint(&b, "  }\n}\n")
	}
	write(m.t, filepath.Join(m.files.dir, "main.hcl"), b.String())
}

// run starts all workers of a job, each with a random muster, and waits until they have completed.
func (m *mixed) run(round int) {
	m.t.Helper()
	names := slices.Sorted(maps.Keys(m.jobs))
	name := names[m.dice.IntN(len(names))]
	j := m.jobs[name]
	j.last = fmt.Sprint("run/", round)
	var workers []*runningCommand
	for i := range j.workers {
		worker := m.command(m.randomBinary(), "worker", "--job", name, "--root", m.files.root,
			"--run", j.last, "--identity", fmt.Sprint("w", i), "--start", "all", "--", "true")
		workers = append(workers, startCommand(m.t, worker))
	}
	for _, w := range workers {
		<-w.ended
		if code := w.cmd.ProcessState.ExitCode(); code != 0 {
			m.fail("a worker of %s ended with %d:\n%s%s", name, code, w.out.String(), w.errors.String())
		}
	}
}

// checkNoChanges checks that plan and drift find nothing.
func (m *mixed) checkNoChanges(by string) {
	m.t.Helper()
	if out := m.muster(0, by, "plan", "--detailed-exitcode"); !strings.Contains(out, "No changes.") {
		m.fail("it plans:\n%s", out)
	}
	m.muster(0, by, "drift")
}

// check compares the records with the declarations.
func (m *mixed) check() {
	m.t.Helper()
	state, err := m.reader.Read(m.t.Context(), []string{m.files.root})
	if err != nil {
		m.fail("%v", err)
	}
	want, got := map[string]string{}, map[string]string{}
	for name, j := range m.jobs {
		want[name] = fmt.Sprint(j.workers, j.join, j.labels, j.last, " ready mixed false")
	}
	for path, o := range state.Found {
		if o.Record == nil {
			got[path] = fmt.Sprint(o.Status(), o.Problem)
			continue
		}
		d, last := job.Of(o.Record), ""
		if run := job.LastRun(o.Record); run != nil {
			last = run.ID
		}
		got[d.Name] = fmt.Sprint(d.Workers, seconds(d.Timeouts.Join), d.Labels, last, " ", o.Status(), " ",
			o.Record.Stack, " ", o.Record.Edited())
	}
	if d := cmp.Diff(want, got); d != "" {
		m.fail("what is recorded (-want +got):\n%s", d)
	}
}

func seconds(d resource.Duration) int { return int(time.Duration(d) / time.Second) }

// randomBinary chooses the new or the old muster.
func (m *mixed) randomBinary() string { return []string{"new", "old"}[m.dice.IntN(2)] }

func (m *mixed) command(by string, args ...string) *exec.Cmd {
	cmd := m.files.command(servers.Connect(), args...)
	cmd.Path, cmd.Args[0] = m.binaries[by], m.binaries[by]
	m.log = append(m.log, by+" "+strings.Join(args, " "))
	return cmd
}

// muster runs a command, checks its code, and returns its output.
func (m *mixed) muster(code int, by string, args ...string) string {
	m.t.Helper()
	cmd := m.command(by, args...)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		m.fail("%v", err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		m.fail("exit code %d, want %d:\n%s", got, code, out)
	}
	return string(out)
}

func (m *mixed) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nafter these commands:\n  %s", fmt.Sprintf(format, args...), strings.Join(m.log, "\n  "))
}

// previous builds muster from the commit in testdata/previous. It returns the path of the
// binary.
func previous(t *testing.T) string {
	t.Helper()
	git := needs.Program(t, "git", "git")
	commit := strings.TrimSpace(read(t, "testdata/previous"))
	if err := exec.Command(git, "-C", "..", "merge-base", "--is-ancestor", commit, "HEAD").Run(); err != nil {
		needs.Missing(t, "testdata/previous: %s is no ancestor of HEAD here: %v (git fetch --unshallow)", commit, err)
	}
	source, err := exec.Command(git, "-C", "..", "archive", commit).Output()
	if err != nil {
		t.Fatalf("git archive %s: %v", commit, err)
	}
	dir := t.TempDir()
	untar := exec.Command(needs.Program(t, "tar", "tar"), "-x", "-C", dir)
	untar.Stdin = bytes.NewReader(source)
	if out, err := untar.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	binary := filepath.Join(dir, "muster-previous")
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", binary, ".")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0") // as make build, so that its build cache is used
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build of %s: %v\n%s", commit, err, out)
	}
	return binary
}
