package spec_test

import (
	"fmt"
	"muster/resource/job"
	"muster/spec"
	"strings"
	"testing"
)

// chain is locals of which each refers to the next, and the last to end.
func chain(n int, each, end string) string {
	var b strings.Builder
	b.WriteString("locals {\n")
	for i := range n {
		fmt.Fprintf(&b, "  a%[1]d = "+each+"\n", i, i+1)
	}
	fmt.Fprintf(&b, "  a%d = %s\n}\n", n, end)
	return b.String()
}

// TestLongChain: locals are evaluated in the time that reading them takes, however long the way through them is.
func TestLongChain(t *testing.T) {
	text := chain(20_000, "local.a%[2]d", "3") + "job \"b\" {\n  workers = local.a0\n}\n"
	c := load(t, map[string]string{"jobs.hcl": one, "x.hcl": text}, patient())
	if got := spec.Of[job.Job](c)[1].Workers; got != 3 {
		t.Errorf("workers %d, want 3", got)
	}
}

// TestLongCircle: a finding of a circle stays short, and one that goes round in many ways is one finding.
func TestLongCircle(t *testing.T) {
	var dense strings.Builder
	dense.WriteString("locals {\n")
	for i := range 300 {
		two := fmt.Sprintf("local.b%d, local.b%d, ", (i+1)%300, i/2)
		fmt.Fprintf(&dense, "  b%d = [%s]\n", i, strings.Repeat(two, 100))
	}
	dense.WriteString("}\n")
	for name, text := range map[string]string{
		"long": chain(20_000, "local.a%[2]d", "local.a0"), "dense": dense.String(),
	} {
		ds := findings(t, "x.hcl", text, patient())
		if len(ds) != 1 || ds[0].Code != "M1507" || len(ds[0].Detail) > 200 || len(ds[0].Related) > 10 {
			t.Errorf("%s: %d findings, %.500s", name, len(ds), fmt.Sprint(ds))
		}
	}
}
