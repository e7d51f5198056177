package cli_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFirstSteps runs the first commands of the README, with a free port, and without asking.
func TestFirstSteps(t *testing.T) {
	t.Parallel()
	steps := regexp.MustCompile("(?s)The first ten minutes:\n\n```sh\n(.*?)```")
	block := steps.FindStringSubmatch(read(t, "../README.md"))
	if block == nil {
		t.Fatal("the README has no first steps")
	}
	edit := strings.NewReplacer(
		"muster dev --port 2181 &", "muster dev --embedded --quiet >dev & trap \"kill $!; wait\" EXIT\n"+
			"until grep -q ^export dev; do sleep 0.1; done; . ./dev",
		"muster apply ", "muster apply --yes ", "muster status ", "wait $!; muster status ",
		"export PATH=$PWD:$PATH", "",
	)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", edit.Replace(block[1]))
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "MUSTER_SERVERS=")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("first steps: %v", err)
	}
	for _, seen := range []string{
		"Applied 1 of 1: 1 created", "(?m)^0 of 2$", "(?m)^1 of 2$", `hello +ready +\S+ +0 of 2 `,
	} {
		if !regexp.MustCompile(seen).Match(out) {
			t.Errorf("never saw %s in:\n%s", seen, out)
		}
	}
}
