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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/plan/planfile"
)

// sign gives an edited file a digest that matches.
func sign(file []byte) []byte {
	digits := regexp.MustCompile(`(\n  "digest": ")[0-9a-f]{64}"`)
	blank := digits.ReplaceAll(file, []byte("${1}"+strings.Repeat("0", 64)+`"`))
	sum := sha256.Sum256(blank)
	return digits.ReplaceAll(file, []byte("${1}"+hex.EncodeToString(sum[:])+`"`))
}

func TestDecodeRefuses(t *testing.T) {
	const noMatch, notWritten = "digest does not match", "not as plan wrote it"
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
		name, file, says string
	}{
		{"empty", "", noMatch},
		{"cut_short", file[:len(file)/2], "cut short"},
		{"last_newline_missing", strings.TrimSuffix(file, "\n"), noMatch},
		{"trailing_bytes", file + "{}", noMatch},
		{"not_json", "job \"a\" {}", noMatch},
		{"next_major", edit(`"format_version": "1.0"`, `"format_version": "2.0"`), `"2.0"`},
		{"next_minor", edit(`"format_version": "1.0"`, `"format_version": "1.1"`), `"1.1"`},
		{"version_is_a_number", edit(`"format_version": "1.0"`, `"format_version": 1.0`), "format_version of type"},
		{"edited", strings.Replace(file, `"workers": 5`, `"workers": 6`, 1), noMatch},
		{"compacted", compact(), "formatted anew"},
		{"duplicate_key", edit(`"stack": "etl",`, `"stack": "etl",`+"\n"+`  "stack": "etl",`), notWritten},
		{"unknown_key", edit(`"unlisted": [`, `"force": true, "unlisted": [`), notWritten},
		{"unknown_key_in_a_row", edit(`"classic": true`, `"classic": true, "force": true`),
			"force: json: cannot unmarshal"},
		{"wrong_type", edit(`"workers": 5`, `"workers": "5"`), "workers does not fit there"},
		{"too_large_a_number", edit(`"version": 3`, `"version": 3000000000`), "version of type"},
		{"bad_time", edit(`"created": "2026`, `"created": "x2026`), "parsing time"},
		{"bad_duration", edit(`"session_timeout": "10s"`, `"session_timeout": "10"`), "is not a duration"},
		{"key_left_out", edit("        \"pzxid\": 0,\n", ""), notWritten},
		{"actions_contradict",
			edit("\"actions\": [\n          \"create\"\n        ]", "\"actions\": [\n          \"delete\"\n        ]"),
			notWritten},
		{"blocked_by_contradicts", edit("2 workers are live", "0 workers are live"), notWritten},
		{"unknown_reason", edit(`"action_reason": "equal"`, `"action_reason": "because"`),
			"contradicts the row's facts"},
		{"unknown_type", edit(`"type": "job"`, `"type": "znode"`), "is not known"},
		{"reserved_path", edit(`"path": "/jobs/gone"`, `"path": "/zookeeper/gone"`), "belongs to ZooKeeper"},
		{"unclean_path", edit(`"path": "/jobs/gone"`, `"path": "/jobs//gone"`), "slash at its end"},
		{"other_path", edit(`"path": "/jobs/create"`, `"path": "/jobs/other"`),
			"declares /jobs/create and changes /jobs/other"},
		{"other_job_observed", edit("\"path\": \"/jobs/gone\"", "\"path\": \"/jobs/gona\""),
			"it observed /jobs/gone and changes /jobs/gona"},
		{"companion_elsewhere", edit("/jobs/classic-lock", "/precious"), "/precious is no companion of /jobs/classic"},
		{"impossible_workers", edit(`"workers": 5`, `"workers": 0`), "workers: 0 is not between"},
		{"impossible_enum", edit(`"on_running": "keep"`, `"on_running": "kill"`), `on_running: "kill" is not known`},
		{"no_id", edit(`"id": "p1"`, `"id": ""`), "id: "},
		{"id_leads_elsewhere", edit(`"id": "p1"`, `"id": "../../x"`), "id: a plan name starts with"},
		{"id_too_long", edit(`"id": "p1"`, `"id": "`+strings.Repeat("p", 65)+`"`), "at most 64"},
		{"stack_leads_elsewhere", edit(`"stack": "etl",`+"\n"+`  "tls"`, `"stack": "../../x",`+"\n"+`  "tls"`),
			"stack: "},
		{"home_leads_elsewhere", edit(`"home": "/.muster"`, `"home": "/../x"`), "home: "},
		{"root_leads_elsewhere", edit("\"roots\": [\n    \"/jobs\"", "\"roots\": [\n    \"x/..\""), "roots: "},
		{"negative_timeout", edit(`"session_timeout": "10s"`, `"session_timeout": "-10s"`),
			"session_timeout: -10s is not between"},
		{"generation_leads_elsewhere", edit(`"generation": "g1"`, `"generation": "../../g1"`), "generation"},
		{"two_rows_of_one_path", twice, "two rows have the path"},
		{"rows_out_of_order", shuffled, "out of order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := planfile.Decode(kinds(), []byte(c.file))
			is := planfile.ErrDamaged
			if strings.HasPrefix(c.name, "next_") {
				is = planfile.ErrVersion
			}
			if !errors.Is(err, is) || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("error = %v, want %v that says %q", err, is, c.says)
			}
			if d := cmp.Diff(planfile.Saved{}, got); d != "" {
				t.Errorf("something was read:\n%s", d)
			}
		})
	}
}

// TestDecodeRefusesAWrongReason: a file with another reason is refused, even if all that follows from the reason and
// the digest fit it.
func TestDecodeRefusesAWrongReason(t *testing.T) {
	s := saved()
	for i, r := range s.Plan.Rows {
		for _, reason := range plan.Reasons() {
			if reason == r.Reason || reason.Action() != r.Action() || r.New == nil {
				continue // the order of the rows would be wrong too
			}
			forged := saved()
			forged.Plan.Rows[i].Reason = reason
			if _, err := planfile.Decode(kinds(), encode(t, forged)); !errors.Is(err, planfile.ErrDamaged) {
				t.Errorf("%s with reason %q: error = %v", r.Address(), reason, err)
			}
		}
	}
}

func TestDecodeRefusesALargeFile(t *testing.T) {
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
	f.Add([]byte(`{"format_version": "1.0", "created": "2026-01-01T00:00:00Z", ` +
		`"resource_changes": [{}, {"precondition": {}}]}`))
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
