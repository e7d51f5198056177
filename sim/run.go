// Package sim runs the real code of muster's recipes in one process, against a ZooKeeper in memory. A scheduler decides
// the order of all messages, and when processes crash, connections break and sessions end. Time is virtual. Only tests
// import it.
//
// A world declares processes, each with a function that runs real code, and what must hold: after every step (Check),
// for every transaction (OnTxn) and at the end (AtEnd). Run explores schedules of it. Each schedule ends without
// faults, and then every process must end too. What a process has seen it tells by Process.Saw: if it has crashed,
// nobody hears it.
//
// A schedule that fails is printed as a trace, which is shortened first. A line is what happened, to which life of
// which process, and what the message was: "apply a.1 set /x@v" means that the server got the request of the second
// life of a to set /x, and that it names a version; "deliver a.1 set /x@v" that the process got the answer. Requests of
// a process that has crashed or lost its connection may still arrive. -sim.trace FILE runs a trace again.
//
// A seed gives nearly always the same schedule, and not always: the client library and the recipes have goroutines of
// their own. So a trace tells what happened, not only by which random numbers. Replaying skips lines that do not fit.
//
// Mutants shows for each guard of each transaction that it is needed: without it some world must fail.
//
// What it does not simulate: a process that stands still for a while and notices nothing (Faults.Expiries comes close),
// a server that loses what it has confirmed, clocks that differ (all processes have one, but for what a world gives
// to a member), and the order of what one process's own goroutines do.
package sim

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Options of a world. The zero value explores without faults.
type Options struct {
	Name   string        // default: the name of the test
	Seeds  int           // schedules to explore; default 200, a tenth of it with -short
	Steps  int           // of one schedule before its fair end begins; default 400
	Faults Faults        // that one schedule may have at most
	End    time.Duration // virtual time in which all processes must end after the last fault; default 1 h

	// Own tells which kinds of transactions belong into the table of Mutants; nil: all.
	Own func(kind string) bool
	// Kind names kinds of transactions that have operations in many combinations: one name for all of them, or what it
	// gets. It is given the list of operations. May be nil.
	Kind func(ops string) string
	// Path replaces in a path what differs from run to run, besides long hexadecimal ids, numbers of sequential znodes,
	// and names of processes. May be nil.
	Path func(path string) string

	mutant *mutant // whose guard the server ignores
	seen   *guards // collects the guards of all transactions

	kinds, normal *sync.Map // of all schedules: label of a request → kind of its transaction; operation → normalised
}

// Faults are budgets of one schedule. A session also expires when its server hears nothing for its timeout: a cut or a
// pause can lead to that. Expiries are those without silence: as if the process had been frozen, and does not know yet.
// Outages are those of servers that World.Foreign added.
type Faults struct{ Crashes, Cuts, Expiries, LostReplies, Pauses, Outages int }

// Flags of every test that calls Run.
var (
	givenSeeds = flag.Int("sim.n", 0, "schedules to explore in each world, instead of its own number")
	firstSeed  = flag.Uint64("sim.seed", 1, "first seed")
	givenTime  = flag.Duration("sim.for", 0, "explore each world for so long")
	givenTrace = flag.String("sim.trace", "", "replay this trace instead")
)

func (o Options) complete(t testing.TB) Options {
	o.Name = cmp.Or(o.Name, t.Name())
	o.Seeds = cmp.Or(o.Seeds, 200)
	o.Steps = cmp.Or(o.Steps, 400)
	o.End = cmp.Or(o.End, time.Hour)
	o.kinds, o.normal = new(sync.Map), new(sync.Map)
	if testing.Short() {
		o.Seeds = max(o.Seeds/10, 1)
	}
	if *givenSeeds > 0 {
		o.Seeds = *givenSeeds
	}
	return o
}

// Run explores schedules of a world, on all cores. After a failure it prints a trace that leads to it, shortened, and
// writes it to a file: -sim.trace replays that. Flags: -sim.n schedules, -sim.seed first, -sim.for duration.
func Run(t *testing.T, o Options, world func(*World)) {
	t.Helper()
	o = o.complete(t)
	if *givenTrace != "" {
		replayFile(t, o, world, *givenTrace)
		return
	}
	f, ran := exploreSeeds(t, o, world, *givenTime)
	if f == nil {
		t.Logf("%d schedules", ran)
		return
	}
	short := shrink(t, o, world, *f)
	t.Errorf("%s: seed %d: %v\n\n%s\n\nReplay: %s -v -sim.trace %s",
		o.Name, short.seed, short.err, story(short.outcome), again(t.Name()), writeTrace(t, o, short))
}

