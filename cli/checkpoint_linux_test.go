package cli_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"muster/sim/rig"
)

// checkpointWrapper stands before the program of the example, as what the steps of a checkpoint call. It notes what
// they do, and stops there while the test wants it.
const checkpointWrapper = `#!/bin/sh
note() { echo "$1 $step $n $MUSTER_EPOCH $MUSTER_IDENTITY ${MUSTER_STEP_AGAIN:-0}" >>"$TMPDIR/notes"; }
halt() { while [ -e "$TMPDIR/halt-$1-$step" ]; do sleep 0.05; done; }
step=$1 n=${2:-0}
note begun
halt begun
"$TMPDIR/real/checkpoint" "$@" || exit
note done
halt done
`

// checkpointSteps are in the order of examples/checkpoint/steps.sh.
func checkpointSteps() []string {
	return []string{"next", "suspend", "write", "check", "publish", "resume"}
}

// note is a line of the wrapper.
type note struct {
	at, step        string
	checkpoint      int
	epoch           int64
	identity, again string
}

// checkpoints is the example of that name while it runs.
type checkpoints struct {
	example
	t            *testing.T
	coordinators map[string]*exec.Cmd
	addresses    map[string]string
	screens      []*screen // of coordinators
}

func newCheckpoints(t *testing.T) *checkpoints {
	t.Helper()
	c := &checkpoints{
		example: newExample(t, "checkpoint"), t: t,
		coordinators: map[string]*exec.Cmd{}, addresses: map[string]string{},
	}
	c.env = append(c.env, "IMAGES="+filepath.Join(c.temp, "images"))
	build := exec.Command("go", "build", "-o", filepath.Join(c.temp, "real")+"/", "../examples/checkpoint")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(c.temp, "checkpoint"), []byte(checkpointWrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	var listeners []net.Listener // all at once, so that the addresses differ
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		c.addresses[fmt.Sprint("coordinator-", i)] = l.Addr().String()
	}
	for _, l := range listeners {
		l.Close()
	}
	return c
}

// start starts a coordinator.
func (c *checkpoints) start(identity string) {
	c.t.Helper()
	e := c.example
	e.env = append(slices.Clone(c.env), "MUSTER_ADDRESS="+c.addresses[identity])
	cmd, seen := e.member(c.t, "checkpoint", identity, "1.0.0", "--duties", "duties")
	c.coordinators[identity] = cmd
	c.screens = append(c.screens, seen)
}

// notes are what the steps have done so far.
func (c *checkpoints) notes() (all []note) {
	c.t.Helper()
	text, _ := os.ReadFile(filepath.Join(c.temp, "notes")) // none yet
	for line := range strings.Lines(string(text)) {
		var n note
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		_, err := fmt.Sscan(line, &n.at, &n.step, &n.checkpoint, &n.epoch, &n.identity, &n.again)
		if err != nil {
			c.t.Fatalf("%q: %v", line, err)
		}
		all = append(all, n)
	}
	return all
}

