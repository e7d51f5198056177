package spec_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"muster/spec"
)

// large makes configurations of n jobs: as literal blocks, and of one for_each over a product of ranges.
func large(n int) map[string]map[string]string {
	head := "muster {\n  stack = \"big\"\n}\n"
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\njob \"job-%d\" {\n  root    = \"/jobs/prod\"\n  workers = %d\n  timeouts {\n"+
			"    join = \"2m\"\n  }\n  labels = { team = \"data\", tier = \"%d\" }\n}\n", i, 1+i%100, i%7)
	}
	each := fmt.Sprintf(`
locals {
  pairs = setproduct(range(%d), range(100))
}

job "job" {
  for_each = { for p in local.pairs : "${p[0]}-${p[1]}" => 1 + p[1] }
  name     = "job-${each.key}"
  root     = "/jobs/prod"
  workers  = each.value
  timeouts {
    join = "2m"
  }
  labels = { team = "data", tier = "${each.value %% 7}" }
}
`, n/100)
	return map[string]map[string]string{
		"literal":  {"jobs.hcl": head + b.String()},
		"for_each": {"jobs.hcl": head + each},
	}
}

func BenchmarkLoad10000Jobs(b *testing.B) {
	for name, files := range large(10_000) {
		b.Run(name, func(b *testing.B) {
			dir := write(b, files)
			b.ReportAllocs()
			for b.Loop() {
				c, ds := spec.Load(dir, spec.Options{})
				if c == nil || len(c.Jobs) != 10_000 {
					b.Fatal(ds)
				}
			}
			b.StopTimer()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.Sys)/(1<<20), "MiB-sys")
		})
	}
}
