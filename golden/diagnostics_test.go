package golden

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/spec"
)

// TestEveryDiagnosticIsDocumented: docs/diagnostics.md lists the codes, no more and no fewer.
func TestEveryDiagnosticIsDocumented(t *testing.T) {
	const page = "../docs/diagnostics.md"
	var b strings.Builder
	b.WriteString("# Diagnostics\n\nEvery finding in a configuration has a code that keeps its meaning. This page is written from the code: `go test ./golden -update`.\n\n| code | meaning |\n|---|---|\n")
	for _, c := range spec.Codes() {
		fmt.Fprintf(&b, "| %s | %s |\n", c.Code, c.Meaning)
	}
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(b.String(), string(have)); d != "" {
		t.Errorf("docs/diagnostics.md (-want +got):\n%s", d)
	}
}
