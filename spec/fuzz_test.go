package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/spec"
)

// FuzzLoad: no text makes Load or its diagnostics panic, be silent about a rejection, or steer the terminal.
func FuzzLoad(f *testing.F) {
	for _, text := range sources(f) {
		f.Add(text, false)
	}
	f.Add(`{"muster": {"stack": "x"}, "job": {"a": {"workers": "${1 + 1}", "labels": {"a": null}}}}`, true)
	f.Add("muster {\n  stack = \"x\"\n}\njob \"a\" {\n  for_each = { for i in range(3) : i => i }\n"+
		"  workers = each.value\n}\n", false)
	f.Add("variable \"v\" {\n"+
		"  type = map(object({ a = optional(list(object({ b = optional(number, 1) })), []) }))\n"+
		"  default = { x = { a = [{}] } }\n}\n", false)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string, json bool) {
		native, inJSON := filepath.Join(dir, "a.hcl"), filepath.Join(dir, "a.hcl.json")
		path, other := native, inJSON
		if json {
			path, other = inJSON, native
		}
		_ = os.Remove(other)
		put(t, path, text)
		c, ds := spec.Load(dir, spec.Options{Now: time.Unix(0, 0), Environ: []string{"MUSTER_VAR_v=" + text}})
		if (c == nil) != ds.HasErrors() {
			t.Fatalf("config %v, findings %v", c, ds)
		}
		var b strings.Builder
		if err := ds.Text(&b, false); err != nil || strings.ContainsAny(b.String(), "\x1b\x07\r") {
			t.Fatalf("%v %q", err, b.String())
		}
		if err := ds.JSON(&b); err != nil {
			t.Fatal(err)
		}
		if !json {
			idempotent(t, []byte(text))
		}
	})
}
