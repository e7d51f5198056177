package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/exitcode"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/needs"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
)

// For the command of a worker: which of its processes has started it, from 1; and in TestMixedLanguages the identities
// of all workers.
const lifeVariable, allVariable = "FAULTS_LIFE", "FAULTS_ALL"

// ours reports whether a worker is muster's own. The others write what they do to their standard output, and pass the
// barrier before they start the command.
func ours(identity string) bool { return strings.HasPrefix(identity, "go-") }

// mixedCommand is the command of a worker in TestMixedLanguages. It checks that no other command of its id runs, and
// that all workers have come to the barrier that it, or its worker, has passed.
func mixedCommand(dir string) int {
	id, life, identity, worker := number("MUSTER_ID"), number(lifeVariable), os.Getenv("MUSTER_IDENTITY"), os.Getppid()
	wrong := func(format string, args ...any) int {
		say(dir, "wrong", id, life, identity+": "+fmt.Sprintf(format, args...))
		return exitWrong
	}
	for begun := time.Now(); !lock(lockFile(dir, id, 0)); <-time.After(rig.PollEvery) {
		if time.Since(begun) > time.Minute { // one whose worker was killed has long ended
			return wrong("another command of this id runs")
		}
	}
	if ours(identity) {
		say(dir, "comes", id, life, identity)
		if text := pass("loaded"); text != "" {
			return wrong("barrier: %s", text)
		}
		roll, err := readRoll(os.Getenv("MUSTER_ROLL"))
		if err != nil {
			return wrong("the roll: %v", err)
		}
		say(dir, "roll", id, life, roll)
	}
	for _, other := range strings.Fields(os.Getenv(allVariable)) {
		if !hasCome(dir, other) {
			return wrong("it has passed the barrier, and %s has not come", other)
		}
	}
	say(dir, "starts", id, life, identity)
	for ; os.Getppid() == worker; <-time.After(rig.PollEvery) {
		if _, err := os.Stat(doneFile(dir)); err == nil {
			return 0
		}
	}
	return exitFailed
}

// pass passes round 0 of a barrier, as the command of one of our workers. It returns what is wrong.
func pass(barrier string) string {
	for worker := os.Getppid(); os.Getppid() == worker; <-time.After(rig.PollEvery) {
		text, err := exec.Command(filepath.Join(os.Getenv("FAULTS_BIN"), "muster"), "barrier", barrier, "--round", "0",
			"--timeout", "1h").CombinedOutput()
		if err == nil {
			return ""
		}
		if e, ended := errors.AsType[*exec.ExitError](err); ended && e.ExitCode() == exitcode.Aborted {
			return string(text)
		}
	}
	return "" // nobody waits for it any more
}

// readRoll returns a roll as the workers of examples print it.
func readRoll(path string) (string, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var rows []struct {
		ID, Port int
		IP       string
	}
	if err := json.Unmarshal(body, &rows); err != nil {
		return "", err
	}
	var all []string
	for _, r := range rows {
		all = append(all, fmt.Sprintf(`"%d": "%s:%d"`, r.ID, r.IP, r.Port))
	}
	return "{" + strings.Join(all, ", ") + "}", nil
}

// hasCome reports whether a worker has said what it says before it arrives at the barrier.
func hasCome(dir, identity string) bool {
	path, says := outputFile(dir, identity), func(line string) bool { return strings.HasPrefix(line, "roll {") }
	if ours(identity) {
		path, says = sayFile(dir), func(line string) bool {
			return strings.HasPrefix(line, "comes ") && strings.HasSuffix(line, " "+identity)
		}
	}
	body, err := os.ReadFile(path)
	return err == nil && slices.ContainsFunc(strings.Split(string(body), "\n"), says)
}

// mixedSize is how much of TestMixedLanguages is run: how many workers of each language, rounds, and faults in each.
func mixedSize() (each, rounds, faults int) {
	if rig.Long() {
		return 3, 20, 30
	}
	return 2, 2, 12
}