// Finds demands that a world with a known bug fails in at most o.Seeds schedules, and that the trace of the failure
// replays. A checker that does not find known bugs is not trusted.
func Finds(t *testing.T, o Options, world func(*World)) {
	t.Helper()
	if *givenTrace != "" {
		Run(t, o, world)
		return
	}
	seeds := o.Seeds
	o = o.complete(t)
	o.Seeds = max(seeds, o.Seeds) // not fewer with -short
	f, ran := exploreSeeds(t, o, world, 0)
	if f == nil {
		t.Errorf("%s: %d schedules did not find the bug", o.Name, ran)
		return
	}
	short := shrink(t, o, world, *f)
	if out := replayed(t, o, world, short.trace); out.err == nil {
		t.Errorf("%s: seed %d failed (%v), but its trace does not:\n%s", o.Name, f.seed, f.err, story(short.outcome))
		return
	}
	t.Logf("after %d schedules: %v\n%s", ran, short.err, story(short.outcome))
}

// Bench runs one schedule of each world for each iteration, on one core, and reports how many fit into a second.
func Bench(b *testing.B, worlds ...Named) {
	defer fewCollections()()
	var seed uint64
	for b.Loop() {
		seed++
		for _, n := range worlds {
			o := n.options().complete(b)
			if out := inBubble(new(testing.T), o, n.World, newExplorer(o, seed)); out.err != nil {
				b.Fatalf("%s: seed %d: %v", n.Name, seed, out.err)
			}
		}
	}
	b.ReportMetric(float64(b.N*len(worlds))/b.Elapsed().Seconds(), "schedules/s")
}

// fewCollections makes the garbage collector rare: the client library allocates 1.5 MiB for each connection, and little
// of it stays. The function that it returns ends that.
func fewCollections() func() {
	deepStacks()
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(400<<20)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// deepStacks makes new goroutines begin with stacks of 8 KiB, by the average of those that a collection finds: a
// schedule starts a goroutine for each request, and growing their stacks would be a tenth of its time.
var deepStacks = sync.OnceFunc(func() {
	var deep sync.WaitGroup
	for range 100 {
		deep.Add(1)
		go waitDeep(&deep)
	}
	deep.Wait()
	runtime.GC()
})

// waitDeep waits for ever, and keeps 8 KiB of its stack.
func waitDeep(deep *sync.WaitGroup) {
	var room [8 << 10]byte
	deep.Done()
	<-make(chan struct{})
	runtime.KeepAlive(&room)
}

type failure struct {
	outcome
	seed uint64
}

// exploreSeeds runs o.Seeds schedules, or those of a duration. It returns the failure with the smallest seed, and how
// many ran.
func exploreSeeds(t *testing.T, o Options, world func(*World), until time.Duration) (*failure, int) {
	defer fewCollections()()
	var ran atomic.Int64
	var mu sync.Mutex
	var first *failure
	start := time.Now()
	more := func(i int) bool {
		mu.Lock()
		defer mu.Unlock()
		return first == nil && (until > 0 && time.Since(start) < until || until == 0 && i < o.Seeds)
	}
	onAllCores(func(i int) bool {
		if !more(i) {
			return false
		}
		s := *firstSeed + uint64(i)
		out := inBubble(t, o, world, newExplorer(o, s))
		ran.Add(1)
		mu.Lock()
		defer mu.Unlock()
		if out.err != nil && (first == nil || s < first.seed) {
			first = &failure{out, s}
		}
		return true
	})
	return first, int(ran.Load())
}

// onAllCores calls do with 0, 1, 2, … on all cores, until it returns false on each.
func onAllCores(do func(i int) bool) {
	var next atomic.Int64
	var cores sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		cores.Go(func() {
			for do(int(next.Add(1)) - 1) {
			}
		})
	}
	cores.Wait()
}

// stuckLimit is the real time after which a schedule is taken for stuck: most take milliseconds.
const stuckLimit = 2 * time.Minute

// inBubble runs a schedule in a bubble of virtual time. Goroutines that remain are a failure. One that never blocks
// cannot be stopped, so the whole test binary ends then.
func inBubble(t *testing.T, o Options, world func(*World), pick picker) (out outcome) {
	w := new(World)
	stuck := time.AfterFunc(stuckLimit, func() {
		all := make([]byte, 4<<20)
		all = all[:runtime.Stack(all, true)]
		panic(fmt.Sprintf("%s: the schedule does not end within %s: a goroutine never blocks after\n%s\n%s",
			o.Name, stuckLimit, numbered(w.trace), all))
	})
	defer stuck.Stop()
	defer func() {
		if r := recover(); r != nil {
			out.err = fmt.Errorf("goroutines remain: %v", r)
		}
	}()
	synctest.Test(t, func(*testing.T) { out = w.schedule(o, world, pick) })
	return out
}

