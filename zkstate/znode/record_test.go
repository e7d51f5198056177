package znode

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/apply/history"
	"muster/resource"
	"muster/resource/group"
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
	for _, body := range []string{`{"format":3}`, `{"format":3,"job":"elsewhere"}`, `{"format":0}`} {
		if _, err := DecodeRecord(job.Kind(), []byte(body)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v, want ErrFormat", body, err)
		}
	}
	if _, err := DecodeRecord(group.Kind(), []byte(`{"format":2}`)); !errors.Is(err, ErrFormat) {
		t.Errorf("a group of format 2: %v", err)
	}
}

// TestARecordHasTheLowestFormat that will do: a job that declares nothing new has the bytes that it always had.
func TestARecordHasTheLowestFormat(t *testing.T) {
	r := someRecord(t)
	j := job.Of(&r)
	j.IDs = job.ByIndex
	if err := r.Declare(j); err != nil {
		t.Fatal(err)
	}
	got, err := EncodeRecord(r)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("DIGEST", r.Digest, `"format":1`, `"format":2`,
		`"roll_format":"protobuf",`, `"roll_format":"protobuf","ids":"index",`).Replace(recordJSON)
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
	back, err := DecodeRecord(job.Kind(), got)
	if d := cmp.Diff(r, back, cmpopts.IgnoreUnexported(resource.Record{})); d != "" || err != nil {
		t.Errorf("record, %v (-written +read):\n%s", err, d)
	}
}

func TestDecodeRecordSaysWhatIsDamaged(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"empty":          {recordJSON, "", "empty"},
		"not_json":       {recordJSON, "\x1b[2J", "it is not JSON, at byte 1"},
		"not_utf8":       {"ci@build", "\xff", "UTF-8"},
		"cut_short":      {recordJSON, recordJSON[:100], "not JSON, at byte 100"},
		"two_values":     {recordJSON, recordJSON + "{}", "not JSON, at byte"},
		"too_long":       {"ci@build", strings.Repeat("x", maxJSON), "allowed"},
		"no_format":      {`"format":1,`, "", "no format"},
		"format_low":     {`"protobuf"`, `"protobuf","ids":"index"`, "format: it is 1, and the job needs 2"},
		"format_high":    {`"format":1`, `"format":2`, "format: it is 2, and the job needs 1"},
		"ids":            {`"protobuf"`, `"protobuf","ids":"luck"`, "job.ids"},
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

func exampleEntry() history.Entry {
	at := time.Date(2026, 1, 31, 3, 4, 5, 0, time.UTC)
	e := history.Entry{
		Plan: "p1", Saved: true, Planned: map[string]int{"create": 1, "delete": 2}, Finished: at.Add(time.Minute),
		Done: map[string]int{"create": 1}, Results: map[string]int{"applied": 1, "refused": 2},
	}
	e.SetChanges([]history.Change{
		{Action: "delete", Path: "/jobs/a"},
		{Action: "update", Path: "/jobs/b", Fields: []resource.Change{{Name: "workers", Old: new("1"), New: new("2")}}},
	})
	return e.Begin("runner@build", "1.0", history.Who{
		Actor: "ann", CI: "GitHub Actions", Commit: "c0ffee", URL: "https://ci.example/runs/7?a=1&b=2",
	}, at)
}

func TestEntryIsWrittenAndRead(t *testing.T) {
	const want = `{"op":"o1","by":"runner@build","actor":"ann","ci":"GitHub Actions","commit":"c0ffee",` +
		`"url":"https://ci.example/runs/7?a=1&b=2","muster_version":"1.0","plan":"p1","saved":true,` +
		`"started":"2026-01-31T03:04:05Z","finished":"2026-01-31T03:05:05Z","planned":{"create":1,"delete":2},` +
		`"done":{"create":1},"results":{"applied":1,"refused":2},"changes":[` +
		`{"action":"delete","path":"/jobs/a"},{"action":"update","path":"/jobs/b",` +
		`"fields":[{"field":"workers","recorded":"1","declared":"2"}]}]}`
	isWrittenAndRead(t, want, Entry{Op: "o1", Entry: exampleEntry()})
	newer := strings.TrimSuffix(want, "}") + `,"approved_by":"bob","settled":null}`
	if got, err := rewritten[Entry]([]byte(newer)); err != nil || string(got) != want {
		t.Errorf("more fields: %s, %v", got, err)
	}
}

// TestLargestEntryFits: whatever somebody puts into the environment, an entry can be written.
func TestLargestEntryFits(t *testing.T) {
	for _, bad := range []string{`"`, `\`, "\x00", "\u2028", "<", "ü", "\xff"} {
		long := strings.Repeat(bad, 4096)
		var e history.Entry
		e.SetChanges(slices.Repeat([]history.Change{{Action: "replace", Path: "/" + long[:60], Fields: slices.Repeat(
			[]resource.Change{{Name: "workers", Old: new(long[:14]), New: new(long[:14])}}, 3)}}, 200))
		e.Plan, e.Planned = strings.Repeat("p", maxToken), map[string]int{"create": 1 << 40, "delete": 1 << 40}
		e.Results = e.Planned
		e = e.Begin(long, long, history.Who{
			Actor: long, CI: long, Commit: long, URL: "https://ci.example/" + strings.Repeat("&", 1000),
		}, time.Now())
		body, err := Encode(Entry{Op: strings.Repeat("o", maxToken), Entry: e})
		if err != nil {
			t.Errorf("%q: %v", bad, err)
			continue
		}
		if _, err := Decode[Entry](body); err != nil {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestDecodeEntrySaysWhatIsDamaged(t *testing.T) {
	isDamaged[Entry](t, map[string]string{
		"":                                 "empty",
		"{}":                               "who",
		"null":                             "who",
		`{"by":"a","started":"yesterday"}`: "yesterday",
		`{"by":"a"}`:                       "when",
		`{"by":["a"]}`:                     "by",
		`{"by":"a","started":"2026-01-31T03:04:05Z","planned":{"create":-1}}`:                          "-1",
		`{"by":"a","started":"2026-01-31T03:04:05Z","url":"javascript:x"}`:                             "address",
		`{"by":"a","started":"2026-01-31T03:04:05Z","url":"https://u:p@x/"}`:                           "address",
		`{"by":"` + strings.Repeat("a", 70000) + `"}`:                                                  "65536",
		`{"by":"a","started":"2026-01-31T03:04:05Z","changes":[` + strings.Repeat(`{},`, 100) + `{}]}`: "101 changes",
		"\xff": "UTF-8",
	})
}

func FuzzDecodeEntry(f *testing.F) {
	body, err := Encode(Entry{Op: "o1", Entry: exampleEntry()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"by":"a","started":"2026-01-31T03:04:05Z"}`))
	fuzzBody[Entry](f)
}

