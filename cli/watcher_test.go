package cli_test

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/sim/rig"
)

// TestWatcherCommandReadsNothing: that is no error, however much there is to read, and also if it goes on.
func TestWatcherCommandReadsNothing(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.duty("collect", `exec <&-
say begins $MUSTER_BATCH; until [ -e go ]; do sleep 0.1; done; say ends`)
	f.watcher(servers.Connect(), "w", "collect")
	large := make([][]byte, 100)
	for i := range large {
		large[i] = bytes.Repeat([]byte{'x'}, 100<<10)
	}
	f.completed("b", large...)
	f.awaitLog("begins b", 1)
	f.duty("../go", "")
	f.ended("b")
}

// TestWatcherCommandHasAllAtItsStart: what it reads is a whole file, also if there is nothing. On a pipe, the death of
// its watcher would look like the end of the results.
func TestWatcherCommandHasAllAtItsStart(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.duty("collect", `[ -f /dev/stdin ] && say $MUSTER_BATCH is whole: $(wc -l) lines`)
	f.completed("b", bytes.Repeat([]byte{'x'}, 100<<10), []byte("2"), []byte("dead"))
	f.completed("c", []byte("dead"))
	drop := f.command(servers.Connect(), "queue", "drop", "--yes", "--root", f.root, "primes/c")
	if out, err := drop.CombinedOutput(); err != nil {
		t.Errorf("drop: %v\n%s", err, out)
	}
	f.watcher(servers.Connect(), "w", "collect")
	f.ended("b")
	f.ended("c")
	f.awaitLog("b is whole: 3 lines", 1)
	f.awaitLog("c is whole: 0 lines", 1)
}

// TestWatcherWithoutRoom: a watcher that cannot write the results to a file ends. Its batch is not charged.
func TestWatcherWithoutRoom(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "attempts = 1")
	f.duty("collect", "say has $MUSTER_BATCH")
	f.completed("b", []byte("1"))
	cmd := f.process(servers.Connect(), "watcher", "w1", "--", filepath.Join(f.dir, "duties", "collect"))
	cmd.Env = append(cmd.Env, "TMPDIR="+filepath.Join(f.dir, "nosuch"))
	seen := startOnScreen(t, cmd)
	endsWith(t, cmd, seen, 1)
	seen.await(t, "nosuch")
	if b := f.inRedis("b"); b.Tries != 0 || b.Holder != "" {
		t.Errorf("in redis: %+v", b)
	}
	f.watcher(servers.Connect(), "w2", "collect")
	f.ended("b")
}

// TestWatcherDies: its commands die with it, and another watcher gets the batch, whose id is the same. That also holds
// for a watcher that is frozen, and for one that ZooKeeper misses.
func TestWatcherDies(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]syscall.Signal{
		"killed": syscall.SIGKILL, "frozen": syscall.SIGSTOP, "cut off": 0,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newQueueFixture(t, "")
			f.duty("collect", `say has $MUSTER_BATCH, try $MUSTER_ATTEMPT
[ $MUSTER_IDENTITY = w2 ] && exit 0
`+stubborn)
			proxy := newProxy(t, 0)
			first, _ := f.watcher(proxy.Addr(), "w1", "collect")
			f.completed("b", []byte("1"))
			f.awaitLog("begins w1", 1)
			f.watcher(servers.Connect(), "w2", "collect")
			pids := f.pids()
			if len(pids) != 2 {
				t.Fatalf("processes: %v", pids)
			}
			if fault == 0 {
				proxy.Hang(true)
			} else {
				sendSignal(t, first, fault)
			}
			f.ended("b")
			gone(t, pids)
			f.awaitLog("has b, try 1", 2)
			if fault == 0 { // it joins again
				proxy.Hang(false)
				f.duty("collect", "say again $MUSTER_IDENTITY")
				f.submitUntil("again w1")
			}
		})
	}
}

