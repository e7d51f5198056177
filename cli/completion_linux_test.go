package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"muster/sim/needs"
)

// TestCompletionInBash types into a real bash with muster's completion script. An address holds quotes and brackets,
// and bash must pass to muster what TAB has inserted.
func TestCompletionInBash(t *testing.T) {
	const library = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(library); err != nil {
		needs.Missing(t, "%v (apt-get install bash-completion)", err)
	}
	f := newFixture(t, 2, "")
	quiet := filepath.Join(t.TempDir(), "inputrc")
	if err := os.WriteFile(quiet, []byte("set bell-style none\nset enable-bracketed-paste off\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	term := newTerminal(t)
	cmd := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-i")
	cmd.Dir = f.dir
	cmd.Env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "MUSTER_SERVERS=" + servers.Connect(),
		"PS1=ready> ", "TERM=dumb", "HOME=" + f.dir, "INPUTRC=" + quiet,
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.tty, term.tty, term.tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	step := func(typed, seen string) {
		t.Helper()
		fmt.Fprint(term.user, typed)
		term.await(t, seen)
	}
	step("source "+library+" && source <(muster completion bash) && echo loaded-$((1+1))\n", "loaded-2\nready> ")
	step("muster explain jo\t", `explain job.j\[\"j`)
	step("1\t", `explain job.j\[\"j1\"\]`)
	step("\n", "path          "+f.root+"/j1\n")
	term.await(t, "(default)\nready> ")
	step("muster drift --fail-on mis\t", "--fail-on missing ")
	step("\b,sta\t", ",stale ")
	step("\x15muster plan --report mark\t", "--report markdown=")
	step("ma\t", "markdown=main.hcl ")
	fmt.Fprint(term.user, "\x15exit\n")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