func TestMarkIsWrittenAndRead(t *testing.T) {
	at := time.Date(2026, 1, 31, 3, 4, 5, 999, time.FixedZone("", 3600))
	isWrittenAndRead(t, `{"who":"ci@build","what":"apply","since":"2026-01-31T02:04:05Z","plan":"p1","op":"o1"}`,
		Mark{Who: "ci@build", What: "apply", Since: at, Plan: "p1", Op: "o1"})
}

// TestMarkNamesWhoAsked: with the address of the run, but no password in it.
func TestMarkNamesWhoAsked(t *testing.T) {
	at := time.Date(2026, 1, 31, 3, 4, 5, 0, time.UTC)
	body, err := Encode(Mark{
		Who: "runner@build", What: "apply", Since: at, Actor: "ann", URL: "https://u:p@ci.example/runs/7",
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Decode[Mark](body)
	if err != nil {
		t.Fatal(err)
	}
	want := "ann (runner@build) holds it since 2026-01-31T03:04:05Z (apply), https://ci.example/runs/7"
	if m.String() != want {
		t.Errorf("%s, want %s", m, want)
	}
	if m.Actor = m.Who; m.Name() != "runner@build" {
		t.Errorf("named %q", m.Name())
	}
}

func TestDecodeMarkSaysWhatIsDamaged(t *testing.T) {
	isDamaged[Mark](t, map[string]string{
		"":                                "empty",
		"{}":                              "who",
		`{"who":"a","since":"yesterday"}`: "yesterday",
		`{"who":["a"]}`:                   "who",
	})
}

// testdata/records holds Records: "present" as it is written now, and "newer" invented, with more or fewer fields than
// this muster knows.

// recordedJobs are the jobs that the files of testdata/records declare.
func recordedJobs() map[string]job.Job {
	declare := func(root, name, address string, workers int, edits ...func(*job.Job)) job.Job {
		j := job.Default()
		j.Root, j.Name, j.Address, j.Workers = root, name, address, workers
		for _, edit := range edits {
			edit(&j)
		}
		return j
	}
	full := declare("/jobs/guarded", "full", `job.full["eu"]`, 1, func(j *job.Job) {
		j.RollFormat, j.Lifecycle.OnRunning, j.Lifecycle.Protect = job.Text, job.Fail, true
		for to, text := range map[*resource.Duration]string{
			&j.Timeouts.Session: "20s", &j.Timeouts.Join: "95s", &j.Timeouts.Barrier: "1m", &j.Timeouts.Stale: "5m",
		} {
			_ = to.UnmarshalText([]byte(text)) // these texts always decode
		}
		j.Labels = map[string]string{"team": "data & <co>", "on-call": "größe@example.com"}
	})
	return map[string]job.Job{
		"present-full.json": full,
		"newer-more.json": declare("/jobs/prod", "more", "job.more", 8, func(j *job.Job) {
			j.Labels = map[string]string{"team": "data"}
		}),
		"newer-less.json": declare("/jobs/prod", "less", "", 8, func(j *job.Job) {
			_ = j.Timeouts.Session.UnmarshalText([]byte("45s"))
		}),
	}
}

func readRecord(t *testing.T, file string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "records", file))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// TestRecordsOfOtherVersionsAreRead: none counts as edited, and none differs from its job.
func TestRecordsOfOtherVersionsAreRead(t *testing.T) {
	files, err := filepath.Glob("testdata/records/*")
	if err != nil || len(files) != len(recordedJobs()) {
		t.Errorf("%v: the files are %v, want one for each of recordedJobs", err, files)
	}
	for file, want := range recordedJobs() {
		r, err := DecodeRecordAt(job.Kind(), want.Path(), readRecord(t, file))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if r.Edited() {
			t.Errorf("%s counts as edited", file)
		}
		if cs := resource.Changes(want, r.Declaration); len(cs) > 0 || job.Of(&r).Address != want.Address {
			t.Errorf("%s differs from its declaration: %+v", file, cs)
		}
		again, err := EncodeRecord(r)
		d := cmp.Diff(flat(t, readRecord(t, file)), flat(t, again), cmp.FilterPath(isOp, cmp.Ignore()))
		if err != nil || d != "" {
			t.Errorf("%s is written with other values, %v (-read +written):\n%s", file, err, d)
		}
	}
}

// isOp selects the op: a Record without one is written with an empty one.
func isOp(p cmp.Path) bool {
	at, ok := p.Last().(cmp.MapIndex)
	return ok && at.Key().String() == "op"
}

// TestRecordsOfOtherVersionsAreKept: a reset and a request to stop change only their own fields. They keep
// unknown ones, and the digest still matches.
func TestRecordsOfOtherVersionsAreKept(t *testing.T) {
	changes := map[string]struct {
		change  func(r *resource.Record) error
		changed []string // in the record, by dotted names
	}{
		"reset": {func(r *resource.Record) error {
			g := r.Generation
			r.Generation, r.Op = "0123456789abcdef0123456789abcdef", "o2"
			return job.SetLastRun(r, job.Run{ID: "r2", Generation: g, Completed: "2026-11-22T00:00:00Z"})
		}, []string{"op", "generation", "last.id", "last.generation", "last.completed"}},
		"terminate": {func(r *resource.Record) error {
			r.State, r.Op = resource.StateTerminating, "o2"
			return nil
		}, []string{"op", "state"}},
		"no_roll": {func(r *resource.Record) error { return job.SetNoRoll(r, r.Generation) }, []string{"no_roll"}},
	}
	for file, declared := range recordedJobs() {
		for name, c := range changes {
			t.Run(name+"/"+file, func(t *testing.T) {
				r, err := DecodeRecordAt(job.Kind(), declared.Path(), readRecord(t, file))
				if err != nil {
					t.Fatal(err)
				}
				if err := c.change(&r); err != nil {
					t.Fatal(err)
				}
				body, err := EncodeRecord(r)
				if err != nil {
					t.Fatal(err)
				}
				back, err := DecodeRecordAt(job.Kind(), declared.Path(), body)
				if err != nil || back.Edited() {
					t.Errorf("%v; edited %v:\n%s", err, back.Edited(), body)
				}
				was, is := flat(t, readRecord(t, file)), flat(t, body)
				for _, at := range slices.Sorted(maps.Keys(was)) {
					if was[at] != is[at] && !slices.Contains(c.changed, at) {
						t.Errorf("%s was %s and is %s", at, was[at], is[at])
					}
				}
			})
		}
	}
}

// flat maps the dotted names in a JSON object to their values.
func flat(t *testing.T, body []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	var walk func(prefix string, body json.RawMessage)
	walk = func(prefix string, body json.RawMessage) {
		var object map[string]json.RawMessage
		if json.Unmarshal(body, &object) != nil || object == nil {
			all[prefix] = string(body)
		}
		for key, value := range object {
			walk(strings.TrimPrefix(prefix+"."+key, "."), value)
		}
	}
	walk("", body)
	return all
}
