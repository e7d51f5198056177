package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"muster/cli"
	"muster/docs"
	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/spec"
)

// outcome is the result of one run.
type outcome struct {
	code           int
	stdout, stderr string
}

// run calls cli.Run as main does, with only env in the environment.
func run(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	return runIn(t.Context(), strings.NewReader(""), env, args...)
}

func runIn(ctx context.Context, stdin *strings.Reader, env []string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := cli.Run(ctx, args, env, stdin, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func TestUsageErrorsNameTheNextCommand(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		stderr string
	}{
		"mistyped_command": {[]string{"dve"},
			"muster: unknown command \"dve\": did you mean \"dev\"?\n  next: muster dev\n"},
		"mistyped_command_of_two": {[]string{"staus"},
			"muster: unknown command \"staus\": did you mean \"status\"?\n  next: muster status\n"},
		"begun_command": {[]string{"complet"},
			"muster: unknown command \"complet\": did you mean \"completion\"?\n  next: muster completion\n"},
		"flag_of_other_commands": {[]string{"plan", "-f", "."},
			"muster: unknown flag -f: the directory or the file is an argument: muster plan DIR\n  next: muster plan --help\n"},
		"mistyped_command_flags": {[]string{"-C", "x", "verzion", "--json"},
			"muster: unknown command \"verzion\": did you mean \"version\"?\n  next: muster version\n"},
		"destroy_of_other_tools": {[]string{"destroy", "--auto"},
			"muster: unknown command \"destroy\"\n" +
				"  next: remove the job's block and: muster apply; or: muster terminate JOB\n"},
		"command_of_a_noun": {[]string{"batch", "primes/b1"},
			"muster: unknown command \"batch\"\n  next: muster queue batches QUEUE/BATCH\n"},
		"unknown_diagnostic": {[]string{"explain", "M9999"},
			"muster: no diagnostic has the code M9999\n" +
				"  next: docs/diagnostics.md lists them, and muster validate names those of a configuration\n"},
		"terminate_unasked": {[]string{"terminate", "hello", "--root", "/jobs/prod"},
			"muster: there is no terminal to ask at, and --yes was not given\n" +
				"  next: muster terminate --root /jobs/prod hello --yes\n"},
		"unknown_command": {[]string{"frobnicate"}, "muster: unknown command \"frobnicate\"\n  next: muster --help\n"},
		"mistyped_flag": {[]string{"version", "--jsno"},
			"muster: unknown flag --jsno: did you mean --json?\n  next: muster version --help\n"},
		"mistyped_global_flag": {[]string{"version", "--colour", "never"},
			"muster: unknown flag --colour: did you mean --color?\n  next: muster version --help\n"},
		"blank_actor": {[]string{"apply", "--actor", " \t"},
			"muster: the value of --actor is empty\n" +
				"  next: is a variable of the shell not set? muster apply --help\n"},
		"no_stack": {[]string{"serve", "--stack", ""},
			"muster: the value of --stack is empty\n" +
				"  next: is a variable of the shell not set? muster serve --help\n"},
		"wrong_stack": {[]string{"serve", "--stack", "a/b"},
			"muster: --stack \"a/b\": a stack name may hold letters, digits, '.', '_' and '-', not '/'\n" +
				"  next: muster history --all shows the stacks\n"},
		"wrong_stack_of_history": {[]string{"history", "--stack", " x"},
			"muster: --stack \" x\": a stack name starts with a letter or a digit, not ' '\n" +
				"  next: muster history --all shows the stacks\n"},
		"no_host": {[]string{"serve", "--allow-host", "a,"},
			"muster: the value of --allow-host is empty\n" +
				"  next: is a variable of the shell not set? muster serve --help\n"},
		"wrong_host": {[]string{"serve", "--allow-host", "a b"},
			"muster: --allow-host \"a b\" is not the name of a host\n  next: --allow-host muster.example\n"},
		"address_for_a_host": {[]string{"serve", "--allow-host", "http://X:80/"},
			"muster: --allow-host \"http://X:80/\" is not the name of a host\n  next: --allow-host x\n"},
		"port_of_a_host": {[]string{"serve", "--allow-host", "x:8090"},
			"muster: --allow-host \"x:8090\" is not the name of a host\n  next: --allow-host x\n"},
		"root_without_slash": {[]string{"serve", "--root", "jobs/"},
			"muster: root: a root is an absolute znode path: write \"/jobs/\"\n  next: --root /jobs\n"},
		"root_of_status": {[]string{"status", "--root", "old jobs"},
			"muster: root: a root is an absolute znode path: write \"/old jobs\"\n  next: --root '/old jobs'\n"},
		"root_that_nobody_can_mean": {[]string{"status", "--root", "/"},
			"muster: root: \"/\" cannot be a root: choose a folder such as \"/muster\"\n  next: --root /muster\n"},
		"unknown_flag": {[]string{"version", "--frobnicate"},
			"muster: unknown flag --frobnicate\n  next: muster version --help\n"},
		"unknown_short_flag": {[]string{"version", "-x"},
			"muster: unknown flag -x\n  next: muster version --help\n"},
		"too_many_arguments": {[]string{"version", "1"},
			"muster: muster version takes no argument, and \"1\" is one\n  next: muster version --help\n"},
		"too_few_arguments": {[]string{"completion"},
			"muster: muster completion needs the name of a shell: bash, zsh, fish or powershell\n" +
				"  next: muster completion --help\n"},
		"unknown_shell": {[]string{"completion", "tcsh"},
			"muster: \"tcsh\" is not a shell that muster knows: bash, zsh, fish or powershell\n" +
				"  next: muster completion --help\n"},
		"bad_color": {[]string{"version", "--color", "blue"},
			"muster: --color \"blue\" is none of [\"auto\" \"always\" \"never\"]\n  next: --color auto\n"},
		"bad_log_level": {[]string{"version", "--log-level", "loud"},
			"muster: log level \"loud\" is not known\n  next: --log-level off, error, warn, info or debug\n"},
		"bad_log_format": {[]string{"version", "--log-format", "xml"},
			"muster: --log-format \"xml\" is none of [\"text\" \"json\"]\n  next: --log-format text\n"},
		"bad_number_of_servers": {[]string{"dev", "--servers", "2"},
			"muster: an ensemble has 1 or 3 servers here, not 2\n  next: muster dev --servers 3\n"},
		"bad_port": {[]string{"dev", "--port", "70000"},
			"muster: 70000 is not a port\n  next: muster dev --port 2181\n"},
		"not_a_number": {[]string{"plan", "--max-delete", "x"},
			"muster: --max-delete \"x\": write a whole number\n  next: muster plan --help\n"},
		"not_a_duration": {[]string{"apply", "--lock-timeout", "5"},
			"muster: --lock-timeout \"5\": write a number and a unit, such as 30s or 2m\n" +
				"  next: muster apply --help\n"},
		"not_a_bool": {[]string{"plan", "--all=maybe"},
			"muster: --all \"maybe\": write true or false\n  next: muster plan --help\n"},
		"no_value": {[]string{"plan", "--out"},
			"muster: --out needs a value\n  next: muster plan --help\n"},
		"no_assignment": {[]string{"plan", "--var", "x"},
			"muster: --var \"x\": write NAME=VALUE\n  next: muster plan --help\n"},
		"not_a_server": {[]string{"status", "--root", "/x", "--servers", "a:b:c"},
			"muster: zookeeper server 1 of 1: must be host:port\n" +
				"  next: write host:port,host:port in --servers or MUSTER_SERVERS\n"},
		"empty_argument": {[]string{"apply", "--yes", ""},
			"muster: an argument is empty\n  next: is a variable of the shell not set? muster apply --help\n"},
		"empty_command": {[]string{""},
			"muster: an argument is empty\n  next: is a variable of the shell not set? muster --help\n"},
		"empty_pattern": {[]string{"status", ""},
			"muster: an argument is empty\n  next: is a variable of the shell not set? muster status --help\n"},
		"empty_out": {[]string{"plan", "--out", ""},
			"muster: the value of --out is empty\n  next: is a variable of the shell not set? muster plan --help\n"},
		"empty_only": {[]string{"plan", "--only", "a", "--only="},
			"muster: the value of --only is empty\n  next: is a variable of the shell not set? muster plan --help\n"},
		"empty_var_file": {[]string{"plan", "--var-file", ""},
			"muster: --var-file \"\": write the name of a file\n  next: muster plan --help\n"},
		"empty_chdir": {[]string{"apply", "-C", ""},
			"muster: the value of --chdir is empty\n  next: is a variable of the shell not set? muster apply --help\n"},
		"empty_servers": {[]string{"apply", "--servers", ""},
			"muster: the value of --servers is empty\n" +
				"  next: is a variable of the shell not set? muster apply --help\n"},
		"empty_server": {[]string{"plan", "--servers", ","},
			"muster: the value of --servers is empty\n" +
				"  next: is a variable of the shell not set? muster plan --help\n"},
		"negative_max_delete": {[]string{"plan", "--max-delete", "-1"},
			"muster: --max-delete -1 is negative\n  next: muster plan --max-delete 10\n"},
		"help_of_nothing": {[]string{"help", "dve"},
			"muster: unknown command \"dve\": did you mean \"dev\"?\n  next: muster dev\n"},
	} {
		t.Run(name, func(t *testing.T) {
			want := outcome{code: 64, stderr: c.stderr}
			if d := cmp.Diff(want, run(t, nil, c.args...), cmp.AllowUnexported(outcome{})); d != "" {
				t.Errorf("outcome (-want +got):\n%s", d)
			}
		})
	}
}

// TestWordsOfOtherTools: each is no command here, and what it names is one. explain says the same, without a server.
func TestWordsOfOtherTools(t *testing.T) {
	command := regexp.MustCompile(`muster ((?:group |queue )?[a-z]+)`)
	for _, word := range strings.Fields("stop kill destroy import scale elect lock leader enqueue dashboard ui moved " +
		"removed module start logs ps ls list batch run suspend unpause self drop retry") {
		got := run(t, nil, word)
		_, next, _ := strings.Cut(got.stderr, "\n  next: ")
		if next = strings.TrimSpace(next); got.code != 64 || next == "" || strings.Contains(got.stderr, "did you mean") {
			t.Errorf("%s: %+v", word, got)
		}
		for _, m := range command.FindAllStringSubmatch(next, -1) {
			found, rest, err := cli.Commands().Find(strings.Fields(m[1]))
			if err != nil || len(rest) > 0 {
				t.Errorf("%s: there is no command %s: %v %v", word, m[1], found.Name(), rest)
			}
		}
		if explained := run(t, []string{"MUSTER_SERVERS=127.0.0.1:1"}, "explain", word); explained.code != 0 ||
			!strings.Contains(explained.stdout, next) && docs.Sections(docs.Glossary)[word] == "" {
			t.Errorf("explain %s: %+v", word, explained)
		}
	}
}

// TestGlossary: its words are sorted, each says something, none is also a state, and every kind is there. explain needs
// no server, and no file.
func TestGlossary(t *testing.T) {
	var words []string
	for _, line := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(docs.Glossary, -1) {
		words = append(words, line[1])
	}
	states := docs.Sections(docs.States)
	for _, word := range words {
		got := run(t, []string{"MUSTER_SERVERS=127.0.0.1:1"}, "explain", word)
		if _, text, _ := strings.Cut(got.stdout, "\n\n"); got.code != 0 || len(text) < 20 || states[word] != "" {
			t.Errorf("%s: %+v", word, got)
		}
	}
	if !slices.IsSorted(words) || len(words) < 30 {
		t.Errorf("not sorted, or few: %q", words)
	}
	for _, kind := range []resource.Kind{job.Kind(), group.Kind(), queue.Kind()} {
		if !slices.Contains(words, kind.Name) || !slices.Contains(words, kind.Member) && kind.Name != "queue" {
			t.Errorf("no word for the kind %s or its %s", kind.Name, kind.Member)
		}
	}
}

func TestNoCommandShowsHelp(t *testing.T) {
	got := run(t, nil)
	if got.code != 64 || !strings.Contains(got.stderr, "\nDeclare and change:\n  apply ") || got.stdout != "" {
		t.Errorf("got %+v", got)
	}
}

func TestHelpFitsATerminalAndNamesEveryFlag(t *testing.T) {
	global := run(t, nil, "help", "flags").stdout + "--help --version "
	for _, args := range append([][]string{{"--help"}, {"help", "flags"}, {"help", "inside"}}, helpOfEveryCommand(t)...) {
		got := run(t, nil, args...)
		if got.code != 0 || got.stderr != "" {
			t.Errorf("%v: %+v", args, got)
		}
		for line := range strings.Lines(got.stdout) {
			if len([]rune(strings.TrimSuffix(line, "\n"))) > 80 {
				t.Errorf("%v: wider than 80 columns: %s", args, line)
			}
		}
		completed := run(t, nil, "__complete", args[len(args)-1], "--").stdout
		if strings.Contains(completed, "`") {
			t.Errorf("%v: a shell shows quotes:\n%s", args, completed)
		}
		for _, flag := range regexp.MustCompile(`(?m)^--[a-z-]+`).FindAllString(completed, -1) {
			if !strings.Contains(got.stdout, flag+" ") && !strings.Contains(global, flag+" ") {
				t.Errorf("%v does not show %s", args, flag)
			}
		}
		if isGlobal := args[len(args)-1] == "flags"; isGlobal != strings.Contains(got.stdout, "--tls-cert") {
			t.Errorf("%v: the flags of all commands are only in help flags:\n%s", args, got.stdout)
		}
		if n := strings.Count(got.stdout, "\n"); args[0] == "--help" && n > 43 {
			t.Errorf("the first screen has %d lines", n)
		}
	}
}

// TestPlaceholdersOfFlags: a value is called by what it is, in capitals, and not by its type in Go.
func TestPlaceholdersOfFlags(t *testing.T) {
	root := cli.Commands()
	for _, cmd := range append(root.Commands(), root) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); name != strings.ToUpper(name) {
				t.Errorf("%s: --%s %s", cmd.CommandPath(), f.Name, name)
			}
		})
	}
}

