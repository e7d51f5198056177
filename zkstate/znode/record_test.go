package znode

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/resource"
	"muster/resource/job"
)

func someRecord(t *testing.T) resource.Record {
	t.Helper()
	j := job.Default()
	j.Name, j.Root, j.Address, j.Workers = "ingest-eu", "/jobs/prod", `job.ingest["eu"]`, 12
	j.Labels = map[string]string{"team": "data", "app": "etl"}
	r := resource.Record{
		Stack: "etl-prod", Home: "/.muster", Generation: "7f3a9c", State: resource.StateOpen, By: "ci@build",
		Applied: "2026-01-31T02:00:00Z", Op: "o1", ACL: []string{"world:anyone"},
	}
	last := job.Run{ID: "nightly-1", Generation: "66aa", Completed: "2026-01-30T02:10:00Z"}
	if err := errors.Join(r.Declare(j), job.SetLastRun(&r, last)); err != nil {
		t.Fatal(err)
	}
	return r
}

// recordJSON is someRecord encoded. docs/protocol.md and other programs depend on these names.
const recordJSON = `{"format":1,` +
	`"job":{"name":"ingest-eu","root":"/jobs/prod","address":"job.ingest[\"eu\"]","workers":12,` +
	`"roll_format":"protobuf","timeouts":{"session":"30s","join":"1m40s","barrier":"1m40s","stale":"30s"},` +
	`"lifecycle":{"on_complete":"reset","on_running":"keep","protect":false},` +
	`"labels":{"app":"etl","team":"data"}},` +
	`"stack":"etl-prod","home":"/.muster","generation":"7f3a9c","state":"open","by":"ci@build",` +
	`"applied":"2026-01-31T02:00:00Z","op":"o1","digest":"DIGEST","acl":["world:anyone"],` +
	`"last":{"id":"nightly-1","generation":"66aa","completed":"2026-01-30T02:10:00Z"}}`

func TestRecordIsWrittenAndRead(t *testing.T) {
	r := someRecord(t)
	got, err := EncodeRecord(r)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Replace(recordJSON, "DIGEST", r.Digest, 1), string(got)); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
	back, err := DecodeRecordAt(job.Kind(), "/jobs/prod/ingest-eu", got)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, back, cmpopts.IgnoreUnexported(resource.Record{})); d != "" {
		t.Errorf("record (-written +read):\n%s", d)
	}
	if back.Edited() {
		t.Error("it reads as edited")
	}
}

func TestRecordOfANewerMuster(t *testing.T) {
	newer := strings.Replace(recordJSON, `"stack"`, `"mood":{"x":[1]},"stack"`, 1)
	if _, err := DecodeRecord(job.Kind(), []byte(newer)); err != nil {
		t.Errorf("with a field nobody knows: %v", err)
	}
	for _, body := range []string{`{"format":2}`, `{"format":2,"job":"elsewhere"}`, `{"format":0}`} {
		if _, err := DecodeRecord(job.Kind(), []byte(body)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v, want ErrFormat", body, err)
		}
	}
}

func TestDecodeRecordSaysWhatIsDamaged(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"empty":          {recordJSON, "", "empty"},
		"not_json":       {recordJSON, "\x1b[2J", "invalid character"},
		"not_utf8":       {"ci@build", "\xff", "UTF-8"},
		"cut_short":      {recordJSON, recordJSON[:100], "unexpected end"},
		"two_values":     {recordJSON, recordJSON + "{}", "after top-level value"},
		"too_long":       {"ci@build", strings.Repeat("x", maxJSON), "allowed"},
		"no_format":      {`"format":1,`, "", "no format"},
		"format_text":    {`"format":1`, `"format":"1"`, "format"},
		"workers_text":   {`"workers":12`, `"workers":"12"`, "workers"},
		"workers_zero":   {`"workers":12`, `"workers":0`, "job.workers: 0 is not between 1 and 20000"},
		"workers_high":   {`"workers":12`, `"workers":20001`, "job.workers"},
		"no_job":         {`"job":`, `"jobs":`, "declares no job"},
		"name":           {`"ingest-eu"`, `"../etl"`, "job.name"},
		"root":           {`"/jobs/prod"`, `"/"`, "job.root"},
		"roll_format":    {`"protobuf"`, `"xml"`, "job.roll_format"},
		"timeout":        {`"session":"30s"`, `"session":"-30s"`, "job.timeouts"},
		"timeout_number": {`"session":"30s"`, `"session":30`, "session"},
		"on_complete":    {`"reset"`, `"explode"`, "job.lifecycle.on_complete"},
		"on_running":     {`"keep"`, `"explode"`, "job.lifecycle.on_running"},
		"no_stack":       {`"etl-prod"`, `""`, "stack"},
		"no_home":        {`"home":"/.muster",`, "", "home"},
		"generation":     {`"7f3a9c"`, `"../../x"`, "generation"},
		"state":          {`"open"`, `"ajar"`, `state: "ajar"`},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.Replace(recordJSON, c.old, c.new, 1)
			r, err := DecodeRecord(job.Kind(), []byte(body))
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrFormat) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if d := cmp.Diff(resource.Record{}, r, cmpopts.IgnoreUnexported(resource.Record{})); d != "" {
				t.Errorf("a record beside the error (-want +got):\n%s", d)
			}
		})
	}
}

func TestRecordOfAnotherJobIsRefused(t *testing.T) {
	_, err := DecodeRecordAt(job.Kind(), "/jobs/prod/other", []byte(recordJSON))
	if err == nil || !strings.Contains(err.Error(), `"/jobs/prod/ingest-eu"`) {
		t.Errorf("error %v, want one that names the job it belongs to", err)
	}
}

func TestEncodeRecordRefusesWhatDecodeWould(t *testing.T) {
	r := someRecord(t)
	r.Generation = ""
	if data, err := EncodeRecord(r); err == nil {
		t.Errorf("encoded as %s", data)
	}
	r = someRecord(t)
	r.By = strings.Repeat("x", maxJSON)
	if _, err := EncodeRecord(r); err == nil {
		t.Error("a record beyond the limit was encoded")
	}
}
