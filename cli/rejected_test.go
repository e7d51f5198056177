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
	"golang.org/x/sync/errgroup"
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

// TestEveryErrorShowsItsPlaceWithoutColour checks more than 200 diagnostics, in a pipe, and with NO_COLOR against
// FORCE_COLOR, and that none is printed twice. A diagnostic about no line of source, such as a missing file, has no
// place. One about a password has a place but does not show the line. As JSON all fit the schema. That no diagnostic is
// printed that only follows from another is in script all_errors_once.
func TestEveryErrorShowsItsPlaceWithoutColour(t *testing.T) {
	place := regexp.MustCompile(`(?m)^ *--> [^:\n]+:[1-9]\d*:[1-9]\d*(,|$)`)
	carets := regexp.MustCompile(`(?m)^ +\| .*\^`)
	// There is no muster block; a flag is malformed; a file cannot be read.
	noSource := []string{"M1307", "M1409", "M1410"}
	hidden, perhaps := []string{"M2002"}, []string{"M1604", "M1605"}
	shown, schema := 0, schemaOf(t, "validate", true)
	for name, ar := range rejectedCases(t) {
		t.Run(name, func(t *testing.T) {
			piped, want := runValidate(t, ar, nil)
			forced, _ := runValidate(t, ar, []string{"NO_COLOR=1", "FORCE_COLOR=1"})
			for _, got := range []outcome{piped, forced} {
				if d := cmp.Diff(want, got.stderr); d != "" || got.code != 1 || got.stdout != "" {
					t.Errorf("code %d, standard output %q, diagnostics (-want +got):\n%s", got.code, got.stdout, d)
				}
			}
			all := strings.Split(strings.TrimSpace(piped.stderr), "\n\n")
			slices.Sort(all)
			if once := slices.Compact(slices.Clone(all)); len(once) < len(all) {
				t.Errorf("%d of %d diagnostics are repeated\n%s", len(all)-len(once), len(all), piped.stderr)
			}
			json, _ := runValidate(t, ar, nil, "--json")
			err := schema.Validate(parseJSON(t, []byte(json.stdout)))
			if err != nil || json.code != 1 || json.stderr != "" {
				t.Errorf("code %d, %v\n%s%s", json.code, err, json.stdout, json.stderr)
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
	got := run(t, nil, "validate", "--json", newFixture(t, 1, "").dir)
	if got.code != 0 || schema.Validate(parseJSON(t, []byte(got.stdout))) != nil {
		t.Errorf("%+v", got)
	}
	if shown < 200 {
		t.Errorf("only %d diagnostics", shown)
	}
}

// correctConfig has every kind of name that can be mistyped. The test mistypes the names between ‹ and ›, one at a
// time.
const correctConfig = `‹muster› {
  ‹stack›            = "tests"
  ‹required_version› = ">= 0.1"
  ‹roots›            = ["/more"]
  ‹take_over›        = ["old"]
  ‹home›             = "/home"
}
‹zookeeper› {
  ‹servers›         = var.‹ensemble›
  ‹session_timeout› = "10s"
  ‹acl›             = ["auth::cdrwa"]
  ‹tls› {
    ‹ca_file›   = "ca.pem"
    ‹cert_file› = "me.pem"
    ‹key_file›  = "me.key"
  }
}
‹variable› "ensemble" {
  ‹type›        = list(‹string›)
  ‹default›     = ["127.0.0.1:1"]
  ‹description› = "host:port"
  ‹validation› {
    ‹condition›     = ‹length›(var.ensemble) > 0
    ‹error_message› = "Name a server."
  }
}
‹locals› {
  regions = { eu = 1 }
  size    = ‹max›(1, 2)
}
‹defaults› {
  ‹root› = "/jobs"
  ‹timeouts› {
    ‹join› = "2m"
  }
}
‹job› "ingest" {
  ‹for_each›    = local.‹regions›
  ‹name›        = "ingest-${each.‹key›}"
  ‹root›        = "/jobs"
  ‹workers›     = each.‹value›
  ‹roll_format› = "‹protobuf›"
  ‹timeouts› {
    ‹session› = "30s"
    ‹barrier› = "1m"
    ‹stale›   = "30s"
  }
  ‹lifecycle› {
    ‹on_complete› = "‹remove›"
    ‹on_running›  = "‹fail›"
    ‹protect›     = false
  }
  ‹labels› = { size = "${local.‹size›}" }
  ‹precondition› {
    ‹condition›     = true
    ‹error_message› = "No."
  }
}
‹drift› {
  ‹ignore› {
    ‹address› = "job.‹ingest›[\"eu\"]"
    ‹fields›  = ["‹labels›"]
    ‹until›   = "2999-01-31"
    ‹reason›  = "OPS-1412"
  }
}
`

// typosOf returns names at an edit distance of 1 or 2 from name.
func typosOf(name string) []string {
	middle := len(name) / 2
	typos := []string{
		name + "x",                                // one too many
		name[:middle] + name[middle+1:],           // one too few
		name[:middle] + "q" + name[middle+1:],     // another
		"x" + name[:middle] + "q" + name[middle:], // two too many
		name[1:2] + name[0:1] + name[2:],          // two exchanged
	}
	if len(name) > 4 { // two letters are too few for a suggestion
		typos = append(typos, name[1:len(name)-1])
	}
	return typos
}

// TestEveryTypoGetsASuggestion mistypes every block, argument, variable, local, function, label, type and
// keyword.
func TestEveryTypoGetsASuggestion(t *testing.T) {
	marks := regexp.MustCompile(`‹\w+›`).FindAllStringIndex(correctConfig, -1)
	plain := strings.NewReplacer("‹", "", "›", "")
	f := fixture{dir: t.TempDir()}
	check := func(text string) outcome {
		dir, err := os.MkdirTemp(f.dir, "")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "jobs.hcl"), []byte(text), 0o644)
		}
		if err != nil {
			return outcome{code: -1, stderr: err.Error()}
		}
		cmd := f.command("", "validate", dir)
		cmd.Env = append(cmd.Env, "MUSTER_ZK_AUTH=digest:a:b")
		return result(cmd)
	}
	expect(t, check(plain.Replace(correctConfig)), 0, "Valid: stack tests, 1 job.")
	var g errgroup.Group
	g.SetLimit(4)
	typos := 0
	for _, m := range marks {
		name := plain.Replace(correctConfig[m[0]:m[1]])
		for _, typo := range typosOf(name) {
			if strings.Contains(correctConfig, "‹"+typo+"›") || typo == name {
				continue // another name, and no typo
			}
			typos++
			g.Go(func() error {
				got := check(plain.Replace(correctConfig[:m[0]] + typo + correctConfig[m[1]:]))
				if got.code != 1 || !strings.Contains(got.stderr, "did you mean ") {
					t.Errorf("%s for %s: code %d\n%s", typo, name, got.code, got.stderr)
				}
				return nil
			})
		}
	}
	_ = g.Wait()
	if typos < 300 {
		t.Errorf("only %d typos", typos)
	}
}
