// Package faults tests gangs, and jobs whose workers are of several languages, with real processes and real ZooKeeper
// servers: workers, commands, connections and servers that fail at random. It has no code of its own.
package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/dev/daemon"
	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/exitcode"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// bin is the directory with muster. The commands of the workers are this binary.
var bin, self string

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(dirVariable); ok {
		if _, mixed := os.LookupEnv(allVariable); mixed {
			os.Exit(mixedCommand(dir))
		}
		os.Exit(command(dir))
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "muster-faults-"); err == nil {
		defer os.RemoveAll(bin)
		err = rig.Build(bin, map[string]string{"muster": "../.."})
	}
	if err == nil {
		self, err = os.Executable()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// dirVariable tells this binary that it is the command of a worker, and where the files are that commands share.
const dirVariable = "FAULTS_DIR"

// The files that commands share: a lock for each id and attempt, which its command holds as long as it runs; a file
// that makes the next command of an id fail; one that lets the commands end well; and what they say.
func lockFile(dir string, id, attempt int) string {
	return filepath.Join(dir, fmt.Sprintf("lock-%d-%d", id, attempt))
}
func failFile(dir string, id int) string { return filepath.Join(dir, fmt.Sprint("fail-", id)) }
func outputFile(dir, identity string) string {
	return filepath.Join(dir, identity+".out")
}
func doneFile(dir string) string { return filepath.Join(dir, "done") }
func sayFile(dir string) string  { return filepath.Join(dir, "said") }

// exitFailed is the exit code of a command that was told to fail, or exitFinal, if the file says so. exitWrong is that
// of one that found a promise broken.
const exitFailed, exitFinal, exitWrong = 9, 2, 3

// command is what a worker runs. It checks that it runs alone, and meets the others again and again.
func command(dir string) int {
	id, attempt := number("MUSTER_ID"), number("MUSTER_ATTEMPT")
	wrong := func(format string, args ...any) int {
		say(dir, "wrong", id, attempt, fmt.Sprintf(format, args...))
		return exitWrong
	}
	if !lock(lockFile(dir, id, attempt)) {
		return wrong("another command of this id and attempt runs")
	}
	for other := range number("MUSTER_WORKERS") {
		for before := max(1, attempt-3); before < attempt; before++ {
			if held(lockFile(dir, other, before)) {
				return wrong("the command of %d in attempt %d still runs", other, before)
			}
		}
	}
	say(dir, "starts", id, attempt, "")
	for round := 0; ; round++ {
		if code := told(dir, id); code != 0 {
			return code
		}
		meets := exec.Command(filepath.Join(os.Getenv("FAULTS_BIN"), "muster"), "barrier", "x",
			"--round", strconv.Itoa(round), "--timeout", "1h")
		met := make(chan string)
		go func() {
			text, err := meets.CombinedOutput()
			if e, ended := errors.AsType[*exec.ExitError](err); ended && e.ExitCode() == exitcode.Aborted {
				met <- string(text)
			} else if err == nil { // else the attempt is over, or the worker has ended
				met <- ""
			}
		}()
		for waits := true; waits; {
			select {
			case aborted := <-met:
				if waits = false; aborted != "" {
					return wrong("barrier: %s", aborted)
				}
			case <-time.After(rig.PollEvery):
			}
			if code := told(dir, id); code == exitFinal {
				return code
			}
			if _, err := os.Stat(doneFile(dir)); err == nil { // others may have ended, and not come to this round
				say(dir, "ends", id, attempt, "")
				return 0
			}
		}
	}
}

// told is the exit code with which the command is told to fail; 0: it is not.
func told(dir string, id int) int {
	body, err := os.ReadFile(failFile(dir, id))
	if err != nil || os.Remove(failFile(dir, id)) != nil {
		return 0
	}
	if string(body) == "final" {
		return exitFinal
	}
	return exitFailed
}

func number(variable string) int {
	n, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		panic(variable + ": " + err.Error())
	}
	return n
}

