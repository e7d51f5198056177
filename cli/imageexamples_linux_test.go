package cli_test

import (
	"io/fs"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"muster/exitcode"
	"muster/sim/rig"
)

// imageRunsExamples runs in the image what needs only muster: what the heads of the configurations say, a plan of
// each of them, the page, and a ZooKeeper of its own. A worker whose program is not there says so.
func (h *hello) imageRunsExamples() {
	h.mount("../examples", "/examples")
	env := []string{"MUSTER_SERVERS=" + h.servers}
	in := func(dir string, args ...string) *exec.Cmd {
		cmd := h.image.command(env, args)
		cmd.Dir = dir
		return cmd
	}
	n := 0
	for _, config := range h.configurations() {
		h.t.Run(config.path, func(t *testing.T) {
			for _, line := range config.lines {
				dir := "/examples"
				if strings.Contains(line, " examples/") {
					dir = "/"
				}
				args := shellWords(t, line)
				if args[0] == "apply" {
					args = append(args, "--yes")
				}
				expect(t, result(in(dir, args...)), 0, "")
				n++
			}
			expect(t, result(in("/examples", "plan", config.path)), 0, "")
		})
	}
	if n < 7 {
		h.t.Errorf("the heads of the examples have only %d commands", n)
	}
	got := result(in("/examples", "worker", "--job=hello", "--root=/jobs", "--identity=worker-0", "--", "./load.sh"))
	if got.code != exitcode.NotFound || !strings.Contains(got.stderr, "load.sh") {
		h.t.Errorf("a worker without its program: %+v", got)
	}
	h.serves(in("/", "serve", "--listen", "127.0.0.1:0"))
	h.runsUntilStopped(in("/", "dev"), "export MUSTER_SERVERS=")
}

// configuration is an example: a file or a directory, and the commands that its comments show.
type configuration struct {
	path  string
	lines []string
}

// configurations lists the examples as paths below examples.
func (h *hello) configurations() []configuration {
	h.t.Helper()
	var all []configuration
	shown := regexp.MustCompile(`(?m)^#   muster ((?:plan|apply|validate|drift) (?:[^ \n]|[ ][^ \n])+)`)
	err := filepath.WalkDir("../examples", func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".hcl" || strings.HasSuffix(path, ".vars.hcl") {
			return err
		}
		c := configuration{path: strings.TrimPrefix(path, "../examples/")}
		if dir := filepath.Dir(c.path); dir != "." {
			c.path = dir
		}
		for _, m := range shown.FindAllStringSubmatch(read(h.t, path), -1) {
			c.lines = append(c.lines, m[1])
		}
		if last := len(all) - 1; last >= 0 && all[last].path == c.path {
			all[last].lines = append(all[last].lines, c.lines...)
			return nil
		}
		all = append(all, c)
		return nil
	})
	if err != nil || len(all) < 10 {
		h.t.Fatalf("%v: %d examples", err, len(all))
	}
	return all
}

// shellWords splits a line as a shell does.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `printf '%s\0' `+line).Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// serves: the page answers from inside of the image.
func (h *hello) serves(cmd *exec.Cmd) {
	h.t.Helper()
	seen := startOnScreen(h.t, cmd)
	address := regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+`)
	rig.Await(h.t, "the address of the page", func() bool { return address.MatchString(seen.String()) })
	rig.Await(h.t, "the health of the page", func() bool {
		answer, err := http.Get(address.FindString(seen.String()) + "/healthz")
		if err != nil {
			return false
		}
		return answer.StatusCode == http.StatusOK && answer.Body.Close() == nil
	})
	stopAndExpect(h.t, cmd, seen)
}

// runsUntilStopped waits until a command has printed a text, and stops it.
func (h *hello) runsUntilStopped(cmd *exec.Cmd, text string) {
	h.t.Helper()
	seen := startOnScreen(h.t, cmd)
	seen.await(h.t, text)
	stopAndExpect(h.t, cmd, seen)
}

// stopAndExpect asks a command to stop, which it does with the code of the signal.
func stopAndExpect(t *testing.T, cmd *exec.Cmd, seen *screen) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	endsWith(t, cmd, seen, exitcode.Terminate)
}