// TestMixedLanguages: workers in Go, Python and Java run a job again and again on three servers, behind proxies, while
// processes are killed, frozen, cut off, asked to end and replaced by a twin of their identity, requests get no reply,
// and the leader dies. Whoever ends is started again. In each round ids have no gap, and every identity keeps its own;
// all see the same roll; nobody passes the barrier before all have come to it; no two commands of an id run at the same
// time, and whose identity has a twin is fenced; and the last one resets the job. With MUSTER_SOAK=1 there are 9
// workers and 20 rounds with 30 faults each.
func TestMixedLanguages(t *testing.T) {
	t.Parallel()
	each, rounds, faults := mixedSize()
	k := newMixed(t, each)
	for round := range rounds {
		run := fmt.Sprint("round-", round)
		k.beginRun(run)
		for made := 0; made < faults && k.wrong() == ""; made++ {
			k.harm(k.mixedHarms())
			zkconn.Pause(t.Context(), rig.Between(k.random, 0, sessionTimeout))
		}
		k.harms.Wait()
		k.awaitCommands()
		for _, w := range k.workers[:3] { // one of each language
			k.harms.Go(func() { w.twin(0) })
		}
		k.harms.Wait()
		k.awaitCommands()
		k.checkRun()
		k.endAll()
		o := rig.Look(t, k.store(), k.job.Path())
		last := job.LastRun(o.Record)
		if o.Class() != resource.Ready || o.Record.Edited() || last == nil || last.ID != run || last.Generation != k.g {
			t.Fatalf("after %s of %s: %s, edited %v, last %+v", run, k.g, o.Status(), o.Record.Edited(), last)
		}
	}
}

// newMixed creates the job, with so many workers of each language.
func newMixed(t *testing.T, each int) *soak {
	t.Helper()
	k := newServers(t, size{workers: 3 * each})
	k.job.Timeouts.Join, k.job.Timeouts.Barrier = resource.Duration(rig.Patience), resource.Duration(rig.Patience)
	rig.Create(t, k.store(), k.job)
	script, err := filepath.Abs("../../examples/python/worker.py")
	if err != nil {
		t.Fatal(err)
	}
	python, java := []string{needs.Program(t, "python3", "python3"), script}, needs.JavaWorker(t, "../..")
	for i := range each {
		onLoss := []string{"stop", "rejoin"}[i%2]
		identity := fmt.Sprintf("go-%s-%d", onLoss, i)
		w := k.addWorker(identity, []string{filepath.Join(bin, "muster"), "worker", "--root", k.job.Root,
			"--job", k.job.Name, "--identity", identity, "--advertise", k.nextAddress(), "--on-loss", onLoss,
			"--start", "all", "--grace", "2s", "--", self})
		w.loses = onLoss == "stop"
		for language, program := range map[string][]string{"python": python, "java": java} {
			identity := fmt.Sprintf("%s-%d", language, i)
			w := k.addWorker(identity, slices.Concat(program,
				[]string{k.job.Path(), identity, k.nextAddress(), "loaded", self}))
			w.oneServer, w.loses = language == "python", language == "python"
		}
	}
	for _, w := range k.workers {
		w.others = k.newProxies()
	}
	return k
}

// nextAddress is where the others reach the worker that is added next.
func (k *soak) nextAddress() string { return fmt.Sprintf("10.0.0.%d:9000", 1+len(k.workers)) }

// beginRun starts the workers of another run, which have a directory of their own.
func (k *soak) beginRun(run string) {
	k.t.Helper()
	k.dir = k.t.TempDir()
	var all []string
	for _, w := range k.workers {
		all = append(all, w.identity)
	}
	k.env = []string{"MUSTER_RUN=" + run, allVariable + "=" + strings.Join(all, " "), "PYTHONDONTWRITEBYTECODE=1"}
	k.g = rig.Look(k.t, k.store(), k.job.Path()).Record.Generation
	for _, w := range k.workers {
		w.start()
	}
}

// mixedHarms are the faults of TestMixedLanguages.
func (k *soak) mixedHarms() []harm {
	return []harm{
		{"kill", 5, func(w *gangWorker, _ time.Duration) { w.kill() }},
		{"twin", 3, (*gangWorker).twin},
		{"freeze", 2, (*gangWorker).freeze},
		{"cut", 4, (*gangWorker).cutOff},
		{"lost reply", 4, (*gangWorker).loseReply},
		{"term", 2, func(w *gangWorker, _ time.Duration) { w.terminate() }},
		{"leader", 1, func(_ *gangWorker, d time.Duration) { k.killLeader(d) }},
	}
}

