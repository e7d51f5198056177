package cli_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/sim/rig"
	"muster/zkstate/zkconn"
)

func TestCompletionForEveryShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := run(t, nil, "completion", shell); got.code != 0 || !strings.Contains(got.stdout, "muster") {
			t.Errorf("%s: %+v", shell, got)
		}
	}
}

func TestCompletionOfFixedWords(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"global":  {[]string{"status", "--color", "a"}, "auto\nalways\nnever\n:4\n"},
		"command": {[]string{"plan", "--format", ""}, "human\njson\n:4\n"},
		"number":  {[]string{"dev", "--servers", ""}, "1\n3\n:4\n"},
		"kinds_of_drift": {[]string{"drift", "--fail-on", ""},
			"missing\nstale\ndamaged\nchanged\npending\norphan\ndegraded\nfailing\nforeign\nunmanaged\n:36\n"},
		"more_kinds":   {[]string{"drift", "--fail-on", "missing,stale,m"}, ":36\n"},
		"another_kind": {[]string{"drift", "--fail-on", "missing,s"}, "missing,stale\n:36\n"},
		"kinds_of_reports": {[]string{"plan", "--report", ""},
			"github=\nhtml=\njson=\njunit=\nmarkdown=\nprometheus=\n:6\n"},
		"a_report":         {[]string{"apply", "--report", "m"}, "markdown=\n:6\n"},
		"file_of_a_report": {[]string{"drift", "--report", "markdown=x"}, ":0\n"},
		"schema":           {[]string{"schema", ""}, "apply\ndrift\nevent\nhistory\nplan\nvalidate\n:4\n"},
		"start":            {[]string{"worker", "--start", ""}, "joined\nall\nbarrier\n:4\n"},
		"rack":             {[]string{"worker", "--rack", ""}, ":4\n"},
		"port":             {[]string{"worker", "--port", "m"}, ":4\n"},
		"ready":            {[]string{"member", "--ready", ""}, "joined\nexplicit\n:4\n"},
		"on_change":        {[]string{"follow", "--on-change", ""}, "restart\nhup\n:4\n"},
		"states":           {[]string{"explain", "stal"}, "stale\n:4\n"},
		"duties":           {[]string{"member", "--duties", ""}, ":16\n"},
		"configuration":    {[]string{"plan", ""}, "hcl\nhcl.json\n:8\n"},
		"one_directory":    {[]string{"drift", "prod", ""}, ":4\n"},
		"plan_file":        {[]string{"apply", ""}, ":0\n"},
		"code": {[]string{"explain", "--servers", "127.0.0.1:1", "M1002"},
			"M1002\tthe directory holds no *.hcl or *.hcl.json file\n:4\n"},
		"state": {[]string{"state", ""}, "get\tWrite a saved value to standard output\n" +
			"list\tList the saved keys of a duty\nput\tInside a duty's command: save a value\n" +
			"rm\tInside a duty's command: remove a key\n:4\n"},
		"state_file": {[]string{"state", "put", "key", ""}, ":0\n"},
		"op":         {[]string{"op", "l"}, "list\tList the open operations of a duty\n:4\n"},
		"one_job":    {[]string{"explain", "a", ""}, ":4\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, nil, append([]string{"__complete"}, c.args...)...)
			if d := cmp.Diff(c.want, got.stdout); d != "" || got.code != 0 {
				t.Errorf("code %d, completions (-want +got):\n%s", got.code, d)
			}
		})
	}
}

// completions returns what the binary offers for the last of args.
func (f fixture) completions(servers string, args ...string) string {
	got := result(f.command(servers, append([]string{"__complete"}, args...)...))
	words, _, _ := strings.Cut(got.stdout, ":")
	return strings.TrimSpace(strings.ReplaceAll(words, "\n", " "))
}

