package planfile_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
	"muster/resource/job"
)

// saved is a plan with a row of every action.
func saved() planfile.Saved {
	want := plan.Want{Stack: stack, Home: "/.muster", TakeOver: []string{"old"}}
	have := plan.State{Ensemble: "e1", Found: map[string]resource.Observed{}}
	add := func(name string, o *resource.Observed, edits ...func(*job.Job)) {
		j := declared(edits...)
		j.Name, j.Address = name, "job."+name
		want.Declared = append(want.Declared, j)
		if o != nil {
			have.Found[j.Path()] = named(o, name)
		}
	}
	add("create", nil, label("arrow", "a -> b & <c> \u2028 \u009b \u202e \x7f 😀 \x1b \n\t\\n"))
	full := recorded(declared(label("k", "v")), counts(4, 1, 0))
	full.Version, full.RecordVersion, full.Pzxid = 3, 2, 1<<62+1
	full.Record.ACL, full.Record.By, full.Record.Applied = []string{"auth::cdrwa"}, "ann@host", "2026-01-02T03:04:05Z"
	full.Record.Sign()
	_ = job.SetNoRoll(full.Record, "g0")
	_ = job.SetLastRun(full.Record, job.Run{ID: "nightly-7", Generation: "g0", Completed: "2026-01-01T00:00:00Z"})
	add("replace", full)
	add("classic",
		&resource.Observed{Classic: true, Counts: job.Counts(2, 0), Companions: []string{"/jobs/classic-lock"}})
	add("update", recorded(declared(), owner("old")))
	add("blocked", recorded(declared(), counts(4, 0, 2)), workers(5))
	add("foreign", foreign())
	add("equal", recorded(declared(), counts(4, 0, 4)))
	listed := recorded(declared(), counts(4, 0, 4))
	listed.Members = []string{"10.0.0.1:7000", "10.0.0.2:7000"}
	have.Found["/jobs/running"] = named(listed, "running")
	have.Found["/jobs/gone"] = named(recorded(declared()), "gone")
	have.Found["/jobs/theirs"] = named(recorded(declared(), owner("x")), "theirs")
	p := plan.Diff(want, have)
	p.ID, p.Roots, p.Partial = "p1", []string{"/jobs", "/secret"}, true
	p.Unlisted = []string{"/secret"}
	return planfile.Saved{
		Created: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC), MusterVersion: "0.1.0",
		Servers: []string{"127.0.0.1:2181"}, ACL: []string{"auth::cdrwa"},
		SessionTimeout: resource.Duration(10 * time.Second),
		ConfigDigest:   "c0ffee", TLS: resource.TLS{CAFile: "tls/ca.pem"}, Plan: p,
	}
}

// named is o with this name in its Record.
func named(o *resource.Observed, name string) resource.Observed {
	if o.Record != nil {
		j := job.Of(o.Record)
		j.Name = name
		declare(o.Record, j)
	}
	return *o
}

func encode(t testing.TB, s planfile.Saved) []byte {
	t.Helper()
	file, err := planfile.Encode(kinds(), s)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPlanFileIsReadAsWritten(t *testing.T) {
	for name, s := range map[string]planfile.Saved{
		"a_row_of_every_action": saved(),
		"no_rows":               {Created: time.Unix(0, 0).UTC(), Plan: plan.Plan{ID: "p1", Stack: stack}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := planfile.Decode(kinds(), encode(t, s))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(s, got); d != "" {
				t.Errorf("saved plan (-written +read):\n%s", d)
			}
		})
	}
}

var update = flag.Bool("update", false, "rewrite the expected plan file in testdata")

// TestPlanFileIsAsRecorded: its keys are Terraform's, sorted, two spaces deep, and all of it is printable ASCII.
func TestPlanFileIsAsRecorded(t *testing.T) {
	const recorded = "testdata/plan.json"
	file := encode(t, saved())
	if *update {
		if err := os.WriteFile(recorded, file, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(file)); d != "" {
		t.Errorf("plan file (-want +got); -update rewrites it:\n%s", d)
	}
}

func TestEncodeRefusesAbsolutePaths(t *testing.T) {
	s := saved()
	s.TLS.KeyFile = "/home/ann/me.key"
	if _, err := planfile.Encode(kinds(), s); err == nil {
		t.Error("a plan file with an absolute local path was written")
	}
}
