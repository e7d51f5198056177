package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
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
	"muster/dev/zkserver"
	"muster/sim/rig"
)

// workers is how many jobs.hcl declares.
const workers = 4

// bin is the folder with muster. The commands of its workers are this binary.
var (
	bin     string
	servers *zkserver.Ensemble
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVariable); dir != "" {
		os.Exit(command(dir))
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "muster-gang-"); err == nil {
		defer os.RemoveAll(bin)
		err = rig.Build(bin, map[string]string{"muster": "../.."})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return rig.Main(m, rig.ZooKeeper(&servers, zkserver.Options{}))
}

// dirVariable makes this binary the command of a worker. It names the folder that the commands share with the test:
// what they note, a lock for each id, the checkpoints, and how many steps to do, once the test knows.
const dirVariable = "GANG_TEST_DIR"

// command is the example, and holds the lock of its id as long as it lives.
func command(dir string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return exitWrong
	}
	id, attempt := os.Getenv("MUSTER_ID"), os.Getenv("MUSTER_ATTEMPT")
	lock, err := os.Create(filepath.Join(dir, "lock-"+id))
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		return fail(fmt.Errorf("another command of this id runs: %w", err))
	}
	defer lock.Close()
	notes, err := os.OpenFile(filepath.Join(dir, "notes"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fail(err)
	}
	fmt.Fprintln(notes, attempt, id, os.Getpid())
	notes.Close()
	steps := 1 << 40
	if text, err := os.ReadFile(filepath.Join(dir, "steps")); err == nil {
		_, _ = fmt.Sscan(string(text), &steps)
	}
	if err := run(filepath.Join(dir, "checkpoints"), steps, time.Millisecond); err != nil {
		return fail(err)
	}
	return 0
}

// TestTenKills kills a worker, or the command of one, ten times, each time when the ring has made progress since the
// last one. A worker that was killed is started again. Each kill is one restart, no command begins while another one of
// its id runs, and in the end all have the right result.
func TestTenKills(t *testing.T) {
	g := newGang(t)
	random := rand.New(rand.NewPCG(rig.Seed(t), 1))
	const kills = 10
	last := 0 // step
	for attempt := 1; attempt <= kills; attempt++ {
		pids := g.begun(attempt)
		before := slices.Max(g.saved())
		rig.Await(t, "a new checkpoint of all", func() bool { return slices.Min(g.saved()) > before })
		id := random.IntN(workers)
		if attempt == kills { // while this one is stopped, the others cannot go on
			g.check(syscall.Kill(pids[id], syscall.SIGSTOP))
			last = slices.Max(g.saved()) + 4*every
			g.check(os.WriteFile(filepath.Join(g.dir, "steps"), []byte(strconv.Itoa(last)), 0o644))
		}
		if random.IntN(2) == 0 {
			t.Logf("attempt %d: kills worker %d", attempt, id)
			g.check(g.runs[id].Load().Kill())
		} else {
			t.Logf("attempt %d: kills the command of worker %d", attempt, id)
			g.check(syscall.Kill(pids[id], syscall.SIGKILL))
		}
	}
	g.begun(kills + 1)
	rig.Await(t, "the end of all workers", func() bool { return g.ended.Load() == workers })
	g.begun(kills + 1) // and no more
	a, want := newMatrix(), start()
	for range last {
		want = a.times(want, 0, 1)
	}
	for id := range workers {
		if got, err := g.folder(id).load(last); err != nil || !slices.Equal(got, want) {
			t.Errorf("worker %d has %v after step %d, want %v: %v", id, got, last, want, err)
		}
	}
}

// gang is the job, and the workers that run.
type gang struct {
	t     *testing.T
	dir   string
	runs  [workers]atomic.Pointer[daemon.Process]
	ended atomic.Int32          // how many workers have ended well
	odd   atomic.Pointer[error] // how one has ended, though nothing that was done to it ends it so
}

// newGang applies jobs.hcl, and starts the workers.
func newGang(t *testing.T) *gang {
	t.Helper()
	g := &gang{t: t, dir: t.TempDir()}
	apply := exec.Command(filepath.Join(bin, "muster"), "apply", "--yes")
	apply.Env = append(os.Environ(), "MUSTER_SERVERS="+servers.Connect())
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var supervisors sync.WaitGroup
	t.Cleanup(func() {
		supervisors.Wait() // the context of the test has ended, and with it all workers
		for id := range workers {
			if text, err := os.ReadFile(g.output(id)); t.Failed() {
				t.Logf("worker %d: %v\n%s", id, err, text)
			}
		}
	})
	var listeners [workers]net.Listener // all at once, so that the addresses differ
	for id := range listeners {
		var err error
		listeners[id], err = net.Listen("tcp", "127.0.0.1:0")
		g.check(err)
	}
	for id, l := range listeners {
		l.Close()
		supervisors.Go(func() {
			if err := g.supervise(t.Context(), id, l.Addr().String()); err != nil {
				g.odd.Store(&err)
			}
		})
	}
	return g
}

func (g *gang) output(id int) string { return filepath.Join(g.dir, fmt.Sprintf("worker-%d.out", id)) }

// supervise starts a worker, and starts it again when it was killed.
func (g *gang) supervise(ctx context.Context, id int, address string) error {
	out, err := os.Create(g.output(id))
	if err != nil {
		return err
	}
	defer out.Close()
	for {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "muster"), "worker", "--root", "/jobs", "--job", "ring",
			"--identity", fmt.Sprint("ring-", id), "--advertise", address, "--", os.Args[0])
		cmd.Env = append(os.Environ(), "MUSTER_SERVERS="+servers.Connect(), dirVariable+"="+g.dir)
		cmd.Stdout, cmd.Stderr = out, out
		p, err := daemon.Start(cmd)
		if err != nil {
			return err
		}
		g.runs[id].Store(p)
		<-p.Done
		switch code := p.Code(); code {
		case 0:
			g.ended.Add(1)
			return nil
		case 128 + int(syscall.SIGKILL):
		default:
			return fmt.Errorf("worker %d has ended with %d", id, code)
		}
	}
}

func (g *gang) check(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// begun waits until all commands of an attempt have begun, and returns their process ids. It checks that each has begun
// once in this attempt and in those before, and none later.
func (g *gang) begun(attempt int) (pids [workers]int) {
	g.t.Helper()
	rig.Await(g.t, fmt.Sprint("the commands of attempt ", attempt), func() bool {
		if odd := g.odd.Load(); odd != nil {
			g.t.Fatal(*odd)
		}
		text, _ := os.ReadFile(filepath.Join(g.dir, "notes")) // none yet
		begun := map[[2]int]bool{}
		for line := range strings.Lines(string(text)) {
			if !strings.HasSuffix(line, "\n") {
				return false // it is being written
			}
			var of, id, pid int
			_, err := fmt.Sscanf(line, "%d %d %d\n", &of, &id, &pid)
			if err != nil || of > attempt || begun[[2]int{of, id}] {
				g.t.Fatalf("%v: in attempt %d:\n%s", err, attempt, text)
			}
			begun[[2]int{of, id}], pids[id] = true, pid
		}
		return len(begun) == attempt*workers
	})
	return pids
}

func (g *gang) folder(id int) folder {
	return folder(filepath.Join(g.dir, "checkpoints", fmt.Sprint("worker-", id)))
}

// saved is the last checkpoint of each worker.
func (g *gang) saved() (steps []int) {
	g.t.Helper()
	for id := range workers {
		all, err := g.folder(id).steps()
		g.check(err)
		steps = append(steps, all[len(all)-1])
	}
	return steps
}
