package spec_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/spec"
)

func TestFormat(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"spaces", "job \"a\"  {\nworkers=1\n  name =   \"x\" # why\n}\n", "job \"a\" {\n  workers = 1\n" +
			"  name    = \"x\" # why\n}\n"},
		{"crlf", "a {\r\nb=1\r\nlonger=2\r\n}\r\n", "a {\r\n  b      = 1\r\n  longer = 2\r\n}\r\n"},
		{"heredoc", "a = <<EOT\n   keep   this\nEOT\n", "a = <<EOT\n   keep   this\nEOT\n"},
		{"empty", "", ""},
	} {
		out, ds := spec.Format([]byte(test.in), "a.hcl")
		if string(out) != test.want || len(ds) > 0 {
			t.Errorf("%s: %q, want %q (%v)", test.name, out, test.want, ds)
		}
	}
	if out, ds := spec.Format([]byte("{\"a\":   1}"), "a.hcl.json"); string(out) != "{\"a\":   1}" || len(ds) > 0 {
		t.Errorf("JSON: %q %v", out, ds)
	}
	out, ds := spec.Format([]byte("job \"a\" {\n"), "a.hcl")
	if out != nil || len(ds) != 1 || ds[0].Code != "M1102" || ds[0].Snippet == nil {
		t.Errorf("unclosed: %q %v", out, ds)
	}
}

// sources are all HCL texts of the test data and the examples.
func sources(t testing.TB) []string {
	var texts []string
	cases, _ := filepath.Glob("testdata/*/*.txtar")
	for _, name := range cases {
		ar, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range ar.Files {
			if strings.HasSuffix(f.Name, ".hcl") {
				texts = append(texts, string(f.Data))
			}
		}
	}
	examples, _ := filepath.Glob("../examples/*/*.hcl")
	single, _ := filepath.Glob("../examples/*.hcl")
	for _, name := range append(examples, single...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

// TestFormatIsIdempotent: formatting twice is formatting once, also of texts whose white space was shaken.
func TestFormatIsIdempotent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, text := range sources(t) {
		for range 5 {
			idempotent(t, []byte(text))
			text = shake(random, text)
		}
	}
}

func idempotent(t *testing.T, src []byte) {
	once, ds := spec.Format(src, "a.hcl")
	if ds.HasErrors() {
		return
	}
	twice, ds := spec.Format(once, "a.hcl")
	if len(ds) > 0 {
		t.Fatalf("the formatted text does not parse: %v\n%s\nfrom\n%s", ds, once, src)
	}
	if d := cmp.Diff(string(once), string(twice)); d != "" {
		t.Fatalf("formatted twice (-once +twice):\n%s\nfrom %q", d, src)
	}
}

// shake doubles or removes some spaces and line breaks.
func shake(random *rand.Rand, text string) string {
	var b bytes.Buffer
	for _, c := range []byte(text) {
		b.WriteByte(c)
		if c == ' ' && random.IntN(4) == 0 {
			b.WriteByte("\t \n"[random.IntN(3)])
		}
	}
	return b.String()
}

// TestExport: what Export writes is formatted, commented, and reads back to the same jobs.
func TestExport(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var jobs []job.Job
		roots := []string{"/muster", "/jobs/prod", "/x ${y}"}[:1+random.IntN(3)]
		for _, root := range roots {
			for _, name := range []string{"a", "ingest.eu-1", strings.Repeat("n", 128)} {
				if random.IntN(3) > 0 {
					jobs = append(jobs, randomJob(random, root, name))
				}
			}
		}
		out := spec.Export(declarations(jobs), "etl-prod", "/home of ${y}")
		if c := readsBack(t, out, declarations(jobs)); c.Stack != "etl-prod" || c.Home != "/home of ${y}" {
			t.Fatalf("stack %s, home %s from\n%s", c.Stack, c.Home, out)
		}
	}
}

// readsBack checks that what was exported is formatted, and reads back to the same.
func readsBack(t *testing.T, out []byte, want []resource.Declaration) *spec.Config {
	t.Helper()
	if formatted, ds := spec.Format(out, "a.hcl"); len(ds) > 0 || !bytes.Equal(formatted, out) {
		t.Fatalf("not formatted: %v\n%s", ds, out)
	}
	byPath := func(declared []resource.Declaration) map[string]resource.Declaration {
		all := map[string]resource.Declaration{}
		for _, d := range declared {
			switch r := d.(type) { // where it is declared does not count
			case job.Job:
				r.At, r.Address = "", ""
				all[r.Path()] = r
			case group.Group:
				r.At, r.Address = "", ""
				all[r.Path()] = r
			case queue.Queue:
				r.At, r.Address = "", ""
				all[r.Path()] = r
			}
		}
		return all
	}
	c := load(t, map[string]string{"exported.hcl": string(out)}, spec.Options{})
	if d := cmp.Diff(byPath(want), byPath(c.Declared)); d != "" {
		t.Fatalf("read back (-want +got):\n%s\nfrom\n%s", d, out)
	}
	return c
}

// declarations are jobs as declarations.
func declarations(jobs []job.Job) []resource.Declaration {
	var ds []resource.Declaration
	for _, j := range jobs {
		ds = append(ds, j)
	}
	return ds
}

func randomJob(random *rand.Rand, root, name string) job.Job {
	j := job.Default()
	j.Root, j.Name, j.Workers = root, name, 1+random.IntN(job.MaxWorkers)
	if random.IntN(2) == 0 {
		j.RollFormat = job.Text
		j.Timeouts.Join = resource.Duration(1e6 * (1 + random.Int64N(1e6)))
		j.Lifecycle.Protect = true
	}
	if random.IntN(2) == 0 {
		j.Lifecycle.OnComplete = job.Retain
		j.Labels = map[string]string{"team": "a${b}%{c}\"\\ é", "x/y": "", "1": "1"}
	}
	return j
}

// TestExportOfUnknownWorkers: a job whose size is not known still gives a configuration that loads, and says so.
func TestExportOfUnknownWorkers(t *testing.T) {
	j := job.Default()
	j.Name, j.Workers = "old", 0
	out := string(spec.Export([]resource.Declaration{j}, "s", ""))
	if !strings.Contains(out, "workers = 1 # not recorded") {
		t.Errorf("%s", out)
	}
	load(t, map[string]string{"a.hcl": out}, spec.Options{})
}