// submitUntil completes batches until the commands have said a text.
func (f queueFixture) submitUntil(text string) {
	f.t.Helper()
	n := 0
	rig.Await(f.t, text, func() bool {
		n++
		f.completed(fmt.Sprint("more-", n), []byte("1"))
		f.ended(fmt.Sprint("more-", n))
		return strings.Contains(f.logged(), text)
	})
}

// TestWatcherIsStopped: its command is asked to end, and the batch goes back uncharged, whatever the command ends with.
// A second signal does not wait.
func TestWatcherIsStopped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command string
		signals []syscall.Signal
		code    int
	}{
		"in order": {obedient, []syscall.Signal{syscall.SIGTERM}, 143},
		"at once":  {stubborn, []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}, 130},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newQueueFixture(t, "")
			f.duty("collect", c.command)
			cmd, seen := f.watcher(servers.Connect(), "w", "collect")
			f.completed("b", []byte("1"))
			f.awaitLog("begins w", 1)
			begun := time.Now()
			for _, sig := range c.signals {
				sendSignal(t, cmd, sig)
				f.awaitLog("asked ", 1) // signals sent at once may arrive in another order
			}
			endsWith(t, cmd, seen, c.code)
			if took := time.Since(begun); took > 15*time.Second {
				t.Errorf("took %s: the grace is 20 s", took)
			}
			gone(t, f.pids())
			if b := f.inRedis("b"); b.Tries != 0 || b.Falls != 0 || b.Holder != "" {
				t.Errorf("in redis: %+v", b)
			}
		})
	}
}

// TestWatcherIsTerminated: muster terminate stops it as SIGTERM does.
func TestWatcherIsTerminated(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.duty("collect", obedient)
	cmd, seen := f.watcher(servers.Connect(), "w", "collect")
	f.completed("b", []byte("1"))
	f.awaitLog("begins w", 1)
	out, err := f.command(servers.Connect(), "terminate", "--yes", "--root", f.root, "primes").CombinedOutput()
	if err != nil {
		t.Errorf("terminate: %v\n%s", err, out)
	}
	endsWith(t, cmd, seen, 143)
	f.awaitLog("asked w\nends w\n", 1)
}

// TestWatcherHealth: what a container platform and Prometheus ask.
func TestWatcherHealth(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "attempts = 1")
	f.duty("collect", `[ $MUSTER_BATCH = good ]`)
	_, seen := f.watcher(servers.Connect(), "w", "collect", "--http", "127.0.0.1:0")
	url := health(t, seen)
	if code, _ := httpGet(url + "/live"); code != http.StatusOK {
		t.Errorf("/live: %d", code)
	}
	rig.Await(t, "ready", func() bool { code, _ := httpGet(url + "/ready"); return code == http.StatusOK })
	f.completed("good", []byte("1"))
	f.ended("good")
	f.completed("bad", []byte("1"), []byte("dead"))
	f.submit("waits", []byte("1"), []byte("2"), []byte("3"))
	rig.Await(t, "the failed try", func() bool { return f.inRedis("bad").Tries == 1 })
	_, metrics := httpGet(url + "/metrics")
	of := fmt.Sprintf(`{queue="primes",root=%q} `, f.root)
	for _, line := range []string{
		"muster_queue_redis" + of + "1", "muster_queue_batches" + of + "2", "muster_queue_depth" + of + "3",
		"muster_queue_in_hand" + of + "0", "muster_queue_done" + of + "1", "muster_queue_dead" + of + "1",
		"muster_queue_attempts_total" + of + "3", "muster_queue_oldest_age_seconds" + of,
		`muster_watcher_batches_total{result="collected"} 1`, `muster_watcher_batches_total{result="failed"} 1`,
		`muster_process_stage{stage="running"} 1`, "muster_process_joined 1", "muster_process_connected 1",
		`muster_process_info{identity="w",queue="primes",role="watcher",root="` + f.root + `"} 1`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("no %s in:\n%s", line, metrics)
		}
	}
}
