package cli_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestGoPage compiles the module that docs/go.md shows, and runs it as both workers of a job. It needs no network: the
// modules that muster needs are in the cache.
func TestGoPage(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	f := newFixture(t, 1, "")
	f.mustApply(t)
	dir := t.TempDir()
	repo, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?ms)^`([a-z.]+)`:\n\n```\\w*\n(.*?)^```$")
	shown := named.FindAllStringSubmatch(read(t, "../docs/go.md"), -1)
	if len(shown) != 2 {
		t.Fatalf("docs/go.md shows %d files, not go.mod and main.go", len(shown))
	}
	here := strings.NewReplacer("=> ../muster\n", "=> "+repo+"\n", `"/jobs"`, `"`+f.root+`"`, `"hello"`, `"j0"`)
	for _, file := range shown {
		text := here.Replace(file[2])
		if text == file[2] {
			t.Errorf("%s holds nothing that the test can replace by its own root and paths", file[1])
		}
		if err := os.WriteFile(filepath.Join(dir, file[1]), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", "hello", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	program := filepath.Join(dir, "hello")
	workers := []*exec.Cmd{
		exec.CommandContext(ctx, program, "worker-0"), exec.CommandContext(ctx, program, "worker-1"),
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
}
