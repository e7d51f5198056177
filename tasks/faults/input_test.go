package faults

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
)

// outcome is what a command of muster did.
type outcome struct {
	code           int
	stdout, stderr string
}

// try runs a command of muster with a standard input.
func (w *world) try(stdin string, args ...string) outcome {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), muster(), args...)
	cmd.Env, cmd.Dir, cmd.Stdin = w.environ(w.ensemble.Addrs()), w.dir, strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the code tells
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// expect checks the code of a command, and that it wrote what a pattern describes.
func (o outcome) expect(t *testing.T, what string, code int, pattern string) {
	t.Helper()
	if o.code != code || !regexp.MustCompile(pattern).MatchString(o.stdout+o.stderr) {
		t.Errorf("%s: exit %d, want %d and %q\n%s%s", what, o.code, code, pattern, o.stdout, o.stderr)
	}
}

// also creates another queue.
func (w *world) also(name, redis string, edit func(*queue.Queue)) {
	w.t.Helper()
	q := w.queue
	q.Name, q.Redis = name, redis
	if edit != nil {
		edit(&q)
	}
	if err := w.store().Commit(w.t.Context(), plan.Row{Path: q.Path(), New: q, Reason: plan.NotThere}); err != nil {
		w.t.Fatal(err)
	}
}

// TestServersThatCannotHoldAQueue: submitters, executors and watchers say what is wrong with a Redis, and what helps.
// A password in its address is refused by plan already: see the script queue.txtar of package cli.
func TestServersThatCannotHoldAQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, zkserver.Options{}, nil)
	evicting := rig.StartRedis(t, redisserver.Options{Extra: []string{"--maxmemory-policy", "allkeys-lru"}})
	secret := rig.StartRedis(t, redisserver.Options{Password: "geheim"})
	for name, c := range map[string]struct {
		redis, want string
		code        int
	}{
		"evicting": {"redis://" + evicting.Addr(), "noeviction", 8},
		"old":      {"redis://" + sixth(t, w.redis.Addr()), `version "6\.[^"]*", and a queue needs 7`, 8},
		"nodb":     {"redis://" + w.redis.Addr() + "/99", "(?i)DB index is out of range", 8},
		"nologin":  {"redis://" + secret.Addr(), "MUSTER_REDIS_PASSWORD", 8},
	} {
		w.also(name, c.redis, nil)
		for _, args := range [][]string{
			{"submit", name, "-"}, {"executor", name, "--join-timeout", "5m", "--", "cat"},
			{"watcher", name, "--join-timeout", "5m", "--", "cat"},
		} {
			w.try("1\n", args...).expect(t, name+", "+args[0], c.code, c.want)
		}
	}
	if left, err := w.keysLeft(); err != nil || len(left) > 0 {
		t.Errorf("left in Redis: %q, %v", left, err)
	}
}

// sixth is the address of a Redis that says of itself that it is version 6. Debian has no real one.
func sixth(t *testing.T, addr string) string {
	t.Helper()
	const info = "redis_version:6.2.7\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n"
	return rig.Liar(t, addr, func(request []string) io.Reader {
		if !strings.EqualFold(request[0], "info") {
			return nil
		}
		return strings.NewReader(fmt.Sprintf("$%d\r\n%s\r\n", len(info), info))
	})
}

// TestWhatIsSubmitted: too large, empty, binary, nothing at all, and another batch under the same id.
func TestWhatIsSubmitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, zkserver.Options{}, func(q *queue.Queue) { q.MaxTask = 1 << 10 })
	name := w.queue.Name
	w.try("", "submit", name, "-", "--id", "none").expect(t, "0 tasks", 64, "at least one task")
	w.try("a\n"+strings.Repeat("x", 1025)+"\n", "submit", name, "-", "--id", "large").
		expect(t, "an oversized task", 73, "line 2: .*larger than the queue's max_task, 1KiB(.|\n)*raise max_task")
	w.try("a\n", "submit", name, "-", "--id", "a/b").expect(t, "an id with a slash", 64, "not '/'")
	w.try("", "executor", "nobody", "--join-timeout", "10s", "--", "cat").expect(t, "no such queue", 74, "no such queue")
	if s, err := w.state(); err != nil || len(s.Batches) != 0 {
		t.Errorf("left: %+v, %v", s.Batches, err)
	}

	w.add("e", false, w.executor("--parallel", "2", "--", "cat")...)
	w.try("a\n", "submit", name, "-", "--id", "one", "--results", "keep:24h").expect(t, "one", 0, "one")
	w.try("b\n", "submit", name, "-", "--id", "one", "--results", "keep:24h").
		expect(t, "the same id with other content", 7, "another batch has this id")
	w.try("a\n", "submit", name, "-", "--id", "one", "--results", "keep:24h").expect(t, "the same again", 0, "one")

	binary := "\xff\x00\n\x01|" + "|x\ny|"
	files := []string{"submit", name, "--files", "--id", "binary", "--wait", "--json"}
	for i, text := range []string{binary, "", "x\ny"} {
		path := filepath.Join(w.dir, fmt.Sprint("file", i))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	o := w.try("", files...)
	o.expect(t, "binary and empty tasks", 0, `"index":0[^\n]*"base64":"/wAKAXx8eAp5fA=="`)
	o.expect(t, "binary and empty tasks", 0, `"index":1[^\n]*"result":""`)
	o.expect(t, "binary and empty tasks", 0, `"index":2[^\n]*"result":"x\\ny"`)
	w.try("\n\n", "submit", name, "-", "--wait", "--json").expect(t, "empty lines", 0, `"index":1[^\n]*"result":""`)
}

