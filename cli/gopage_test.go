package cli_test

import (
	"context"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestGoPage compiles the module that docs/go.md shows, and runs it as both workers of a job, as two members of a
// group, and as the processes of a queue. It needs no network: the modules that muster needs are in the cache.
func TestGoPage(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	f := newFixture(t, 1, "")
	f.write(t, 1, fmt.Sprintf(`group "shop" {
  root   = %q
  settle = "1ms"
  leader "coordinator" {}
}
queue "squares" {
  root  = %q
  redis = "redis://%s"
}
`, f.root, f.root, sharedRedis(t).Addr()))
	f.mustApply(t)
	program := buildGoPage(ctx, t, f.root)
	workers := []*exec.Cmd{
		exec.CommandContext(ctx, program+"/hello", "worker-0"), exec.CommandContext(ctx, program+"/hello", "worker-1"),
	}
	var outs [2]strings.Builder
	for i, cmd := range workers {
		cmd.Env = []string{"MUSTER_SERVERS=" + servers.Connect()}
		cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	loaded := regexp.MustCompile(`^worker [01] of 2: all have loaded\n$`)
	for i, cmd := range workers {
		if err := cmd.Wait(); err != nil || !loaded.MatchString(outs[i].String()) {
			t.Errorf("worker-%d: %v\n%s", i, err, outs[i].String())
		}
	}
	got := result(f.command(servers.Connect(), "status", "--root", f.root, "j0"))
	if !strings.Contains(got.stdout, "\nthe last run completed ") {
		t.Errorf("the job after the run: %+v", got)
	}
	checkShop(t, program+"/shop")
	checkSquares(t, program+"/squares")
}

// buildGoPage builds the programs of the page, for jobs and groups below root, and returns their folder.
func buildGoPage(ctx context.Context, t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	repo, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?ms)^`([a-z./]+)`:\n\n```\\w*\n(.*?)^```$")
	shown := named.FindAllStringSubmatch(read(t, "../docs/go.md"), -1)
	if len(shown) != 4 {
		t.Fatalf("docs/go.md shows %d files, not go.mod and three programs", len(shown))
	}
	here := strings.NewReplacer("=> ../muster\n", "=> "+repo+"\n", `"/jobs"`, `"`+root+`"`, `"hello"`, `"j0"`,
		`"/apps"`, `"`+root+`"`, `"/queues"`, `"`+root+`"`)
	for _, file := range shown {
		text := here.Replace(file[2])
		if text == file[2] {
			t.Errorf("%s holds nothing that the test can replace by its own root and paths", file[1])
		}
		path := filepath.Join(dir, file[1])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if formatted, err := format.Source([]byte(file[2])); strings.HasSuffix(path, ".go") && string(formatted) != file[2] {
			t.Errorf("%s is not formatted: %v", file[1], err)
		}
	}
	bin := filepath.Join(dir, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin+"/", "./...")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// checkShop runs two members of the group: one leads, and when it leaves, the other does.
func checkShop(t *testing.T, program string) {
	t.Helper()
	members, screens := map[string]*exec.Cmd{}, map[string]*screen{}
	for _, identity := range []string{"a", "b"} {
		members[identity] = exec.Command(program, identity)
		members[identity].Env = []string{"MUSTER_SERVERS=" + servers.Connect()}
		screens[identity] = startOnScreen(t, members[identity])
		screens[identity].await(t, "follows a at 127.0.0.1:7000, epoch ")
	}
	screens["a"].await(t, "; turns: a \n")
	if err := members["a"].Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := members["a"].Wait(); err != nil {
		t.Errorf("a: %v\n%s", err, screens["a"])
	}
	screens["b"].await(t, "b: taken coordinator")
	screens["b"].await(t, "b follows b at 127.0.0.1:7000, epoch ")
	screens["b"].await(t, "; turns: a b \n")
}

// checkSquares submits a batch, executes it, and collects its results.
func checkSquares(t *testing.T, program string) {
	t.Helper()
	seen := map[string]*screen{}
	all := map[string]*exec.Cmd{}
	for _, what := range []string{"submit", "execute", "watch"} {
		all[what] = exec.Command(program, what)
		all[what].Env = append(redisEnviron(), "MUSTER_SERVERS="+servers.Connect())
		seen[what] = startOnScreen(t, all[what])
	}
	seen["submit"].await(t, "1001 tasks are in batch first\n")
	if err := all["submit"].Wait(); err != nil {
		t.Errorf("submit: %v\n%s", err, seen["submit"])
	}
	seen["watch"].await(t, "task \"x\" of first is dead: do not try this task again: strconv.Atoi: parsing \"x\": ")
	seen["watch"].await(t, "batch first: the sum of 1000 squares is 332833500\n")
	for _, what := range []string{"execute", "watch"} {
		if err := all[what].Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := all[what].Wait(); err != nil {
			t.Errorf("%s: %v\n%s", what, err, seen[what])
		}
	}
}
