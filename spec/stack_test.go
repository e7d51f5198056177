package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStack: a value that is nested too deeply is refused long before the stack overflows, which would end the process.
func TestStack(t *testing.T) {
	dir := t.TempDir()
	brackets := strings.Repeat("[", 200)
	text := "locals {\n  x = jsondecode(regexreplace(join(\"\", range(1000)), \".\", \"" + brackets + "\"))\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "a.hcl"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	_, ds := Load(dir, Options{Limits: Limits{stack: 2 << 20}})
	if len(ds) != 1 || ds[0].Code != codeCost || ds[0].Summary != "it takes more than 2 MiB of stack to read this configuration" {
		t.Errorf("%+v", ds)
	}
}