// helpOfEveryCommand finds the commands in the help.
func helpOfEveryCommand(t *testing.T) [][]string {
	list := run(t, nil, "--help").stdout + run(t, nil, "help", "inside").stdout
	var all [][]string
	for _, line := range regexp.MustCompile(`(?m)^  ([a-z]+) {2,}[A-Z]`).FindAllStringSubmatch(list, -1) {
		all = append(all, []string{"help", line[1]})
	}
	if len(all) < 30 {
		t.Fatalf("commands in the help: %v", all)
	}
	return all
}

// TestOneVersion: whatever muster writes names the same version.
func TestOneVersion(t *testing.T) {
	f := newFixture(t, 1, "")
	file := filepath.Join(f.dir, "plan.json")
	says := regexp.MustCompile(`(version|muster|version":) "?` + cli.Version + "-dev")
	for _, args := range [][]string{
		{"--version"}, {"version"}, {"version", "--json"}, {"plan", f.dir, "--json"}, {"plan", f.dir, "--out", file},
		{"show", file}, {"show", file, "--json"},
	} {
		got := run(t, []string{"MUSTER_SERVERS=" + servers.Connect()}, args...)
		if slices.Contains(args, "--out") {
			got.stdout = read(t, file)
		}
		if got.code != 0 || !says.MatchString(got.stdout) {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// TestVersionOfATag: only what was built from the tagged commit, without changes, is that release.
func TestVersionOfATag(t *testing.T) {
	dev := cli.Version + "-dev"
	for main, want := range map[string]string{
		"v" + cli.Version: cli.Version, "v" + cli.Version + "+dirty": dev, "v99.0.0": dev, "(devel)": dev, "": dev,
		"v0.0.0-20261122230617-2264b88f00b1": dev,
	} {
		if got := cli.VersionOf(&debug.BuildInfo{Main: debug.Module{Version: main}}); got != want {
			t.Errorf("%q: %s, want %s", main, got, want)
		}
	}
}

// TestMakeBuildKnowsItsRevision: a binary made by make has the revision, if there is one.
func TestMakeBuildKnowsItsRevision(t *testing.T) {
	line, err := exec.Command("make", "-n", "-C", "..", "build").Output()
	if err != nil {
		t.Fatalf("make -n build: %v", err)
	}
	revision, gitErr := exec.Command("git", "rev-parse", "HEAD").Output()
	if want := fmt.Sprintf("-buildvcs=%v ", gitErr == nil); !strings.Contains(string(line), want) {
		t.Errorf("make build is %s, want %s in it", line, want)
	}
	dirs, _ := exec.Command("git", "rev-parse", "--absolute-git-dir", "--git-common-dir").Output()
	if own, common, _ := strings.Cut(strings.TrimSpace(string(dirs)), "\n"); own != common && filepath.IsAbs(common) {
		revision = nil // the go command finds no revision in a linked worktree (golang.org/issue/58218)
	}
	out, err := exec.Command(filepath.Join(bin, "muster"), "version", "--json").Output()
	var got struct{ Revision string }
	if err := errors.Join(err, json.Unmarshal(out, &got)); err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(string(revision)); got.Revision != want {
		t.Errorf("revision %q, want %q", got.Revision, want)
	}
}

// TestPlanIsRefusedByItsDate: apply checks the date before it connects. A plan from the future would pass every
// --max-age. A plan without an ensemble's id is refused, too, unless it names the servers that it was made from.
func TestPlanIsRefusedByItsDate(t *testing.T) {
	t.Parallel()
	here := []string{refusingAddr}
	for name, c := range map[string]struct {
		age     time.Duration
		servers []string
		code    int
		stderr  string
	}{
		"old":        {25 * time.Hour, here, 5, "the plan is 25h"},
		"future":     {-6 * time.Minute, here, 5, "in the future: the clock here or there is wrong; nothing was written"},
		"far_future": {-290 * 365 * 24 * time.Hour, here, 5, "in the future"},
		"clock_skew": {-4 * time.Minute, here, 8, "connection refused"},
		"no_servers": {0, nil, 5, "it does not say which servers it was made from; nothing was written"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := planfile.Encode([]resource.Kind{job.Kind()}, planfile.Saved{
				Created: time.Now().Add(-c.age), Servers: c.servers, Plan: plan.Plan{ID: "p1", Stack: "tests"},
			})
			if err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(t.TempDir(), "plan.json")
			if err := os.WriteFile(at, file, 0o644); err != nil {
				t.Fatal(err)
			}
			got := run(t, []string{"MUSTER_SERVERS=" + refusingAddr}, "apply", at)
			if got.code != c.code || !strings.Contains(got.stderr, c.stderr) {
				t.Errorf("got %+v, want code %d and %q", got, c.code, c.stderr)
			}
		})
	}
}

// TestFirstConfigurationIsValidWithWhatItSuggests: each block that init writes as a comment can be used as it stands.
func TestFirstConfigurationIsValidWithWhatItSuggests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "first.hcl")
	expect(t, run(t, nil, "init", "-q", file), 0)
	comment := regexp.MustCompile(`^( *)# ?`)
	blocks, inside := 0, false
	lines := strings.Split(read(t, file), "\n")
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "# ") && strings.HasSuffix(line, " {") {
			blocks++
			inside = true
		}
		if inside {
			lines[i] = comment.ReplaceAllString(line, "$1")
			inside = strings.TrimSpace(line) != "# }"
		}
	}
	whole := strings.Join(lines, "\n")
	write(t, file, whole)
	cfg, diags := spec.Load(file, spec.Options{HasCredentials: true})
	if len(diags) > 0 || len(cfg.ZooKeeper.Servers) != 3 || blocks != 3 {
		t.Fatalf("%d blocks, %v\n%s", blocks, diags, whole)
	}
	if out, _ := spec.Format([]byte(whole), file); string(out) != whole {
		t.Errorf("with its comments as blocks it is not formatted:\n%s", out)
	}
}

