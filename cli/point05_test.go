package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// rejectedCases returns the cases of package spec that the binary can run: those whose options are flags or the
// environment.
func rejectedCases(t *testing.T) map[string]*txtar.Archive {
	t.Helper()
	files, err := filepath.Glob("../spec/testdata/rejected/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]*txtar.Archive{}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(ar.Files, func(f txtar.File) bool {
			return f.Name == "options" && regexp.MustCompile(`(?m)^(now|version|open|file$|var oops$)`).Match(f.Data)
		}) {
			cases[strings.TrimSuffix(filepath.Base(file), ".txtar")] = ar
		}
	}
	if len(cases) < 100 {
		t.Fatalf("only %d cases", len(cases))
	}
	return cases
}

// runValidate runs validate on a case. It returns the outcome and the diagnostics that are expected.
func runValidate(t *testing.T, ar *txtar.Archive, env []string, flags ...string) (got outcome, want string) {
	t.Helper()
	f := fixture{dir: t.TempDir()}
	args := append([]string{"validate"}, flags...)
	for _, file := range ar.Files {
		switch file.Name {
		case "diags.txt":
			want = string(file.Data)
			continue
		case "options":
			for line := range strings.Lines(string(file.Data)) {
				switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
				case "var":
					args = append(args, "--var", rest)
				case "file":
					args = append(args, "--var-file", rest)
				case "env":
					env = append(env, rest)
				}
			}
			continue
		}
		at := filepath.Join(f.dir, file.Name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, file.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := f.command("", args...)
	cmd.Env = append(append(cmd.Env, "MUSTER_ZK_AUTH=digest:a:b"), env...)
	return result(cmd), want
}

// TestPoint05EveryErrorShowsItsPlaceWithoutColour checks more than 200 diagnostics, in a pipe, and with NO_COLOR
// against FORCE_COLOR. A diagnostic about no line of source, such as a missing file, has no place. One about a password
// has a place but does not show the line.
func TestPoint05EveryErrorShowsItsPlaceWithoutColour(t *testing.T) {
	place := regexp.MustCompile(`(?m)^ *--> [^:\n]+:[1-9]\d*:[1-9]\d*(,|$)`)
	carets := regexp.MustCompile(`(?m)^ +\| .*\^`)
	// There is no muster block; a flag is malformed; a file cannot be read.
	noSource := []string{"M1307", "M1409", "M1410"}
	hidden, perhaps := []string{"M2002"}, []string{"M1604", "M1605"}
	shown := 0
	for name, ar := range rejectedCases(t) {
		t.Run(name, func(t *testing.T) {
			piped, want := runValidate(t, ar, nil)
			forced, _ := runValidate(t, ar, []string{"NO_COLOR=1", "FORCE_COLOR=1"})
			for _, got := range []outcome{piped, forced} {
				if d := cmp.Diff(want, got.stderr); d != "" || got.code != 1 || got.stdout != "" {
					t.Errorf("code %d, standard output %q, diagnostics (-want +got):\n%s", got.code, got.stdout, d)
				}
			}
			for _, d := range regexp.MustCompile(`\n\n(error|warning)\[`).Split("\n\n"+piped.stderr, -1)[1:] {
				shown++
				code := d[:5]
				if slices.Contains(noSource, code) {
					continue
				}
				secret := !carets.MatchString(d)
				if !place.MatchString(d) || secret != slices.Contains(hidden, code) && !slices.Contains(perhaps, code) {
					t.Errorf("no file:line:column, or no carets, or a secret is shown:\n%s", d)
				}
			}
		})
	}
	if shown < 200 {
		t.Errorf("only %d diagnostics", shown)
	}
}

// TestPoint07NoErrorIsRepeated: no diagnostic is printed twice. That all are printed in one run follows from the test
// above. That none is printed that only follows from another is in script point_07.
func TestPoint07NoErrorIsRepeated(t *testing.T) {
	for name, ar := range rejectedCases(t) {
		got, _ := runValidate(t, ar, nil)
		all := strings.Split(strings.TrimSpace(got.stderr), "\n\n")
		slices.Sort(all)
		if once := slices.Compact(slices.Clone(all)); len(once) < len(all) {
			t.Errorf("%s: %d of %d diagnostics are repeated\n%s", name, len(all)-len(once), len(all), got.stderr)
		}
	}
}

// TestPoint12DiagnosticsFitTheSchema checks the JSON of every case.
func TestPoint12DiagnosticsFitTheSchema(t *testing.T) {
	schema := schemaOf(t, "validate", true)
	for name, ar := range rejectedCases(t) {
		got, _ := runValidate(t, ar, nil, "--json")
		if err := schema.Validate(parseJSON(t, []byte(got.stdout))); err != nil || got.code != 1 || got.stderr != "" {
			t.Errorf("%s: code %d, %v\n%s%s", name, got.code, err, got.stdout, got.stderr)
		}
	}
	got := run(t, nil, "validate", "--json", newFixture(t, 1, "").dir)
	if got.code != 0 || schema.Validate(parseJSON(t, []byte(got.stdout))) != nil {
		t.Errorf("%+v", got)
	}
}
