package znode

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/job"
)

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