// again is the command that runs the test of this name alone, in whatever folder of the repository.
func again(test string) string {
	folder := "."
	if info, ok := debug.ReadBuildInfo(); ok && info.Path != "" {
		folder = strings.TrimSuffix(info.Path, ".test")
	}
	return fmt.Sprintf("go test %s -run '^%s$'", folder, strings.ReplaceAll(test, "/", "$/^"))
}

func writeTrace(t *testing.T, o Options, f failure) string {
	file, err := os.CreateTemp("", "sim-"+strings.ReplaceAll(o.Name, "/", "-")+"-*.trace")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fmt.Fprintf(file, "# %s, seed %d: %s\n", o.Name, f.seed, strings.ReplaceAll(f.err.Error(), "\n", "\n# "))
	fmt.Fprintln(file, strings.Join(f.trace, "\n"))
	return file.Name()
}

// Bounds of a shrinker's work.
const (
	tries    = 600
	tryLimit = time.Minute
)

// shrink drops lines of a trace while the schedule still fails: all of one process or life, then parts of the trace,
// smaller and smaller.
func shrink(t *testing.T, o Options, world func(*World), f failure) failure {
	s := shrinker{failure: f, end: time.Now().Add(tryLimit), replay: func(lines []string) outcome {
		return replayed(t, o, world, lines)
	}}
	for _, who := range s.who() {
		s.try(slices.DeleteFunc(slices.Clone(s.trace), func(line string) bool { return subject(line) == who }))
	}
	for size := len(s.trace) / 2; size > 0; size /= 2 {
		for at := 0; at < len(s.trace); {
			end := min(at+size, len(s.trace))
			if !s.try(slices.Concat(s.trace[:at], s.trace[end:])) {
				at = end
			}
		}
	}
	return s.failure
}

// shrinker holds the shortest trace so far.
type shrinker struct {
	failure
	replay func(lines []string) outcome
	tries  int
	end    time.Time
}

// try keeps lines if they are fewer and fail as before: a hang must not hide what is wrong.
func (s *shrinker) try(lines []string) bool {
	if s.tries++; s.tries > tries || time.Now().After(s.end) || len(lines) >= len(s.trace) {
		return false
	}
	out := s.replay(lines)
	if out.err == nil || isHang(out.err) != isHang(s.err) || len(out.trace) >= len(s.trace) {
		return false
	}
	s.outcome = out
	return true
}

func isHang(err error) bool { return strings.Contains(err.Error(), hangs) }

// who lists what the lines are about: lives of processes, or -.
func (s *shrinker) who() []string {
	var all []string
	for _, line := range s.trace {
		if who := subject(line); !slices.Contains(all, who) {
			all = append(all, who)
		}
	}
	return all
}

func subject(line string) string {
	fields := strings.Fields(line)
	return fields[min(1, len(fields)-1)]
}

// replay follows the lines of a trace. It skips a line that does not fit. After the last line comes the fair end.
type replay struct{ lines []string }

func (r *replay) next(w *World) (step, bool) {
	for len(r.lines) > 0 {
		line := r.lines[0]
		r.lines = r.lines[1:]
		if s, ok := fitting(w, line); ok {
			return s, true
		}
	}
	return step{}, false
}

func fitting(w *World, line string) (step, bool) {
	fields := strings.SplitN(line, " ", 3)
	if verb(fields[0]) == wait {
		s := step{verb: wait}
		if len(fields) == 3 {
			s.time, _ = time.ParseDuration(fields[2])
		}
		return s, true
	}
	for _, s := range slices.Concat(w.moves(), w.faults(true)) {
		if s.String() == line {
			return s, true
		}
	}
	return step{}, false
}

func replayed(t *testing.T, o Options, world func(*World), lines []string) outcome {
	return inBubble(t, o, world, &replay{lines})
}

func replayFile(t *testing.T, o Options, world func(*World), file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	out := replayed(t, o, world, lines)
	if out.err != nil {
		t.Fatalf("%s: %v\n\n%s", o.Name, out.err, story(out))
	}
	t.Logf("the trace leads to no failure; what happened:\n%s", story(out))
}

func story(o outcome) string {
	text := numbered(o.trace)
	if len(o.after) > 0 {
		text += "      then without faults, one process after the other:\n      " + strings.Join(o.after, "\n      ") + "\n"
	}
	return text
}

func numbered(trace []string) string {
	var b strings.Builder
	for i, line := range trace {
		fmt.Fprintf(&b, "%4d  %s\n", i+1, line)
	}
	return b.String()
}