// await waits for the note of a moment, such as "begun" of "write", among those after the first.
func (c *checkpoints) await(moment [2]string, after int) note {
	c.t.Helper()
	var found note
	rig.Await(c.t, fmt.Sprintf("%v; so far %v", moment, c.notes()), func() bool {
		all := c.notes()[after:]
		i := slices.IndexFunc(all, func(n note) bool { return moment == [2]string{n.at, n.step} })
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	return found
}

// halt makes whoever comes to a moment wait there, until the file is removed.
func (c *checkpoints) halt(moment [2]string) (file string) {
	c.t.Helper()
	file = filepath.Join(c.temp, "halt-"+moment[0]+"-"+moment[1])
	write(c.t, file, "")
	return file
}

// killLeader kills the leader that has written a note, and starts its process again once all that it ran has ended.
func (c *checkpoints) killLeader(n note) {
	c.t.Helper()
	kill(c.t, c.coordinators[n.identity])
	rig.Await(c.t, "the end of what the dead leader ran", func() bool {
		return len(c.with(c.t, fmt.Sprint("MUSTER_EPOCH=", n.epoch))) == 0
	})
	c.start(n.identity)
}

// killInTheMiddle kills the leader while seven workers have written their images and the last one is frozen.
func (c *checkpoints) killInTheMiddle(last *exec.Cmd, halted string, seen int) {
	c.t.Helper()
	write := [2]string{"begun", "write"}
	atWrite := c.halt(write)
	remove(c.t, halted)
	n := c.await(write, seen)
	send(c.t, syscall.SIGSTOP, last.Process.Pid)
	remove(c.t, atWrite)
	rig.Await(c.t, "seven images", func() bool {
		images, _ := filepath.Glob(filepath.Join(c.temp, "images", fmt.Sprint(n.checkpoint, ".part"), "worker-?"))
		return len(images) == 7
	})
	c.killLeader(n)
	send(c.t, syscall.SIGCONT, last.Process.Pid)
}

// TestCheckpointExample kills the leader in every step of a checkpoint: when the step's command has begun, and when it
// is done and nobody has heard of it. The next leader goes on at this step, the workers follow it, and every checkpoint
// that is published is whole.
func TestCheckpointExample(t *testing.T) {
	t.Parallel()
	c := newCheckpoints(t)
	workers := make([]*exec.Cmd, 8)
	screens := make([]*screen, len(workers))
	for i := range workers {
		workers[i] = c.command(filepath.Join(c.temp, "real/checkpoint"), "work", fmt.Sprint(i))
		screens[i] = startOnScreen(t, workers[i])
	}
	var moments [][2]string
	for _, step := range checkpointSteps() {
		moments = append(moments, [2]string{"begun", step}, [2]string{"done", step})
	}
	moments = append(moments, moments[0])
	halted := c.halt(moments[0])
	for identity := range c.addresses {
		c.start(identity)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, s := range slices.Concat(c.screens, screens) {
				t.Log(s)
			}
		}
	})
	seen := 0
	for i, following := range moments[1:] {
		n := c.await(moments[i], seen)
		seen = len(c.notes())
		next := c.halt(following)
		c.killLeader(n)
		remove(t, halted)
		halted = next
	}
	c.killInTheMiddle(workers[7], halted, seen)
	last := c.await([2]string{"done", "resume"}, len(c.notes()))
	for i, s := range screens {
		s.await(t, fmt.Sprintf("worker %d: follows %s, epoch %d\n", i, last.identity, last.epoch))
	}
	c.checkOrder(len(moments))
	if n := c.checkImages(); n < 2 {
		t.Errorf("only %d checkpoints were published", n)
	}
}

// checkOrder checks that each step follows the one before, and is repeated only by a new leader.
func (c *checkpoints) checkOrder(kills int) {
	c.t.Helper()
	steps := checkpointSteps()
	var last note
	again := 0
	for i, n := range c.notes() {
		if n.at == "done" {
			continue
		}
		follows := n.step == steps[0]
		if i > 0 {
			follows = n.step == steps[(slices.Index(steps, last.step)+1)%len(steps)]
		}
		sameCheckpoint := n.checkpoint == last.checkpoint || last.step == "next" || n.step == "next"
		switch {
		case follows && n.again == "0" && n.epoch >= last.epoch && sameCheckpoint:
		case n.step == last.step && n.again == "1" && n.epoch > last.epoch && n.checkpoint == last.checkpoint:
			again++
		default:
			c.t.Errorf("after %v came %v", last, n)
		}
		last = n
	}
	if again < kills { // on a slow machine a leader may lose its session too
		c.t.Errorf("%d steps were done again after %d kills: %v", again, kills, c.notes())
	}
}

// checkImages checks every checkpoint that was published, and returns how many there are.
func (c *checkpoints) checkImages() int {
	c.t.Helper()
	last := map[int]int{}
	for n := 1; ; n++ {
		dir := filepath.Join(c.temp, "images", fmt.Sprint(n))
		files, err := os.ReadDir(dir)
		if err != nil {
			return n - 1
		}
		if len(files) != 8 {
			c.t.Errorf("%s has %d files", dir, len(files))
		}
		for worker := range 8 {
			text := read(c.t, filepath.Join(dir, fmt.Sprint("worker-", worker)))
			sum, body, _ := strings.Cut(text, "\n")
			var image struct{ Checkpoint, Worker, Count int }
			d := json.NewDecoder(bytes.NewReader([]byte(body)))
			d.DisallowUnknownFields()
			err := d.Decode(&image)
			if fmt.Sprintf("%x", sha256.Sum256([]byte(body))) != sum || err != nil {
				c.t.Errorf("%s/worker-%d is not whole: %v\n%s", dir, worker, err, text)
			}
			if image.Checkpoint != n || image.Worker != worker || n > 1 && image.Count <= last[worker] {
				c.t.Errorf("%s/worker-%d holds %+v; its last count was %d", dir, worker, image, last[worker])
			}
			last[worker] = image.Count
		}
	}
}
