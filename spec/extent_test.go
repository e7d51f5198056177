package spec_test

import (
	"strings"
	"testing"

	"muster/spec"
)

// TestLargeValues: values that grow from local to local end in one finding, long before the memory does.
func TestLargeValues(t *testing.T) {
	for name, test := range map[string]struct{ text, says string }{
		"string":   {chain(40, "\"${local.a%[2]d}${local.a%[2]d}\"", `"0123456789"`), "has more than 16 MiB of text"},
		"list":     {chain(40, "[local.a%[2]d, local.a%[2]d]", "1"), "has more than 2000000 elements"},
		"keys":     {chain(40, "{ x = local.a%[2]d, y = local.a%[2]d, \""+strings.Repeat("k", 5000)+"\" = 1 }", "1"), "has more than 16 MiB of text"},
		"depth":    {chain(2_000, "[local.a%[2]d]", "1"), "is nested deeper than 256"},
		"objects":  {chain(2_000, "{ x = local.a%[2]d }", "1"), "is nested deeper than 256"},
		"together": {chain(400, "\"${local.a%[2]d}x\"", `join("", [for i in range(1000) : "`+strings.Repeat("x", 8000)+`"])`), "the locals together have more than 256 MiB of text"},
	} {
		ds := findings(t, "x.hcl", test.text, spec.Options{})
		if len(ds) != 1 || ds[0].Code != "M1511" || !strings.Contains(ds[0].Summary, test.says) {
			t.Errorf("%s: %d findings, the first: %v", name, len(ds), first(ds))
		}
	}
}
