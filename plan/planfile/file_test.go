package planfile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
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
	add("create", nil, label("arrow", "a -> b & <c> \u2028 \u009b \u202e \x7f 😀 \x1b"))
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

func TestPlanFileIsCanonical(t *testing.T) {
	file := encode(t, saved())
	if !bytes.Equal(file, encode(t, saved())) {
		t.Error("two files of one plan differ")
	}
	if !bytes.HasSuffix(file, []byte("\n}\n")) {
		t.Error("the file does not end in one newline")
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(file))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	var sorted bytes.Buffer
	enc := json.NewEncoder(&sorted)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(tree); err != nil {
		t.Fatal(err)
	}
	nonASCII := regexp.MustCompile(`[^\n -~]`)
	if bad := nonASCII.Find(file); bad != nil {
		t.Errorf("the file holds %q", bad)
	}
	escaped := nonASCII.ReplaceAllStringFunc(sorted.String(), func(s string) string {
		return strings.Trim(strconv.QuoteToASCII(s), `"`)
	})
	escaped = strings.NewReplacer(`\x7f`, `\u007f`, `\U0001f600`, `\ud83d\ude00`).Replace(escaped)
	if d := cmp.Diff(escaped, string(file)); d != "" {
		t.Errorf("not sorted and indented by two (-canonical +file):\n%s", d)
	}
}

// TestPlanFileHasTerraformsKeys: the keys that tools for Terraform's plans read have the same meaning here.
func TestPlanFileHasTerraformsKeys(t *testing.T) {
	var doc struct {
		FormatVersion string `json:"format_version"`
		Changes       []struct {
			Address, Type, Name string
			Change              struct {
				Actions       []string
				Before, After map[string]any
			}
			ActionReason string `json:"action_reason"`
			DeclaredAt   string `json:"declared_at"`
			BlockedBy    []struct {
				Because string
				Proceed string `json:"to_proceed"`
			} `json:"blocked_by"`
			Status       string
			Precondition map[string]any
		} `json:"resource_changes"`
	}
	if err := json.Unmarshal(encode(t, saved()), &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range doc.Changes {
		line := fmt.Sprint(c.Address, " ", c.Type, " ", c.Name, " ", c.Change.Actions, " ",
			c.ActionReason, " ", c.Status)
		for _, b := range c.BlockedBy {
			line += " | " + b.Because + " | " + b.Proceed
		}
		got = append(got, line)
	}
	want := []string{
		`job.create job create [create] missing missing`,
		`job.classic job classic [delete create] classic_leftover stale`,
		`job.replace job replace [delete create] stale stale`,
		`/jobs/gone job gone [delete] undeclared ready`,
		`job.update job update [update] owner_differs ready`,
		`job.blocked job blocked [no-op] immutable_differs_live degraded | 2 workers are live | ` +
			`muster terminate blocked && muster apply, or apply again after the run`,
		`job.foreign job foreign [no-op] foreign foreign | ` +
			`a znode is there that is not a job: 12 bytes that are no roll | ` +
			`choose another name or root, or remove the znode yourself; muster explain job.foreign shows it`,
		`/jobs/running job running [no-op] undeclared_live running`,
		`job.equal job equal [no-op] equal running`,
		`/jobs/theirs job theirs [no-op] unmanaged ready`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
	create, replace := doc.Changes[0], doc.Changes[2]
	if create.Change.Before != nil || create.Change.After["workers"] != 4.0 || create.DeclaredAt != "jobs.hcl:3" ||
		create.Precondition != nil {
		t.Errorf("create: %+v", create)
	}
	if replace.Change.Before["workers"] != 4.0 || replace.Precondition["generation"] != "g1" ||
		replace.Precondition["version"] != 3.0 {
		t.Errorf("replace: %+v", replace)
	}
}

func TestEncodeRefusesAbsolutePaths(t *testing.T) {
	s := saved()
	s.TLS.KeyFile = "/home/ann/me.key"
	if _, err := planfile.Encode(kinds(), s); err == nil {
		t.Error("a plan file with an absolute local path was written")
	}
}
