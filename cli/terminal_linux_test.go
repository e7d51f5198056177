package cli_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster/sim/needs"
)

// terminal is a pseudo terminal. Its screen keeps what was written to it.
type terminal struct {
	*screen
	user, tty *os.File // the end of the user, and the end of muster
}

func newTerminal(t *testing.T) terminal {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		needs.Missing(t, "no terminals: %v", err)
	}
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		needs.Missing(t, "no terminals: %v (mount devpts at /dev/pts)", err)
	}
	term := terminal{newScreen(), user, tty}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(term.screen, user) // ends with an error when the last tty is closed
	}()
	t.Cleanup(func() { tty.Close(); <-read; user.Close() })
	return term
}

// start starts a command at the terminal.
func (term terminal) start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.tty, term.tty, term.tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func TestApplyAtATerminalAsksAndShowsABarWhenItTakesLong(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 30, "")
	proxy := newProxy(t, 40*time.Millisecond)
	term := newTerminal(t)
	cmd := f.command(proxy.Addr(), "apply", "--parallel", "1")
	term.start(t, cmd)
	term.await(t, "To apply 30 changes (30 to create), type yes: ")
	fmt.Fprintln(term.user, "yes")
	term.await(t, "] 25 of 30")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	term.await(t, "Applied 30 of 30")
	text := term.String()
	for _, want := range []string{"\x1b[32m+\x1b[0m", "[######", "\r\x1b[K"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the terminal:\n%q", want, text)
		}
	}
	bar := strings.LastIndex(text, "of 30\r\x1b[K")
	if bar < 0 || strings.Contains(text[strings.Index(text, "Applied"):], "###") {
		t.Errorf("the bar is left on the screen:\n%q", text)
	}
}

// TestPlanFitsTheTerminal: the line of counts fits too; it is one line in a pipe.
func TestPlanFitsTheTerminal(t *testing.T) {
	f := newFixture(t, 1, "")
	term := newTerminal(t)
	const columns = 60
	size := unix.Winsize{Row: 40, Col: columns}
	if err := unix.IoctlSetWinsize(int(term.tty.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		t.Fatal(err)
	}
	cmd := f.command(servers.Connect(), "plan", "--color", "never")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.tty, term.tty, term.tty
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, term)
	}
	term.await(t, " 0 unchanged.\n")
	for line := range strings.Lines(term.String()) {
		if len([]rune(line)) > columns+1 {
			t.Errorf("wider than %d columns: %s", columns, line)
		}
	}
}

// TestEndOfInputAtThePromptEndsTheLine: the message after a missing answer starts on a new line.
func TestEndOfInputAtThePromptEndsTheLine(t *testing.T) {
	f := newFixture(t, 1, "")
	term := newTerminal(t)
	cmd := f.command(servers.Connect(), "apply")
	term.start(t, cmd)
	term.await(t, "type yes: ")
	fmt.Fprint(term.user, "\x04")
	endsWith(t, cmd, term.screen, 7)
	term.await(t, "type yes: \nmuster: declined")
}

// TestCancelAsksAtATerminal: whoever answers something else keeps the batch.
func TestCancelAsksAtATerminal(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.submit("b", []byte("1"))
	for _, answer := range []string{"no", "yes"} {
		code := map[string]int{"no": 7}[answer]
		term := newTerminal(t)
		cmd := f.command(servers.Connect(), "queue", "cancel", "--root", f.root, "primes", "b")
		term.start(t, cmd)
		term.await(t, "/primes/b: Its commands would be killed, and its tasks and results deleted. To do so, type yes: ")
		fmt.Fprintln(term.user, answer)
		endsWith(t, cmd, term.screen, code)
		if code == 7 {
			expect(t, result(f.command(servers.Connect(), "queue", "batches", "--root", f.root, "primes", "b")), 0, "open")
		}
	}
}

func TestInterruptAtThePromptChangesNothing(t *testing.T) {
	f := newFixture(t, 1, "")
	term := newTerminal(t)
	cmd := f.command(servers.Connect(), "apply")
	term.start(t, cmd)
	term.await(t, "type yes: ")
	sendSignal(t, cmd, syscall.SIGINT)
	endsWith(t, cmd, term.screen, 130)
	expect(t, result(f.command(servers.Connect(), "plan")), 0, "Plan: 1 to create")
}

