package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"muster/cli"
	"muster/sim/needs"
)

// TestReleaseVersion: a tag is what cli.Version says, and what has no tag says what it is.
func TestReleaseVersion(t *testing.T) {
	dev := cli.Version + "-dev"
	of := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "2264b88f00b1aaaa"}, {Key: "vcs.time", Value: "2026-11-22T23:06:17Z"},
	}
	dirty := append(of[:2:2], debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	for _, c := range []struct {
		main     string
		settings []debug.BuildSetting
		want     string // empty: it is refused
	}{
		{"v" + cli.Version, of, cli.Version},
		{"(devel)", nil, dev},
		{"v0.0.0-20261122230617-2264b88f00b1", of, dev + ".20261122230617.2264b88f00b1"},
		{"v0.0.0-20261122230617-2264b88f00b1+dirty", dirty, dev + ".20261122230617.2264b88f00b1.modified"},
		{"v99.0.0", of, ""},
		{"v99.0.1-0.20261122230617-2264b88f00b1", of, ""}, // after v99.0.0
		{"v" + cli.Version + "+dirty", dirty, ""},
	} {
		got, err := releaseVersion(&debug.BuildInfo{Main: debug.Module{Version: c.main}, Settings: c.settings})
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v; want %q", c.main, got, err, c.want)
		}
	}
}

// TestSourceWithoutGit: a tree that was unpacked somewhere has the same documentation, and a time that does not vary.
func TestSourceWithoutGit(t *testing.T) {
	s, err := readSource(t.Context(), "..")
	if err != nil || len(s.shared) < 50 {
		t.Fatalf("%v, %d files", err, len(s.shared))
	}
	dir := filepath.Join(t.TempDir(), "src")
	for _, f := range append(s.shared, file{name: "go.mod"}) {
		path := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.body, f.mode()); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	got, err := readSource(t.Context(), dir)
	if err != nil || len(got.shared) != len(s.shared) || !got.time.Equal(noTime) || got.git {
		t.Errorf("%v: %d files of %s, git: %v; want %d", err, len(got.shared), got.time, got.git, len(s.shared))
	}
	if err := os.WriteFile(filepath.Join(dir, ".git"), []byte("gitdir: /nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSource(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "here is .git") {
		t.Errorf("git refuses: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, ".git")); err != nil {
		t.Fatal(err)
	}
	runGit(t, filepath.Dir(dir), "init", "-q") // around it
	if got, err := readSource(t.Context(), dir); err != nil || got.git {
		t.Errorf("in another's repository: %v, git: %v", err, got.git)
	}
	for i, f := range got.shared {
		if f.name != s.shared[i].name || f.executable != s.shared[i].executable {
			t.Errorf("%s %v, want %s %v", f.name, f.executable, s.shared[i].name, s.shared[i].executable)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1795000000")
	if got, err := readSource(t.Context(), dir); err != nil || got.time.Unix() != 1795000000 {
		t.Errorf("SOURCE_DATE_EPOCH: %v, %v", got.time, err)
	}
}

// TestManualPages: two formatters and a linter have nothing to say about any page, and a table stays a table.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	pages := manual(cli.Commands(), noTime, cli.Version)
	var names []string
	for _, p := range pages {
		names = append(names, p.name)
		if err := os.WriteFile(filepath.Join(dir, p.name), p.body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	show := func(program, packages string, args ...string) string {
		t.Helper()
		cmd := exec.Command(needs.Program(t, program, packages), args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80")
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil || said.Len() > 0 {
			t.Errorf("%s: %v\n%s%s", program, err, said.String(), out)
		}
		return string(out)
	}
	if said := show("mandoc", "mandoc", append([]string{"-T", "lint", "-W", "warning"}, names...)...); said != "" {
		t.Error(said)
	}
	for _, name := range names {
		show("groff", "groff-base", "-man", "-ww", "-K", "utf8", "-T", "utf8", name)
	}
	wait := show("man", "man-db", "-l", "muster-wait.1")
	for _, line := range []string{
		"\n  ready      nobody has joined the job", "--timeout DURATION\n", "\n       muster wait primes --for empty\n",
	} {
		if !strings.Contains(strings.ReplaceAll(wait, "\n            ", "\n"), line) {
			t.Errorf("man muster-wait has no %q:\n%s", line, wait)
		}
	}
	if first := show("man", "man-db", "-l", "muster.1"); !strings.Contains(first, "1980-01-01") ||
		!strings.Contains(first, "muster-plan(1)") || !strings.Contains(first, "EXIT STATUS") {
		t.Error(first)
	}
}

// TestCertificates: the roots in the image can be read, and are roots.
func TestCertificates(t *testing.T) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificates()) {
		t.Fatal("no certificate can be read")
	}
	if n := strings.Count(string(certificates()), "BEGIN CERTIFICATE"); n < 100 {
		t.Errorf("only %d certificates", n)
	}
}

// TestTheProductHasNoRootsOfTrust: what the image needs besides the binary is not in the binary.
func TestTheProductHasNoRootsOfTrust(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "..").Output()
	if err != nil || !strings.Contains(string(out), "muster/cli\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "x509roots") || strings.Contains(string(out), "muster/release") {
		t.Errorf("muster links %s", out)
	}
}

// TestDockerfile: what release does not know it refuses.
func TestDockerfile(t *testing.T) {
	for text, want := range map[string]string{
		"FROM scratch\nCOPY . /\nRUN true\n": `"RUN true\n"`, "ENTRYPOINT muster\n": "ENTRYPOINT",
		"FROM debian\n": "FROM debian",
	} {
		if _, err := readDockerfile(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