// TestWhatCommandsDo: a command that never ends, that writes 1 GB, whose result is too large, that closes its input or
// never reads it, and that breaks the rules of --lines: the task is dead with a reason that names it, or done; and the
// executor goes on.
func TestWhatCommandsDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, zkserver.Options{}, func(q *queue.Queue) {
		q.MaxTask, q.Attempts, q.TaskTimeout = 1<<10, 2, resource.Duration(20*time.Second)
		q.Timeouts.Drain = resource.Duration(time.Second)
	})
	script := filepath.Join(w.dir, "command")
	if err := os.WriteFile(script, []byte(`#!/bin/sh
case "$1" in
endless) trap "" TERM; while :; do sleep 1; done ;;
gigabyte) head -c 1G /dev/zero ;;
noise) head -c 100M /dev/zero | tr '\0' x >&2; echo quiet ;;
large) head -c 1025 /dev/zero | tr '\0' x ;;
closes) exec <&-; sleep 0.1; echo closed ;;
leaves) sleep 100 & echo left ;;
never) echo "no use" >&2; exit 65 ;;
*) echo "$1" ;;
esac
`), 0o755); err != nil {
		t.Fatal(err)
	}
	e := w.add("e", false, w.executor("--parallel", "2", "--", script, "{}")...)
	kinds := []string{"endless", "gigabyte", "noise", "large", "closes", "leaves", "never", "plain"}
	o := w.try(strings.Join(kinds, "\n")+"\n", "submit", w.queue.Name, "-", "--wait", "--json")
	o.expect(t, "all kinds", 3, "")
	for i, want := range []string{
		`"dead":true,"error":"[^"]*20s`, `"dead":true,"error":"[^"]*(1KiB|max_task)`, `"result":"quiet\\?n?"`,
		`"dead":true,"error":"[^"]*(1KiB|max_task)`, `"result":"closed\\?n?"`, `"result":"left\\?n?"`,
		`"dead":true,"error":"[^"]*no use`, `"result":"plain\\?n?"`,
	} {
		if !regexp.MustCompile(fmt.Sprintf(`"index":%d,[^\n]*%s`, i, want)).MatchString(o.stdout) {
			t.Errorf("%s: want %s in\n%.5000s", kinds[i], want, o.stdout)
		}
	}
	if most := peakMemory(t, e.run.OS.Pid); most > 200<<20 {
		t.Errorf("the executor took %d MiB", most>>20)
	}
	if e.run.Ended() {
		t.Errorf("the executor has ended with %d", e.run.Code())
	}
}

// peakMemory is the most that a process had resident, in bytes.
func peakMemory(t *testing.T, pid int) (kib int64) {
	t.Helper()
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(body), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// TestFullMemory: submit waits while Redis is out of memory, and says so; work goes on; and nothing is lost.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, zkserver.Options{}, nil)
	w.try("a\nb\n", "submit", w.queue.Name, "-", "--id", "before", "--results", "keep:24h").expect(t, "before", 0, "")
	c, _ := w.books()
	if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	p := w.add("submit", false, muster(), "submit", w.queue.Name, w.file("c\nd\n"), "--id", "after",
		"--results", "keep:24h")
	w.wrote("submit", "memory")
	w.add("e", false, w.executor("--", "cat")...)
	done := func(id string) {
		t.Helper()
		rig.Until(t, patience, "the results of "+id, func() string {
			o := w.try("", "queue", "batches", w.queue.Name+"/"+id, "--results")
			if o.code != 0 || strings.Count(o.stdout, "\n") != 2 {
				return o.stdout + o.stderr
			}
			return ""
		})
	}
	done("before")
	if p.run.Ended() {
		t.Errorf("submit has ended with %d", p.run.Code())
	}
	if err := c.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	done("after")
}

func (w *world) file(text string) string {
	w.t.Helper()
	f, err := os.CreateTemp(w.dir, "tasks-")
	if err == nil {
		_, err = f.WriteString(text)
		f.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return f.Name()
}

// wrote waits until a process has written what a pattern describes.
func (w *world) wrote(name, pattern string) {
	w.t.Helper()
	rig.Until(w.t, patience, name+" to write "+pattern, func() string {
		body, err := os.ReadFile(filepath.Join(w.dir, name+".out"))
		if err != nil || !regexp.MustCompile(pattern).Match(body) {
			return fmt.Sprintf("%s, %v", body, err)
		}
		return ""
	})
}

// TestResultsThatNobodyCollects: status names completed batches that no watcher takes; a watcher that comes gets them.
func TestResultsThatNobodyCollects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, zkserver.Options{}, nil)
	w.add("e", false, w.executor("--", "cat")...)
	w.try("a\nb\n", "submit", w.queue.Name, "-", "--id", "b").expect(t, "submit", 0, "")
	rig.Until(t, patience, "status to say so", func() string {
		o := w.try("", "status", "--root", w.queue.Root, w.queue.Name)
		if !regexp.MustCompile(`degraded`).MatchString(o.stdout) || !strings.Contains(o.stdout, "muster watcher") {
			return o.stdout + o.stderr
		}
		return ""
	})
	w.add("w", false, muster(), "watcher", w.queue.Name, "--", "cat")
	w.wrote("w", `"index":1`)
	rig.Until(t, patience, "the batch to end", func() string {
		if s, err := w.state(); err != nil || len(s.Batches) > 0 {
			return fmt.Sprintf("%+v, %v", s.Batches, err)
		}
		return ""
	})
}