func TestWatchRedrawsATerminal(t *testing.T) {
	f := newFixture(t, 1, "")
	f.mustApply(t)
	term := newTerminal(t)
	cmd := f.command(servers.Connect(), "status", "--watch")
	term.start(t, cmd)
	term.await(t, "/j0  ready")
	f.write(t, 2, "")
	f.mustApply(t)
	term.await(t, "/j1  ready")
	sendSignal(t, cmd, syscall.SIGTERM)
	endsWith(t, cmd, term.screen, 143)
	if n := strings.Count(term.String(), "\x1b[H\x1b[2J"); n != 2 {
		t.Errorf("drawn %d times, want 2:\n%q", n, term)
	}
}

func TestColourIsDecidedPerStream(t *testing.T) {
	f := newFixture(t, 1, "")
	for name, c := range map[string]struct {
		env  []string
		args []string
		tty  bool
		want bool
	}{
		"terminal":                     {tty: true, want: true},
		"pipe":                         {},
		"pipe_always":                  {args: []string{"--color", "always"}, want: true},
		"terminal_never":               {args: []string{"--color=never"}, tty: true},
		"terminal_no_color":            {env: []string{"NO_COLOR=1"}, tty: true},
		"terminal_no_color_empty":      {env: []string{"NO_COLOR="}, tty: true, want: true},
		"pipe_force_color":             {env: []string{"FORCE_COLOR=1"}, want: true},
		"no_color_beats_force_color":   {env: []string{"FORCE_COLOR=1", "NO_COLOR=1"}, tty: true},
		"always_beats_no_color":        {env: []string{"NO_COLOR=1"}, args: []string{"--color", "always"}, want: true},
		"terminal_dumb":                {env: []string{"TERM=dumb"}, tty: true},
		"force_color_beats_dumb":       {env: []string{"TERM=dumb", "FORCE_COLOR=1"}, tty: true, want: true},
		"stderr_terminal_stdout_piped": {},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := f.command(servers.Connect(), append([]string{"plan"}, c.args...)...)
			cmd.Env = append(cmd.Env, c.env...)
			var out string
			if c.tty {
				term := newTerminal(t)
				cmd.Stdout = term.tty
				if err := cmd.Run(); err != nil {
					t.Fatal(err)
				}
				term.await(t, "  create  job.j")
				out = term.String()
			} else {
				cmd.Stderr = newTerminal(t).tty
				piped, err := cmd.Output()
				if err != nil {
					t.Fatal(err)
				}
				out = string(piped)
			}
			if got := strings.Contains(out, "\x1b["); got != c.want {
				t.Errorf("colour: %v, want %v\n%q", got, c.want, out)
			}
		})
	}
}

// TestCompletionInBash types into a real bash with muster's completion script. An address holds quotes and brackets,
// and bash must pass to muster what TAB has inserted.
func TestCompletionInBash(t *testing.T) {
	const library = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(library); err != nil {
		needs.Missing(t, "%v (apt-get install bash-completion)", err)
	}
	f := newFixture(t, 2, "")
	quiet := filepath.Join(t.TempDir(), "inputrc")
	write(t, quiet, "set bell-style none\nset enable-bracketed-paste off\n")
	term := newTerminal(t)
	cmd := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-i")
	cmd.Dir = f.dir
	cmd.Env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "MUSTER_SERVERS=" + servers.Connect(),
		"PS1=ready> ", "TERM=dumb", "HOME=" + f.dir, "INPUTRC=" + quiet,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	term.start(t, cmd)
	step := func(typed, seen string) {
		t.Helper()
		fmt.Fprint(term.user, typed)
		term.await(t, seen)
	}
	step("source "+library+" && source <(muster completion bash) && echo loaded-$((1+1))\n", "loaded-2\nready> ")
	step("muster explain job.\t", `explain job.j\[\"j`)
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
