package planfile_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/job"
	"muster/plan"
	"muster/planfile"
	"muster/resource"
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
	add("classic", &resource.Observed{Classic: true, Counts: job.Counts(2, 0), Companions: []string{"/jobs/classic-lock"}})
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
		Created: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC), MusterVersion: "0.1.0", Servers: []string{"127.0.0.1:2181"},
		ACL: []string{"auth::cdrwa"}, SessionTimeout: resource.Duration(10 * time.Second),
		ConfigDigest: "c0ffee", TLS: resource.TLS{CAFile: "tls/ca.pem"}, Plan: p,
	}
}

// named is o as observed of the job with this name.
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

// TestPlanFileHasTerraformsKeys: what tools for Terraform's plans look for, in the places where they look.
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
		line := fmt.Sprint(c.Address, " ", c.Type, " ", c.Name, " ", c.Change.Actions, " ", c.ActionReason, " ", c.Status)
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
		`job.blocked job blocked [no-op] immutable_differs_live degraded | 2 workers are live | muster terminate blocked && muster apply, or apply again after the run`,
		`job.foreign job foreign [no-op] foreign foreign | a znode is there that is not a job: 12 bytes that are no roll | choose another name or root, or remove the znode yourself; muster explain job.foreign shows it`,
		`/jobs/running job running [no-op] undeclared_live running`,
		`job.equal job equal [no-op] equal running`,
		`/jobs/theirs job theirs [no-op] unmanaged ready`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
	create, replace := doc.Changes[0], doc.Changes[2]
	if create.Change.Before != nil || create.Change.After["workers"] != 4.0 || create.DeclaredAt != "jobs.hcl:3" || create.Precondition != nil {
		t.Errorf("create: %+v", create)
	}
	if replace.Change.Before["workers"] != 4.0 || replace.Precondition["generation"] != "g1" || replace.Precondition["version"] != 3.0 {
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

// sign gives an edited file the digest that fits it, as someone would who means to.
func sign(file []byte) []byte {
	digits := regexp.MustCompile(`(\n  "digest": ")[0-9a-f]{64}"`)
	blank := digits.ReplaceAll(file, []byte("${1}"+strings.Repeat("0", 64)+`"`))
	sum := sha256.Sum256(blank)
	return digits.ReplaceAll(file, []byte("${1}"+hex.EncodeToString(sum[:])+`"`))
}

func TestDecodeRefuses(t *testing.T) {
	file := string(encode(t, saved()))
	edit := func(old, new string) string {
		if !strings.Contains(file, old) {
			t.Fatalf("the plan file holds no %s", old)
		}
		return string(sign([]byte(strings.Replace(file, old, new, 1))))
	}
	compact := func() string {
		var b bytes.Buffer
		if err := json.Compact(&b, []byte(file)); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	s := saved()
	s.Plan.Rows = append(s.Plan.Rows[:1], s.Plan.Rows...)
	twice := string(encode(t, s))
	s = saved()
	slices.Reverse(s.Plan.Rows)
	shuffled := string(encode(t, s))
	for _, c := range []struct {
		name, file string
		is         error
		says       string
	}{
		{"empty", "", planfile.ErrDamaged, "it is empty"},
		{"cut_short", file[:len(file)/2], planfile.ErrDamaged, "cut short"},
		{"last_newline_missing", strings.TrimSuffix(file, "\n"), planfile.ErrDamaged, "digest does not match"},
		{"trailing_bytes", file + "{}", planfile.ErrDamaged, "something follows the end"},
		{"not_json", "job \"a\" {}", planfile.ErrDamaged, "it is not JSON"},
		{"another_json", `{"resource_changes": []}`, planfile.ErrDamaged, "no format_version"},
		{"a_list", `[]`, planfile.ErrDamaged, "a JSON array"},
		{"next_major", edit(`"format_version": "1.0"`, `"format_version": "2.0"`), planfile.ErrVersion, `"2.0"`},
		{"next_minor", edit(`"format_version": "1.0"`, `"format_version": "1.1"`), planfile.ErrVersion, `"1.1"`},
		{"version_is_a_number", edit(`"format_version": "1.0"`, `"format_version": 1.0`), planfile.ErrDamaged, "format_version has the wrong type"},
		{"edited", strings.Replace(file, `"workers": 5`, `"workers": 6`, 1), planfile.ErrDamaged, "digest does not match"},
		{"compacted", compact(), planfile.ErrDamaged, "formatted anew"},
		{"duplicate_key", edit(`"stack": "etl",`, `"stack": "etl",`+"\n"+`  "stack": "etl",`), planfile.ErrDamaged, `"stack" twice`},
		{"duplicate_key_in_other_case", edit(`"name": "create",`, `"name": "create", "NAME": "create",`), planfile.ErrDamaged, `"NAME" twice`},
		{"unknown_key", edit(`"unlisted": [`, `"force": true, "unlisted": [`), planfile.ErrDamaged, `unknown key "force"`},
		{"unknown_key_in_a_row", edit(`"classic": true`, `"classic": true, "force": true`), planfile.ErrDamaged, `unknown key "force"`},
		{"wrong_type", edit(`"workers": 5`, `"workers": "5"`), planfile.ErrDamaged, "workers has the wrong type"},
		{"too_large_a_number", edit(`"version": 3`, `"version": 3000000000`), planfile.ErrDamaged, "version has the wrong type"},
		{"fraction", edit(`"workers": 5`, `"workers": 5.5`), planfile.ErrDamaged, "workers has the wrong type"},
		{"bad_time", edit(`"created": "2026`, `"created": "x2026`), planfile.ErrDamaged, "which is not a time"},
		{"bad_duration", edit(`"session_timeout": "10s"`, `"session_timeout": "10"`), planfile.ErrDamaged, "is not a duration"},
		{"key_left_out", edit("        \"pzxid\": 0,\n", ""), planfile.ErrDamaged, "not as plan wrote it"},
		{"key_moved", edit("  \"ensemble\": \"e1\",\n  \"format_version\": \"1.0\",\n", "  \"format_version\": \"1.0\",\n  \"ensemble\": \"e1\",\n"), planfile.ErrDamaged, "not as plan wrote it"},
		{"key_in_other_case", edit(`"type": "job"`, `"Type": "job"`), planfile.ErrDamaged, "not as plan wrote it"},
		{"actions_contradict", edit("\"actions\": [\n          \"create\"\n        ]", "\"actions\": [\n          \"delete\"\n        ]"), planfile.ErrDamaged, "change.actions"},
		{"status_contradicts", edit(`"status": "degraded"`, `"status": "ready"`), planfile.ErrDamaged, "status"},
		{"address_contradicts", edit("\"address\": \"job.create\",\n      \"blocked_by\"", "\"address\": \"job.other\",\n      \"blocked_by\""), planfile.ErrDamaged, "address"},
		{"blocked_by_contradicts", edit("2 workers are live", "0 workers are live"), planfile.ErrDamaged, "blocked_by"},
		{"unknown_reason", edit(`"action_reason": "equal"`, `"action_reason": "because"`), planfile.ErrDamaged, "is not known"},
		{"unknown_type", edit(`"type": "job"`, `"type": "znode"`), planfile.ErrDamaged, "is not known"},
		{"reserved_path", edit(`"path": "/jobs/gone"`, `"path": "/zookeeper/gone"`), planfile.ErrDamaged, "belongs to ZooKeeper"},
		{"unclean_path", edit(`"path": "/jobs/gone"`, `"path": "/jobs//gone"`), planfile.ErrDamaged, "slash at its end"},
		{"other_path", edit(`"path": "/jobs/create"`, `"path": "/jobs/other"`), planfile.ErrDamaged, "declares /jobs/create and changes /jobs/other"},
		{"other_job_observed", edit("\"path\": \"/jobs/gone\"", "\"path\": \"/jobs/gona\""), planfile.ErrDamaged, "it observed /jobs/gone and changes /jobs/gona"},
		{"precious_companion", edit("/jobs/classic-lock", "/precious"), planfile.ErrDamaged, "/precious is no companion of /jobs/classic"},
		{"impossible_workers", edit(`"workers": 5`, `"workers": 0`), planfile.ErrDamaged, "workers: 0 is not between"},
		{"impossible_enum", edit(`"on_running": "keep"`, `"on_running": "kill"`), planfile.ErrDamaged, `on_running: "kill" is not known`},
		{"no_id", edit(`"id": "p1"`, `"id": ""`), planfile.ErrDamaged, "id: "},
		{"id_leads_elsewhere", edit(`"id": "p1"`, `"id": "../../x"`), planfile.ErrDamaged, `id: "../../x" is not`},
		{"id_too_long", edit(`"id": "p1"`, `"id": "`+strings.Repeat("p", 65)+`"`), planfile.ErrDamaged, "1 to 64"},
		{"stack_leads_elsewhere", edit(`"stack": "etl",`+"\n"+`  "tls"`, `"stack": "../x",`+"\n"+`  "tls"`), planfile.ErrDamaged, "stack: "},
		{"home_leads_elsewhere", edit(`"home": "/.muster"`, `"home": "/../x"`), planfile.ErrDamaged, "home: "},
		{"relative_home", edit(`"home": "/.muster"`, `"home": "relative"`), planfile.ErrDamaged, "home is an absolute znode path"},
		{"root_leads_elsewhere", edit("\"roots\": [\n    \"/jobs\"", "\"roots\": [\n    \"x/..\""), planfile.ErrDamaged, "roots: "},
		{"negative_timeout", edit(`"session_timeout": "10s"`, `"session_timeout": "-10s"`), planfile.ErrDamaged, "session_timeout: -10s is not between"},
		{"endless_timeout", edit(`"session_timeout": "10s"`, `"session_timeout": "240h0m0s"`), planfile.ErrDamaged, "session_timeout: "},
		{"generation_leads_elsewhere", edit(`"generation": "g1"`, `"generation": "../g1"`), planfile.ErrDamaged, "generation"},
		{"two_rows_of_one_path", twice, planfile.ErrDamaged, "two rows have the path"},
		{"rows_out_of_order", shuffled, planfile.ErrDamaged, "out of order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := planfile.Decode(kinds(), []byte(c.file))
			if !errors.Is(err, c.is) || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("error = %v, want %v that says %q", err, c.is, c.says)
			}
			if d := cmp.Diff(planfile.Saved{}, got); d != "" {
				t.Errorf("something was read:\n%s", d)
			}
		})
	}
}