// lock takes a lock for as long as this process lives. It reports whether nobody has it.
func lock(path string) bool {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	return err == nil && syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// held reports whether a process has the lock.
func held(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// say appends a line to what all commands say.
func say(dir, what string, id, attempt int, text string) {
	f, err := os.OpenFile(sayFile(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintf(f, "%s %d %d %s\n", what, id, attempt, strings.ReplaceAll(text, "\n", " "))
}

// TestGangAway: a worker that is asked to end while no server can be reached ends. If its command fails then, and its
// session is lost before it can decide, it still knows how the command has failed, unless another one has decided.
func TestGangAway(t *testing.T) {
	t.Parallel()
	k := newSoak(t, size{workers: 2})
	first, second := k.workers[0], k.workers[1]
	runs := [2]*daemon.Process{}
	launch := func(i int) {
		var err error
		if runs[i], err = k.workers[i].launch(); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(i, code int) {
		t.Helper()
		select {
		case <-runs[i].Done:
			if got := runs[i].Code(); got != code {
				t.Errorf("worker %d ends with %d, want %d", i, got, code)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("worker %d does not end", i)
		}
	}
	launch(0)
	launch(1)
	k.awaitStarts(1)
	first.reachable(false)
	first.terminate()
	ends(0, 128+int(syscall.SIGTERM))
	first.reachable(true)
	launch(0)
	k.awaitStarts(2)
	k.check(runs[0].OS.Signal(syscall.SIGSTOP)) // it decides nothing
	second.reachable(false)
	k.fail(1, "final")
	zkconn.Pause(t.Context(), 2*sessionTimeout)
	second.reachable(true)
	ends(1, exitFinal)
	k.check(runs[0].OS.Signal(syscall.SIGCONT))
	ends(0, exitcode.GangFailed)
}

// TestGangFrozen: the command of a worker that is frozen ends before a spare takes its id. When the worker goes on it
// is a spare itself.
func TestGangFrozen(t *testing.T) {
	t.Parallel()
	k := newSoak(t, size{workers: 2, spares: 1})
	for _, w := range k.workers {
		w.start()
	}
	k.awaitStarts(1)
	frozen := slices.IndexFunc(k.workers, func(w *gangWorker) bool { return w.joinedAs(1) })
	p := k.workers[frozen].process()
	k.check(p.OS.Signal(syscall.SIGSTOP))
	k.awaitStarts(2) // or a command says what is wrong
	k.check(p.OS.Signal(syscall.SIGCONT))
	rig.Await(t, "a spare", func() bool {
		waiting, _, err := k.s.Children(t.Context(), znode.Spares(k.job.Root, k.g))
		return err == nil && len(waiting) == 1
	})
	k.finish()
}

// sessionTimeout is that of the workers. A fault that goes on is over sooner or later than it.
const sessionTimeout = 3 * time.Second

// size is how much of TestGangSoak is run.
type size struct{ workers, spares, faults int }

func soakSize() size {
	if rig.Long() {
		return size{workers: 16, spares: 3, faults: 300}
	}
	return size{workers: 6, spares: 2, faults: 16}
}

// TestGangSoak: a gang with spares on three servers, behind proxies, of which processes are killed, frozen, cut off and
// asked to end, one or all, whose commands fail, whose requests get no reply, and whose leader dies. Whoever ends is
// started again. No command runs beside one of another attempt or of its own id, each attempt begins in the end, and
// when the commands may end, all processes end well, after the same attempt. With MUSTER_SOAK=1 there are 300 faults,
// 16 workers and 3 spares.
func TestGangSoak(t *testing.T) {
	t.Parallel()
	k := newSoak(t, soakSize())
	for _, w := range k.workers {
		w.start()
	}
	k.awaitRun()
	begun := time.Now()
	for made := 0; made < k.size.faults; {
		for range 1 + k.random.IntN(4) {
			k.harm(k.gangHarms())
			made++
			zkconn.Pause(t.Context(), rig.Between(k.random, 0, sessionTimeout))
		}
		k.harms.Wait()
		k.awaitRun()
	}
	a := k.attempt()
	t.Logf("%d attempts, %d restarts used, %d joins with the id of another, after %s; faults %v", a.Number, a.Used,
		k.replaced(), time.Since(begun).Round(time.Second), k.count)
	k.finish()
}

// soak is a gang and its workers.
type soak struct {
	t        *testing.T
	size     size
	dir      string
	env      []string // more of the environment of workers
	random   *rand.Rand
	ensemble *zkserver.Ensemble
	s        *zkconn.Session
	job      job.Job
	g        string // the generation
	workers  []*gangWorker
	count    map[string]int // faults, by their names
	harms    sync.WaitGroup // those that go on
	leader   sync.Mutex     // held while it is down
}

func newSoak(t *testing.T, size size) *soak {
	t.Helper()
	k := newServers(t, size)
	k.job.IDs, k.job.Lifecycle.OnComplete = job.ByIndex, job.Retain
	gang := job.DefaultGang()
	gang.Restarts, gang.Final, gang.Spares = 1_000_000, resource.Codes{exitFinal}, size.spares
	k.job.Gang = &gang
	rig.Create(t, k.store(), k.job)
	k.g = rig.Look(t, k.store(), k.job.Path()).Record.Generation
	for id := range size.workers + size.spares {
		identity := fmt.Sprint("w-", id)
		k.addWorker(identity, []string{filepath.Join(bin, "muster"), "worker", "--root", k.job.Root, "--job", k.job.Name,
			"--identity", identity, "--join-timeout", "5m", "--grace", "2s", "--", self})
	}
	return k
}

// newServers starts three servers, and has a job that is not created yet, and no workers.
func newServers(t *testing.T, size size) *soak {
	t.Helper()
	k := &soak{
		t: t, size: size, dir: t.TempDir(), random: rand.New(rand.NewPCG(rig.Seed(t), 1)), count: map[string]int{},
	}
	var err error
	if k.ensemble, err = zkserver.Start(t.Context(), zkserver.Options{Servers: 3, Heap: "256m"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.ensemble.Stop() })
	k.s = rig.Dial(t, 30*time.Second, k.ensemble.Addrs()...)
	k.job = job.Default()
	k.job.Root, k.job.Name, k.job.Workers = "/faults", "train", size.workers
	k.job.Timeouts.Session = resource.Duration(sessionTimeout)
	t.Cleanup(k.end)
	return k
}

func (k *soak) store() *zkstate.Store {
	k.t.Helper()
	return rig.Store(k.t, k.s, k.job.Root, zkstate.Job())
}

// addWorker adds a worker behind proxies of its own, which is not started yet.
func (k *soak) addWorker(identity string, args []string) *gangWorker {
	k.t.Helper()
	w := &gangWorker{k: k, identity: identity, index: len(k.workers), args: args, proxies: k.newProxies()}
	k.workers = append(k.workers, w)
	return w
}

// newProxies is one before each server.
func (k *soak) newProxies() (all []*fault.Proxy) {
	k.t.Helper()
	for _, addr := range k.ensemble.Addrs() {
		all = append(all, rig.Proxy(k.t, addr))
	}
	return all
}

// end kills all that is left, and shows what the workers wrote last if the test has failed.
func (k *soak) end() {
	for _, w := range k.workers {
		w.stop()
		body, _ := os.ReadFile(w.output())
		const most = 3000
		if k.t.Failed() {
			k.t.Logf("%s wrote:\n%s", w.identity, body[max(0, len(body)-most):])
		}
	}
}

// attempt is the newest one.
func (k *soak) attempt() (a znode.GangAttempt) {
	k.t.Helper()
	body, _, err := k.s.Get(k.t.Context(), znode.GangAttemptAt(k.job.Root, k.g))
	if err == nil {
		a, err = znode.Decode[znode.GangAttempt](body)
	}
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		k.t.Fatal(err)
	}
	return a
}

// begun reports whether the commands of an attempt run.
func (k *soak) begun(a znode.GangAttempt) bool {
	k.t.Helper()
	names, _, err := k.s.Children(k.t.Context(), znode.BarrierFloor(k.job.Root, k.g, znode.StartBarrier))
	if err != nil {
		return false
	}
	round := znode.Attempt(k.job.Root, k.g, znode.StartBarrier, a.Number, znode.LatestAttempts(names)[a.Number])
	stat, there, err := k.s.Exists(k.t.Context(), znode.Counted(round, k.job.Workers-1))
	return err == nil && there && stat.DataLength == 0
}

// awaitStarts waits until all commands of an attempt have started.
func (k *soak) awaitStarts(attempt int) {
	k.t.Helper()
	rig.Await(k.t, fmt.Sprint("all commands of attempt ", attempt), func() bool {
		started := 0
		for _, line := range k.said() {
			var id, of int
			if n, _ := fmt.Sscanf(line, "starts %d %d", &id, &of); n == 2 && of == attempt {
				started++
			}
		}
		return started == k.job.Workers
	})
}

// awaitRun waits until the commands of the newest attempt run.
func (k *soak) awaitRun() {
	k.t.Helper()
	rig.Until(k.t, 5*time.Minute, "commands that run", func() string {
		a := k.attempt()
		if wrong := k.wrong(); wrong != "" {
			k.t.Fatal(wrong)
		}
		if a.State == znode.GangOpen && k.begun(a) && k.attempt().Number == a.Number {
			return ""
		}
		return fmt.Sprintf("attempt %+v", a)
	})
}

// wrong is what a command, or a worker, has found to be wrong; "" if nothing is.
func (k *soak) wrong() string {
	for _, line := range k.said() {
		if strings.HasPrefix(line, "wrong") {
			return line
		}
	}
	for _, w := range k.workers {
		if odd := w.odd.Load(); odd != nil {
			return *odd
		}
	}
	return ""
}

// joinedAs reports whether it has joined with this id.
func (w *gangWorker) joinedAs(id int) bool {
	body, err := os.ReadFile(w.output())
	w.k.check(err)
	return strings.Contains(string(body), fmt.Sprintf(" as worker %d of ", id))
}

// replaced is how often a process has joined with an id that was another's before.
func (k *soak) replaced() (n int) {
	for _, w := range k.workers {
		body, err := os.ReadFile(w.output())
		k.check(err)
		for _, line := range strings.Split(string(body), "\n") {
			_, id, joined := strings.Cut(line, " as worker ")
			if joined && strings.HasPrefix(line, "joined ") && !strings.HasPrefix(id, strconv.Itoa(w.index)+" of ") {
				n++
			}
		}
	}
	return n
}

// said is what commands have said.
func (k *soak) said() []string {
	body, err := os.ReadFile(sayFile(k.dir))
	if err != nil && !os.IsNotExist(err) {
		k.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(body)), "\n")
}

// finish lets the commands end well, and checks how all end.
func (k *soak) finish() {
	k.t.Helper()
	k.endAll()
	last, well := k.attempt().Number, map[string]bool{}
	for _, line := range k.said() {
		var what, id string
		var attempt int
		if n, _ := fmt.Sscan(line, &what, &id, &attempt); n == 3 && what == "ends" && attempt == last {
			well[id] = true
		}
	}
	if len(well) != k.job.Workers {
		k.t.Errorf("only the commands of %v have ended well in attempt %d, the last", well, last)
	}
	o := rig.Look(k.t, k.store(), k.job.Path())
	if o.Status() != job.Completed {
		k.t.Errorf("the job is %s", o.Status())
	}
}

// endAll lets the commands end well, and waits for the end of all workers.
func (k *soak) endAll() {
	k.t.Helper()
	if err := os.WriteFile(doneFile(k.dir), nil, 0o644); err != nil {
		k.t.Fatal(err)
	}
	rig.Until(k.t, 5*time.Minute, "the end of all workers", func() string {
		for _, w := range k.workers {
			if !zkconn.Closed(w.ended) {
				return w.identity + " has not ended"
			}
		}
		return ""
	})
	if wrong := k.wrong(); wrong != "" {
		k.t.Error(wrong)
	}
}

// harm is a kind of fault. do takes d if the fault goes on for a while.
type harm struct {
	name   string
	weight int
	do     func(w *gangWorker, d time.Duration)
}

// gangHarms are the faults of a gang.
func (k *soak) gangHarms() []harm {
	return []harm{
		{"kill", 6, func(w *gangWorker, _ time.Duration) { w.kill() }},
		{"freeze", 3, (*gangWorker).freeze},
		{"cut", 3, (*gangWorker).cutOff},
		{"lost reply", 4, (*gangWorker).loseReply},
		{"fail", 3, func(w *gangWorker, _ time.Duration) {
			k.fail(w.index%k.job.Workers, "")
		}},
		{"term", 3, func(w *gangWorker, _ time.Duration) { w.terminate() }},
		{"term all", 1, func(*gangWorker, time.Duration) {
			for _, w := range k.workers {
				w.terminate()
			}
		}},
		{"leader", 1, func(_ *gangWorker, d time.Duration) { k.killLeader(d) }},
	}
}

// harm begins a fault of one of these kinds. One of a worker waits until its last one is over.
func (k *soak) harm(kinds []harm) {
	total := 0
	for _, f := range kinds {
		total += f.weight
	}
	n := k.random.IntN(total)
	i := slices.IndexFunc(kinds, func(f harm) bool {
		n -= f.weight
		return n < 0
	})
	w, d := k.workers[k.random.IntN(len(k.workers))], rig.Between(k.random, sessionTimeout/4, 2*sessionTimeout)
	k.count[kinds[i].name]++
	k.harms.Go(func() {
		w.harmed.Lock()
		defer w.harmed.Unlock()
		kinds[i].do(w, d)
	})
}

// fail makes the next command of an id fail.
func (k *soak) fail(id int, how string) {
	at := failFile(k.dir, id)
	k.check(os.WriteFile(at+".new", []byte(how), 0o644))
	k.check(os.Rename(at+".new", at)) // a command may look at any moment
}

func (k *soak) check(err error) {
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		k.t.Error(err)
	}
}

// killLeader kills the leader, and starts it again after d.
func (k *soak) killLeader(d time.Duration) {
	k.leader.Lock()
	defer k.leader.Unlock()
	leader, err := k.ensemble.Leader(k.t.Context())
	if err == nil {
		err = k.ensemble.Server(leader).Kill()
	}
	zkconn.Pause(k.t.Context(), d)
	if err == nil {
		err = k.ensemble.Server(leader).Restart(k.t.Context())
	}
	k.check(err)
}

// gangWorker is a worker, which is started again whenever it ends, until it has ended well.
type gangWorker struct {
	k         *soak
	identity  string
	index     int        // of a worker, or of a spare: it may have any id
	args      []string   // of its processes
	oneServer bool       // it knows one server, another one in each life
	loses     bool       // it ends with exitcode.Unreachable when it may have lost its session
	harmed    sync.Mutex // held while it has a fault

	odd   atomic.Pointer[string] // how it has ended, though nothing that was done to it ends it so
	ended chan struct{}          // closed when it has ended well, or after stop

	mu      sync.Mutex
	proxies []*fault.Proxy // of the newest process
	others  []*fault.Proxy // of its next twin
	run     *daemon.Process
	lives   int  // how many processes it has had
	over    bool // it is not started again
}

func (w *gangWorker) output() string { return outputFile(w.k.dir, w.identity) }

// start starts it, and keeps it running.
func (w *gangWorker) start() {
	w.ended = make(chan struct{})
	p, err := w.launch()
	go func() {
		defer close(w.ended)
		for ; p != nil; p, err = w.next(p) {
			<-p.Done
			code := p.Code()
			if w.process() != p { // its twin has taken its place
				continue
			}
			switch {
			case code == 0:
				return
			case code == exitcode.Unreachable && w.loses:
				zkconn.Pause(w.k.t.Context(), rig.PollEvery) // its server may be the one that is down
			case code != 128+int(syscall.SIGKILL) && code != 128+int(syscall.SIGTERM):
				w.odd.Store(new(fmt.Sprintf("%s has ended with %d", w.identity, code)))
				return
			}
		}
		if err != nil {
			w.odd.Store(new(err.Error()))
		}
	}()
}

// next is the process after p: the twin that has taken its place, or another one.
func (w *gangWorker) next(p *daemon.Process) (*daemon.Process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run != p {
		return w.run, nil
	}
	return w.launchLocked()
}

// launch starts another process; none after stop.
func (w *gangWorker) launch() (*daemon.Process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.launchLocked()
}

func (w *gangWorker) launchLocked() (*daemon.Process, error) {
	if w.over {
		return nil, nil
	}
	out, err := os.OpenFile(w.output(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(w.args[0], w.args[1:]...)
	var servers []string
	for _, p := range w.proxies {
		servers = append(servers, p.Addr())
	}
	if w.oneServer {
		servers = servers[w.lives%len(servers):][:1]
	}
	w.lives++
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + w.k.dir,
		"MUSTER_SERVERS=" + strings.Join(servers, ","), dirVariable + "=" + w.k.dir, "FAULTS_BIN=" + bin,
		lifeVariable + "=" + strconv.Itoa(w.lives),
	}, w.k.env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.k.dir, out, out
	w.run, err = daemon.Start(cmd)
	return w.run, err
}

// process is the newest one.
func (w *gangWorker) process() *daemon.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run
}

// stop ends it for good.
func (w *gangWorker) stop() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	if p := w.process(); p != nil {
		_ = p.Kill()
	}
	if w.ended != nil {
		<-w.ended
	}
}

func (w *gangWorker) loseReply(time.Duration) {
	p := w.newest()
	p[w.index%len(p)].DropReply(func(op int32, _ []byte) bool { return op == fault.OpMulti })
}

func (w *gangWorker) kill()      { w.k.check(w.process().Kill()) }
func (w *gangWorker) terminate() { w.k.check(w.process().OS.Signal(syscall.SIGTERM)) }

// freeze stops the worker for d, but not its command.
func (w *gangWorker) freeze(d time.Duration) {
	p := w.process()
	if err := p.OS.Signal(syscall.SIGSTOP); err != nil {
		w.k.check(err)
		return
	}
	zkconn.Pause(w.k.t.Context(), d)
	w.k.check(p.OS.Signal(syscall.SIGCONT))
}

// cutOff makes the servers unreachable for d.
func (w *gangWorker) cutOff(d time.Duration) {
	w.reachable(false)
	zkconn.Pause(w.k.t.Context(), d)
	w.reachable(true)
}

// newest are the proxies of the newest process.
func (w *gangWorker) newest() []*fault.Proxy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proxies
}

func (w *gangWorker) reachable(yes bool) { reachable(w.newest(), yes) }

func reachable(proxies []*fault.Proxy, yes bool) {
	for _, p := range proxies {
		if p.Refuse(!yes); !yes {
			p.Cut()
		}
	}
}
