package spec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/spec"
)

// TestDefaultsOfBothKinds: what the defaults block says holds for jobs and groups. What it does not say has the default
// of the kind, which may be another one.
func TestDefaultsOfBothKinds(t *testing.T) {
	const both = "job \"a\" {\n  workers = 1\n}\ngroup \"b\" {}\n"
	for defaults, want := range map[string][]string{
		"": {"30s", "10s"}, "defaults {\n  timeouts {\n    session = \"20s\"\n  }\n}\n": {"20s", "20s"},
	} {
		c := load(t, map[string]string{"a.hcl": head + both + defaults}, spec.Options{})
		j, g := spec.Of[job.Job](c)[0], spec.Of[group.Group](c)[0]
		if got := []string{j.Timeouts.Session.String(), g.Timeouts.Session.String()}; !slices.Equal(got, want) {
			t.Errorf("with defaults %q the sessions are %v", defaults, got)
		}
	}
}

// TestSharedDefaultsFitAllKinds: an argument that two kinds have accepts the same values in both. Else a default could
// be refused because of a kind that the configuration does not declare.
func TestSharedDefaultsFitAllKinds(t *testing.T) {
	ofJobs := limitsOf(job.Properties())
	for kind, limits := range map[string]map[string]string{
		"group": limitsOf(group.Properties()), "queue": limitsOf(queue.Properties()),
	} {
		shared := 0
		for name, limit := range limits {
			if ofJob, ok := ofJobs[name]; ok {
				if shared++; limit != ofJob {
					t.Errorf("%s is %s in a job, %s in a %s", name, ofJob, limit, kind)
				}
			}
		}
		if shared < 4 {
			t.Errorf("%s: %d arguments are shared", kind, shared)
		}
	}
}

func limitsOf[T any](properties []resource.Property[T]) map[string]string {
	limits := map[string]string{}
	for _, p := range properties {
		limits[p.Name] = p.Limits()
	}
	return limits
}

// TestGroupInJSON: the JSON syntax declares the same groups.
func TestGroupInJSON(t *testing.T) {
	native := load(t, map[string]string{"a.hcl": head + `
group "shop" {
  promote_after = 2
  leader "main" {}
  cron "a" {
    schedule = "@daily"
  }
  cron "b" {
    schedule = "@hourly"
    retries  = 3
  }
}
`}, spec.Options{})
	json := load(t, map[string]string{"a.hcl.json": `{
  "muster": { "stack": "etl" },
  "group": { "shop": {
    "promote_after": 2, "leader": { "main": {} },
    "cron": { "a": { "schedule": "@daily" }, "b": { "schedule": "@hourly", "retries": 3 } }
  } }
}`}, spec.Options{})
	if native.Digest != json.Digest || len(spec.Of[group.Group](native)[0].Duties) != 3 {
		t.Errorf("native %+v\nJSON %+v", spec.Of[group.Group](native), spec.Of[group.Group](json))
	}
}

// TestDigestOfGroups: a group changes the digest, and a configuration keeps the digest that it had before.
func TestDigestOfGroups(t *testing.T) {
	digest := func(text string) string {
		return load(t, map[string]string{"a.hcl": head + text}, spec.Options{}).Digest
	}
	one, order := "group \"a\" {\n  leader \"x\" {}\n  leader \"y\" {}\n}\n",
		"group \"a\" {\n  leader \"y\" {}\n  leader \"x\" {}\n}\n"
	if digest(one) != digest(order) || digest(one) == digest("") || digest(one) == digest("group \"a\" {}\n") {
		t.Error("the digest does not say what the groups are")
	}
	const before = "80a9fde364f9ed2675457932a7fbac03ce0c2fd2db7f80c7bcfd6273ab4b0aa6"
	if got := digest("job \"a\" {\n  workers = 1\n}\n"); got != before {
		t.Errorf("the digest of a job is %s, and was %s", got, before)
	}
}

// TestManyDuties: a group with 1,000 crons loads. One with more is refused with one finding.
func TestManyDuties(t *testing.T) {
	crons := func(n int) string {
		var b strings.Builder
		b.WriteString(head + "group \"full\" {\n")
		for i := range n {
			fmt.Fprintf(&b, "  cron \"nightly-report-%04d\" {\n    schedule = \"0 2 * * *\"\n  }\n", i)
		}
		return b.String() + "}\n"
	}
	c := load(t, map[string]string{"a.hcl": crons(group.MaxDuties)}, patient())
	if n := len(spec.Of[group.Group](c)[0].Duties); n != group.MaxDuties {
		t.Errorf("%d duties", n)
	}
	_, ds := spec.Load(write(t, map[string]string{"a.hcl": crons(group.MaxDuties + 1)}), patient())
	if len(ds) != 1 || ds[0].Code != "M1902" || ds[0].Summary != "a group has at most 1000 duties; this one has 1001" {
		t.Errorf("%+v", ds)
	}
}

// TestExportOfAllKinds: what Export writes of groups and queues, and of jobs beside them, is formatted and reads back.
func TestExportOfAllKinds(t *testing.T) {
	for counts, text := range map[string]string{
		"4 groups and 1 job": sourceOf(t, "everything_of_a_group", "groups.hcl") + `
job "ingest" {
  workers = 4
}

group "plain" {
  root = "/other"
}

group "instant" {
  settle = "0s"
}
`,
		"1 job and 3 queues": sourceOf(t, "everything_of_a_queue", "queues.hcl") + `
job "ingest" {
  workers = 4
}

queue "plain" {
  root     = "/other"
  redis    = "redis+sentinel://a,b/mymaster"
  max_task = "256KiB"
}
`,
	} {
		c := load(t, map[string]string{"a.hcl": text}, spec.Options{})
		out := spec.Export(c.Declared, "etl", "")
		if !strings.HasPrefix(string(out), "# "+counts+" as found in ZooKeeper.") {
			t.Errorf("%.80s", out)
		}
		readsBack(t, out, c.Declared)
	}
}