// TestDecodeRefusesAReasonThatDoesNotFollow: an edited reason with everything derived from it edited alike, and signed.
func TestDecodeRefusesAReasonThatDoesNotFollow(t *testing.T) {
	s := saved()
	for i, r := range s.Plan.Rows {
		for _, reason := range plan.Reasons() {
			if reason == r.Reason || reason.Action() != r.Action() || r.New == nil {
				continue // elsewhere the order of rows gives it away
			}
			forged := saved()
			forged.Plan.Rows[i].Reason = reason
			if _, err := planfile.Decode(kinds(), encode(t, forged)); !errors.Is(err, planfile.ErrDamaged) {
				t.Errorf("%s with reason %q: error = %v", r.Address(), reason, err)
			}
		}
	}
}

func TestDecodeBoundsTheSize(t *testing.T) {
	if _, err := planfile.Decode(kinds(), make([]byte, planfile.MaxFile+1)); !errors.Is(err, planfile.ErrDamaged) {
		t.Errorf("error = %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	file := encode(f, saved())
	f.Add(file)
	f.Add(encode(f, planfile.Saved{Plan: plan.Plan{ID: "p1", Stack: stack}}))
	f.Add(file[:len(file)/2])
	f.Add([]byte(`{"format_version": "1.0"}`))
	f.Add([]byte(`{"format_version": "1.0", "created": "2026-01-01T00:00:00Z", "resource_changes": [{}, {"precondition": {}}]}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		s, err := planfile.Decode(kinds(), file)
		if signed := sign(file); err != nil && bytes.Contains(file, []byte(`"digest"`)) {
			s, err = planfile.Decode(kinds(), signed)
			file = signed
		}
		if err != nil {
			return
		}
		again, err := planfile.Encode(kinds(), s)
		if err != nil || !bytes.Equal(file, again) {
			t.Errorf("Decode accepted a file that Encode does not write (%v)", err)
		}
	})
}