// TestReaderGone runs each command in a pipe that its reader has closed. muster finishes, writes its reports and prints
// nothing, and a strict shell gets code 1.
func TestReaderGone(t *testing.T) {
	for name, args := range reportingCommands {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 2, "")
			f.mustApply(t)
			f.write(t, 5, "")
			script := `set -euo pipefail
mkfifo ready
{ read -r _ < ready; exec muster "$@"; } | { exec 0<&-; echo > ready; }`
			cmd := f.command(servers.Connect(), append(args, f.reportFlags(t)...)...)
			cmd.Path, cmd.Args = lookPath(t, "bash"), append([]string{"bash", "-c", script, "bash"}, cmd.Args[1:]...)
			if got := result(cmd); got != (outcome{code: 1}) {
				t.Errorf("%+v", got)
			}
			f.checkReports(t, 1, "standard output: write ")
			if name == "apply" {
				expect(t, result(f.command(servers.Connect(), "plan", "--detailed-exitcode")), 0, "5 jobs match")
			}
		})
	}
}

// TestReaderOfTheFirstLine: head gets a complete line, and the plan file is complete.
func TestReaderOfTheFirstLine(t *testing.T) {
	f := newFixture(t, 1000, "")
	cmd := f.command(servers.Connect())
	const script = "set -euo pipefail; muster plan --all --out p.json | head -1"
	cmd.Path, cmd.Args = lookPath(t, "bash"), []string{"bash", "-c", script}
	got := result(cmd)
	if got.code != 1 || !strings.HasPrefix(got.stdout, "muster plan · stack tests · ") || got.stderr != "" {
		t.Errorf("%+v", got)
	}
	expect(t, result(f.command(servers.Connect(), "apply", "p.json")), 0, "Applied 1000 of 1000")
}

// TestReportToAClosedPipe: the other reports say that standard output could not be written. A pipe with a name is not
// standard output.
func TestReportToAClosedPipe(t *testing.T) {
	f := newFixture(t, 1, "")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := f.command(servers.Connect(), "plan",
		"--report", "github=first", "--report", "markdown=-", "--report", "prometheus=last")
	cmd.Stdout = w
	_ = cmd.Run() // the code tells
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("code %d, want 1", code)
	}
	if first := read(t, filepath.Join(f.dir, "first")); !strings.Contains(first, "standard output: ") {
		t.Errorf("the report before it says\n%s", first)
	}
	if last := read(t, filepath.Join(f.dir, "last")); !strings.Contains(last, "} 1\n") {
		t.Errorf("the report after it says\n%s", last)
	}
	cmd = f.command(servers.Connect(), "plan", "--report", "markdown=/dev/fd/3")
	cmd.ExtraFiles = []*os.File{w}
	expect(t, result(cmd), 1, "muster: the markdown report was not written: ", "broken pipe")
}

func lookPath(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
