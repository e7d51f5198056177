package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"muster/exitcode"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/zkstate/znode"
)

// TestExamplesOfTheReconcilerRun runs what the unit and the Deployment start, on a checkout that is exchanged as
// git-sync does it. The events are what the schema says.
func TestExamplesOfTheReconcilerRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "")
	git := t.TempDir()
	commit := func(name string, n int) {
		t.Helper()
		f.write(t, n, "")
		at := filepath.Join(git, name)
		if out, err := exec.Command("cp", "-R", f.dir, at).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		next := filepath.Join(git, "next")
		if err := os.Symlink(at, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(git, "current")); err != nil {
			t.Fatal(err)
		}
	}
	commit("one", 1)
	s := rig.Dial(t, 10*time.Second, servers.Addrs()...)
	there := func(name string) func() bool {
		return func() bool {
			_, found, err := s.Exists(t.Context(), znode.Record(job.KindName, f.root, name))
			return found && err == nil
		}
	}
	unit := strings.ReplaceAll(read(t, "../examples/pipelines/systemd/muster-reconcile.service"), "\\\n", " ")
	started := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/muster (.*)$`).FindStringSubmatch(unit)
	if started == nil {
		t.Fatal("the unit starts nothing")
	}
	events := filepath.Join(t.TempDir(), "events.jsonl")
	run := func(args []string) (*exec.Cmd, *screen) {
		for i := range args {
			args[i] = strings.NewReplacer(
				"127.0.0.1:8091", "127.0.0.1:0", ":8091", "127.0.0.1:0", "/git/current/prod", git+"/current",
				"/etc/muster/prod", git+"/current", "/var/lib/muster/events.jsonl", events,
			).Replace(args[i])
		}
		cmd := f.command(servers.Connect(), append(args, "--poll", "100ms")...)
		return cmd, startOnScreen(t, cmd)
	}
	first, seen := run(strings.Fields(started[1]))
	seen.await(t, "this reconciler acts")
	rig.Await(t, "the first job", there("j0"))
	second, other := run(reconcileDeployment(t).Spec.Containers[0].Args)
	other.await(t, "another reconciler acts")
	commit("two", 2)
	rig.Await(t, "the job of the next commit", there("j1"))
	for _, path := range []string{"healthz", "readyz", "metrics"} {
		if code, body := httpGet(health(t, other) + path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	end(t, first)
	other.await(t, "this reconciler acts")
	end(t, second)
	checkEvents(t, events)
}

// end asks a process to end.
func end(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code says it
	if code := cmd.ProcessState.ExitCode(); code != exitcode.Terminate {
		t.Errorf("it ends with %d", code)
	}
}

func checkEvents(t *testing.T, file string) {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("schema/event.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]int{}
	for line := range strings.Lines(read(t, file)) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(e); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		types[fmt.Sprint(e["type"])]++
	}
	for _, want := range []string{"muster.config.loaded", "muster.leader.changed", "muster.row.committed"} {
		if types[want] == 0 {
			t.Errorf("no %s among %v", want, types)
		}
	}
}
