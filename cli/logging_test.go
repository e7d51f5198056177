package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/dev/redisserver"
)

// logFixture is a job "a", a group "shop" and a queue "primes" with a Redis of its own.
type logFixture struct {
	fixture
	redis *redisserver.Server
}

func newLogFixture(t *testing.T) logFixture {
	t.Helper()
	redis, err := redisserver.Start(context.Background(), redisserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Stop() })
	f := logFixture{newFixture(t, 0, ""), redis}
	f.write(t, 0, fmt.Sprintf(`%s
job "one" {
  root    = %[2]q
  workers = 1
}
group "shop" {
  root = %[2]q
  leader "main" {}
  timeouts { session = "4s" }
}
queue "primes" {
  root  = %[2]q
  redis = "redis://%[3]s/0"
  timeouts { session = "4s" }
}
`, f.jobBlock("a", "4s"), f.root, redis.Addr()))
	f.mustApply(t)
	return f
}

// idle is a command that does nothing until it is stopped.
var idle = []string{"--", "sh", "-c", "exec sleep 1000"}

// kinds are the arguments of all processes that stay, with what each says when it is there.
func (f logFixture) kinds() map[string][]string {
	return map[string][]string{
		"worker": append([]string{"worker", "--job", "a", "--root", f.root, "--identity", "w"}, idle...),
		"member": append([]string{
			"member", "--group", "shop", "--root", f.root, "--version", "1.0.0", "--identity", "m", "--can", "main",
		}, idle...),
		"executor": append([]string{"executor", f.root + "/primes", "--identity", "e"}, idle...),
		"watcher":  append([]string{"watcher", f.root + "/primes", "--identity", "w"}, idle...),
	}
}

// startLogging starts a process, of which only standard error is on the screen.
func startLogging(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	cmd.Stdout = io.Discard
	return startOnScreen(t, cmd)
}

// TestOutagesAreTold at the default level, by all processes that stay: a connection that is lost and back, and a
// session. With --log-format json each line is a record.
func TestOutagesAreTold(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		f := newLogFixture(t)
		for name, args := range f.kinds() {
			t.Run(name+"/"+format, func(t *testing.T) {
				t.Parallel()
				proxy := newProxy(t, 0)
				cmd := f.command(proxy.Addr(), append([]string{"--log-format", format}, args...)...)
				seen := startLogging(t, cmd)
				seen.await(t, "joined "+f.root)
				proxy.Cut()
				seen.await(t, "the connection to zookeeper is lost")
				seen.await(t, "connected to zookeeper again")
				proxy.Refuse(true)
				proxy.Cut()
				seen.await(t, "is lost; joining again")
				proxy.Refuse(false)
				seen.await(t, "joined again")
				sendSignal(t, cmd, syscall.SIGTERM)
				_ = cmd.Wait()
				seen.await(t, "exit 143 is ")
				if format == "json" {
					onlyRecords(t, seen.String())
				}
			})
		}
	}
}

// onlyRecords fails unless each line is a record of a log.
func onlyRecords(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var record struct{ Time, Level, Msg string }
		err := json.Unmarshal([]byte(line), &record)
		if err != nil || record.Time == "" || record.Level == "" || record.Msg == "" {
			t.Errorf("no record (%v): %s", err, line)
		}
	}
	if text == "" {
		t.Error("it says nothing")
	}
}

// TestAnOutageOfRedisIsTold at the default level, and its end.
func TestAnOutageOfRedisIsTold(t *testing.T) {
	t.Parallel()
	f := newLogFixture(t)
	all := map[string]*screen{}
	for _, role := range []string{"executor", "watcher"} {
		cmd := f.command(servers.Connect(), f.kinds()[role]...)
		all[role] = startLogging(t, cmd)
		all[role].await(t, "joined "+f.root)
	}
	if err := f.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, seen := range all {
		seen.await(t, "waiting for redis")
	}
	if err := f.redis.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, seen := range all {
		seen.await(t, "redis answers again")
	}
}

// TestAWorkerSaysWhomItWaitsFor: for all to join, at barriers, and for a value.
func TestAWorkerSaysWhomItWaitsFor(t *testing.T) {
	t.Parallel()
	f := newLogFixture(t)
	worker := func(n int, more ...string) *screen {
		cmd := f.command(servers.Connect(), append([]string{
			"worker", "--job", "a", "--root", f.root, "--identity", fmt.Sprint("worker-", n), "--start", "all",
		}, more...)...)
		return startLogging(t, cmd)
	}
	first := worker(0, "--", "sh", "-c", "muster barrier loaded & muster get port --from 1 & wait")
	first.await(t, `msg="waiting for all workers to join" job=`+f.root+`/a id=0 since=`)
	first.await(t, "joined=1 workers=2 missing=worker-1\n")
	worker(1, idle...)
	first.await(t, `msg="waiting for barrier loaded" job=`+f.root+`/a id=0 since=`)
	first.await(t, "round=0 arrived=1 workers=2 missing=1\n")
	first.await(t, `msg="waiting for workers to publish port" job=`+f.root+`/a id=0 since=`)
	first.awaitTimes(t, `msg="waiting for barrier loaded"`, 2)
	if n := strings.Count(first.String(), "waiting for all workers to join"); n > 5 {
		t.Errorf("it says %d times that it waits for all", n)
	}
}

// TestNoWarningAtANormalEnd, whatever is logged.
func TestNoWarningAtANormalEnd(t *testing.T) {
	t.Parallel()
	f := newLogFixture(t)
	ends := map[string][]string{
		"worker":   {"worker", "--job", "one", "--root", f.root, "--identity", "w", "--", "true"}, // the last: it resets
		"member":   {"member", "--group", "shop", "--root", f.root, "--version", "1.0.0", "--", "true"},
		"executor": {"executor", f.root + "/primes", "--until-empty", "--", "cat"},
	}
	for name, args := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := result(f.command(servers.Connect(), append([]string{"--log-level", "debug"}, args...)...))
			if got.code != 0 || strings.Contains(got.stderr, "level=WARN") || !strings.Contains(got.stderr, "level=") {
				t.Errorf("code %d\n%s", got.code, got.stderr)
			}
		})
	}
	for name, args := range f.kinds() {
		t.Run(name+"_stopped", func(t *testing.T) {
			t.Parallel()
			cmd := f.command(servers.Connect(), append([]string{"--log-level", "debug"}, args...)...)
			seen := startLogging(t, cmd)
			seen.await(t, "joined "+f.root)
			sendSignal(t, cmd, syscall.SIGTERM)
			_ = cmd.Wait()
			if text := seen.String(); strings.Contains(text, "level=WARN") {
				t.Error(text)
			}
		})
	}
}

// TestErrorsAreRecordsToo: of a configuration, of arguments, and of what is asked inside a command.
func TestErrorsAreRecordsToo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "main.hcl"), "job \"a\" {\n  workers = 0\n}\n")
	for name, args := range map[string][]string{
		"configuration": {"plan", "-C", dir}, "argument": {"plan", "--nonsense"}, "command": {"nonsense"},
		"nothing": {}, "worker": {"worker", "--job", "a/b"}, "outside": {"barrier", "x"},
		"unreachable": {"status", "--servers", "127.0.0.1:1", "/jobs"},
	} {
		got := run(t, nil, append([]string{"--log-format", "json"}, args...)...)
		if got.code == 0 {
			t.Errorf("%s: %+v", name, got)
		}
		onlyRecords(t, got.stderr)
		if name != "configuration" && !strings.Contains(got.stderr, `"next":"`) {
			t.Errorf("%s: no next step in\n%s", name, got.stderr)
		}
	}
}