// twin cuts a process off for as long as it takes until another process of its identity runs the command. Then the
// first one is fenced. One that does not end its command with its session, or has not joined yet, is killed instead.
func (w *gangWorker) twin(time.Duration) {
	if strings.HasPrefix(w.identity, "go-rejoin") || !w.runs() {
		w.kill()
		return
	}
	w.mu.Lock()
	first, cut := w.run, w.proxies
	w.proxies, w.others = w.others, w.proxies
	reachable(cut, false)
	_, err := w.launchLocked()
	w.mu.Unlock()
	w.k.check(err)
	for late := time.Now().Add(rig.Patience); !w.runs() && w.k.wrong() == "" && time.Now().Before(late); {
		zkconn.Pause(w.k.t.Context(), rig.PollEvery)
	}
	reachable(cut, true)
	select {
	case <-first.Done:
	case <-time.After(rig.Patience / 2): // less than it may wait for another process of its identity
		w.odd.Store(new(w.identity + " goes on beside its twin"))
		w.k.check(first.Kill())
	}
	codes := []int{exitcode.Fenced, 128 + int(syscall.SIGKILL), 128 + int(syscall.SIGTERM)}
	if w.loses {
		codes = append(codes, exitcode.Unreachable)
	}
	if !slices.Contains(codes, first.Code()) {
		w.odd.Store(new(fmt.Sprintf("%s, who has a twin, has ended with %d", w.identity, first.Code())))
	}
}

// runs reports whether the command of its newest process has passed the barrier.
func (w *gangWorker) runs() bool {
	w.mu.Lock()
	life := w.lives
	w.mu.Unlock()
	return slices.ContainsFunc(w.k.said(), func(line string) bool {
		return strings.HasPrefix(line, "starts ") && strings.HasSuffix(line, fmt.Sprintf(" %d %s", life, w.identity))
	})
}

// awaitCommands waits until the commands of all workers run.
func (k *soak) awaitCommands() {
	k.t.Helper()
	rig.Until(k.t, rig.Patience, "commands that run", func() string {
		if wrong := k.wrong(); wrong != "" {
			k.t.Fatal(wrong)
		}
		for _, w := range k.workers {
			if !w.runs() {
				return w.identity + " does not run its command"
			}
		}
		return ""
	})
}

// checkRun compares the ids in ZooKeeper with what all lives of all workers have had, and all rolls with these.
func (k *soak) checkRun() {
	k.t.Helper()
	ws, _, err := k.store().Workers(k.t.Context(), k.job.Path())
	if err != nil {
		k.t.Fatal(err)
	}
	ids, roll := map[string]int{}, make([]string, len(k.workers))
	for _, w := range ws {
		ids[w.Identity] = w.ID
	}
	for i, w := range k.workers {
		id, joined := ids[w.identity]
		if !joined || id < 0 || id >= len(roll) || roll[id] != "" {
			k.t.Fatalf("%s has id %d of %d: %v", w.identity, id, len(roll), ids)
		}
		roll[id] = fmt.Sprintf(`"%d": "10.0.0.%d:9000"`, id, i+1)
	}
	want := "{" + strings.Join(roll, ", ") + "}"
	seen := map[string]int{}
	for _, line := range k.said() {
		var what, identity string
		var id, life int
		if n, _ := fmt.Sscan(line, &what, &id, &life, &identity); n == 4 && what == "starts" && ids[identity] != id {
			k.t.Errorf("%s was worker %d, and is %d", identity, id, ids[identity])
		} else if what == "roll" {
			seen[line[strings.Index(line, "{"):]]++
		}
	}
	for _, w := range k.workers {
		body, err := os.ReadFile(w.output())
		k.check(err)
		for _, line := range strings.Split(string(body), "\n") {
			var id, n int
			if got, _ := fmt.Sscanf(line, "worker %d of %d", &id, &n); got == 2 && id != ids[w.identity] {
				k.t.Errorf("%s was worker %d, and is %d", w.identity, id, ids[w.identity])
			} else if roll, is := strings.CutPrefix(line, "roll "); is {
				seen[roll]++
			}
		}
	}
	if d := cmp.Diff([]string{want}, slices.Sorted(maps.Keys(seen))); d != "" {
		k.t.Errorf("the rolls that were seen (-want +got):\n%s", d)
	}
	k.t.Logf("%s: %d lives have seen the roll; faults %v", k.env[0], seen[want], k.count)
}
