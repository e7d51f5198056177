package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

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

// TestManualPages: two formatters and a linter have nothing to say about any page, and a table stays a table.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for path, body := range manual(cli.Commands(), time.Unix(0, 0).UTC(), cli.Version) {
		names = append(names, filepath.Base(path))
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), body, 0o644); err != nil {
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
	if first := show("man", "man-db", "-l", "muster.1"); !strings.Contains(first, "1970-01-01") ||
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
	out, err := exec.Command("go", "list", "-deps", "../..").Output()
	if err != nil || !strings.Contains(string(out), "muster/cli\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "x509roots") || strings.Contains(string(out), "muster/cli/release") {
		t.Errorf("muster links %s", out)
	}
}
