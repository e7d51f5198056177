package needs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"muster/sim/needs"
)

// spy is a test that is told to end.
type spy struct {
	testing.TB
	said string
}

func (s *spy) Name() string { return "TestIt/part" }

func (s *spy) end(how, format string, args ...any) {
	s.said = how + ": " + fmt.Sprintf(format, args...)
	panic(s)
}
func (s *spy) Fatalf(format string, args ...any) { s.end("failed", format, args...) }
func (s *spy) Skipf(format string, args ...any)  { s.end("skipped", format, args...) }

// ended is what a test said that needs more than there is.
func ended(t *testing.T, f func(t testing.TB)) string {
	t.Helper()
	s := &spy{TB: t}
	func() {
		defer func() {
			if r := recover(); r != s {
				t.Errorf("it goes on: %v", r)
			}
		}()
		f(s)
	}()
	return s.said
}

func TestMissing(t *testing.T) {
	lacks := func(t testing.TB) { needs.Missing(t, "no %s\n", "moon") }
	record := filepath.Join(t.TempDir(), "missing")
	if err := os.WriteFile(record, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ record, all, want string }{
		{"", "", "failed: cannot run here: no moon"},
		{"", "1", "failed: cannot run here: no moon"},
		{record, "", "skipped: cannot run here: no moon"},
		{record, "1", "failed: cannot run here: no moon"},
	} {
		t.Setenv("MUSTER_TEST_MISSING", c.record)
		t.Setenv("MUSTER_TEST_ALL", c.all)
		if got := ended(t, lacks); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	got, err := os.ReadFile(record)
	if want := strings.Repeat("needs: TestIt/part: no moon\n", 2); err != nil || string(got) != want {
		t.Errorf("%v; the record is %q, want %q", err, got, want)
	}
}

func TestChromium(t *testing.T) {
	t.Setenv("MUSTER_TEST_MISSING", "")
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if runtime.GOOS == "linux" {
		want := "failed: cannot run here: no chromium (apt-get install chromium)"
		if got := ended(t, func(t testing.TB) { needs.Chromium(t) }); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	path := filepath.Join(dir, "chromium-browser")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := needs.Chromium(t); got != path {
		t.Errorf("it is at %q, want %q", got, path)
	}
}

func TestProgramAndUnshare(t *testing.T) {
	t.Setenv("MUSTER_TEST_MISSING", "")
	for want, f := range map[string]func(t testing.TB){
		"no nowhere (apt-get install moon)": func(t testing.TB) { needs.Program(t, "nowhere", "moon") },
		"no namespaces: ":                   func(t testing.TB) { needs.Unshare(t, []string{"--no-such-flag"}, "true") },
		"no /usr/share/java/x.jar (apt-get install moon)": func(t testing.TB) {
			needs.Javac(t, "moon", []string{"x"}, "X.java")
		},
	} {
		if got := ended(t, f); !strings.Contains(got, want) {
			t.Errorf("%s; want %q", got, want)
		}
	}
	if got := needs.Program(t, "sh", "dash"); !filepath.IsAbs(got) {
		t.Errorf("sh is at %q", got)
	}
}