// TestCompletionOfJobs: declared jobs and those in ZooKeeper are offered by address, name and path, for every argument
// and flag that takes a job.
func TestCompletionOfJobs(t *testing.T) {
	f := newFixture(t, 2, "job \"extra\" {\n  root = \"/elsewhere\"\n  workers = 1\n}\n")
	other := fixture{t.TempDir(), f.root}
	other.write(t, 0, `job "theirs" {
  root    = "`+f.root+`"
  workers = 1
}
`)
	text := strings.Replace(read(t, filepath.Join(other.dir, "main.hcl")), `"tests"`, `"others"`, 1)
	write(t, filepath.Join(other.dir, "main.hcl"), text)
	other.mustRun(t, "apply", "--yes")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"explain", ""}, `job.extra job.j["j0"] job.j["j1"] job.theirs`},
		{[]string{"explain", "job.t"}, "job.theirs"},
		{[]string{"status", "th"}, "theirs"},
		{[]string{"terminate", "/"}, "/elsewhere/extra " + f.root + "/j0 " + f.root + "/j1 " + f.root + "/theirs"},
		{[]string{"terminate", "j", "--stack", ""}, "others tests"},
		{[]string{"terminate", "--root", f.root, ""}, `job.j["j0"] job.j["j1"] job.theirs`},
		{[]string{"export", "--stack", "o"}, "others"},
		{[]string{"history", "--stack", "o"}, "others"},
		{[]string{"serve", "--stack", ""}, "others tests"},
		{[]string{"serve", "--root", "/e"}, "/elsewhere"},
		{[]string{"status", "--root", "/e"}, "/elsewhere"},
		{[]string{"plan", "--only", "job.j"}, `job.j["j0"] job.j["j1"]`},
		{[]string{"plan", f.dir, "--skip", "j"}, `j0 j1 job.extra job.j["j0"] job.j["j1"] job.theirs`},
		{[]string{"apply", "--skip", "the"}, "theirs"},
		{[]string{"worker", "--root", f.root, "--job", ""}, "theirs"},
		{[]string{"worker", "--file", f.dir, "--job", "j"}, "j0 j1"},
	} {
		// A busy server may not answer within the second that a completion waits.
		got, late := "", time.Now().Add(30*time.Second)
		for time.Now().Before(late) {
			if got = f.completions(servers.Connect(), c.args...); got == c.want {
				break
			}
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.args, got, c.want)
		}
	}
}

// TestCompletionLeavesOutShellSyntax: anybody may have made the names in ZooKeeper, and completion puts them on a
// command line.
func TestCompletionLeavesOutShellSyntax(t *testing.T) {
	f := newFixture(t, 1, "")
	f.mustApply(t)
	s := rig.Dial(t, 0, servers.Addrs()...)
	for _, name := range []string{"$(reboot)", "a b", "\u202eevil", "`x`", "x;y", "plain"} {
		path := f.root + "/" + name
		if _, err := s.Create(t.Context(), path, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	want := f.root + "/j0 " + f.root + "/plain"
	got, late := "", time.Now().Add(30*time.Second)
	for got != want && time.Now().Before(late) {
		got = f.completions(servers.Connect(), "explain", "/")
	}
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestCompletionIsQuickAndSilent without a server, with one that does not answer, and with a broken configuration.
func TestCompletionIsQuickAndSilent(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	f := newFixture(t, 1, "")
	broken := newFixture(t, 1, "job {")
	for name, c := range map[string]struct {
		fixture fixture
		servers string
		want    string
	}{
		"no_server":            {f, refusingAddr, `job.j["j0"]`},
		"mute_server":          {f, mute.Addr().String(), `job.j["j0"]`},
		"no_address":           {f, "a:b:c", `job.j["j0"]`},
		"broken_configuration": {broken, "127.0.0.1:1", ""},
		"no_configuration":     {fixture{t.TempDir(), ""}, "127.0.0.1:1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			best := time.Hour
			for range 10 { // the machine may be busy
				start := time.Now()
				got := result(c.fixture.command(c.servers, "__complete", "explain", "job."))
				best = min(best, time.Since(start))
				lines := strings.TrimSpace(c.want + "\n:4")
				silent := !strings.Contains(got.stderr, "muster:") && !strings.Contains(got.stderr, "error")
				if got.code != 0 || strings.TrimSpace(got.stdout) != lines || !silent {
					t.Fatalf("%+v", got)
				}
				if best < 10*time.Second {
					return
				}
			}
			t.Errorf("takes %s", best)
		})
	}
}
