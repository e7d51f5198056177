package faults

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/dev/daemon"
	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/needs"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// BenchmarkBesideTorchrun runs the same two commands, which hang when a peer is gone, by muster and by torchrun with
// its defaults. It reports the seconds from when a command fails until both have begun again; from a kill -9 of a
// worker, or agent, that is started again at once; and if it is not started again, for how many seconds, 30 at most, a
// command goes on, and how many are left then.
func BenchmarkBesideTorchrun(b *testing.B) {
	for range b.N {
		for _, r := range []*rival{newMuster(b), newTorchrun(b)} {
			r.start(0)
			r.ready() // the first agent has the store of all: it is never killed
			r.start(1)
			r.awaitStarts(2)
			begun := time.Now()
			if err := os.WriteFile(filepath.Join(r.dir, "fail-1"), nil, 0o644); err != nil {
				b.Fatal(err)
			}
			r.awaitStarts(4)
			b.ReportMetric(time.Since(begun).Seconds(), r.name+"-after-failure-s")
			begun = time.Now()
			r.kill(1)
			r.start(1)
			r.awaitStarts(6)
			b.ReportMetric(time.Since(begun).Seconds(), r.name+"-after-kill-s")
			begun = time.Now()
			r.kill(1)
			for time.Since(begun) < 30*time.Second && len(r.running()) > 0 {
				zkconn.Pause(b.Context(), rig.PollEvery)
			}
			b.ReportMetric(time.Since(begun).Seconds(), r.name+"-goes-on-s")
			b.ReportMetric(float64(len(r.running())), r.name+"-commands-left")
			r.kill(0)
			r.end()
		}
	}
}

// rival runs two processes that run the command.
type rival struct {
	b       *testing.B
	name    string
	dir     string
	args    func(i int) []string
	environ []string
	ready   func()
	runsNow [2]*daemon.Process
}

func newMuster(b *testing.B) *rival {
	b.Helper()
	ensemble, err := zkserver.Start(b.Context(), zkserver.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ensemble.Stop() })
	j := job.Default()
	j.Root, j.Name, j.Workers, j.IDs = "/beside", "j", 2, job.ByIndex
	j.Timeouts.Session = resource.Duration(10 * time.Second)
	gang := job.DefaultGang()
	gang.Restarts, j.Gang = 5, &gang
	rig.Create(b, rig.Store(b, rig.Dial(b, time.Minute, ensemble.Addrs()...), j.Root, zkstate.Job()), j)
	return &rival{
		b: b, name: "muster", dir: b.TempDir(), ready: func() {},
		environ: []string{"MUSTER_SERVERS=" + strings.Join(ensemble.Addrs(), ",")},
		args: func(i int) []string {
			return append([]string{
				filepath.Join(bin, "muster"), "worker", "--root", j.Root, "--job", j.Name, "--index", fmt.Sprint(i), "--",
			}, python(b, "hangs.py")...)
		},
	}
}

func newTorchrun(b *testing.B) *rival {
	b.Helper()
	if exec.Command("/usr/bin/python3", "-c", "import torch.distributed.run").Run() != nil {
		needs.Missing(b, "torchrun: the package python3-torch")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	free.Close()
	return &rival{
		b: b, name: "torchrun", dir: b.TempDir(),
		ready: func() {
			rig.Await(b, "the store of torchrun", func() bool {
				c, err := net.Dial("tcp", free.Addr().String())
				if err == nil {
					c.Close()
				}
				return err == nil
			})
		},
		args: func(int) []string {
			return append(append(python(b, "torchrun.py"), "--nnodes=2", "--nproc_per_node=1", "--max_restarts=5",
				"--rdzv_backend=c10d", "--rdzv_endpoint="+free.Addr().String(), "--rdzv_id=x"), python(b, "hangs.py")[1])
		},
	}
}

func python(b *testing.B, script string) []string {
	b.Helper()
	at, err := filepath.Abs(filepath.Join("testdata", script))
	if err != nil {
		b.Fatal(err)
	}
	return []string{"/usr/bin/python3", at}
}

func (r *rival) start(i int) {
	r.b.Helper()
	args := r.args(i)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), append(r.environ, "FOLDER="+r.dir)...)
	p, err := daemon.Start(cmd)
	if err != nil {
		r.b.Fatal(err)
	}
	r.b.Cleanup(func() { _ = p.Kill() })
	r.runsNow[i] = p
}

func (r *rival) kill(i int) {
	r.b.Helper()
	if err := r.runsNow[i].Kill(); err != nil {
		r.b.Fatal(err)
	}
}

// awaitStarts waits until commands have started so often. A process that ends is started again.
func (r *rival) awaitStarts(n int) {
	r.b.Helper()
	rig.Await(r.b, fmt.Sprint(n, " starts by ", r.name), func() bool {
		for i, p := range r.runsNow {
			if p.Ended() {
				r.start(i)
			}
		}
		body, _ := os.ReadFile(filepath.Join(r.dir, "starts"))
		return strings.Count(string(body), "\n") >= n
	})
}

// running are the commands that run, by their process ids.
func (r *rival) running() (pids []int) {
	r.b.Helper()
	files, _ := filepath.Glob(filepath.Join(r.dir, "run-*"))
	for _, file := range files {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(file), "run-"))
		if err != nil {
			r.b.Fatal(err)
		}
		if held(file) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// end ends all commands that a process has left behind.
func (r *rival) end() {
	for _, pid := range r.running() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
