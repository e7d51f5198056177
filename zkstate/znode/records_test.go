package znode

import (
	"crypto/sha256"
	"encoding/hex"
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

// testdata/records holds Records of other versions: the files "first" hold the bytes of the first release, "present"
// was written with the home and with resolved ACLs, and "newer" is invented, with more or fewer fields than this muster
// knows.

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
		"first-plain.json":   declare("/jobs/prod", "plain", "job.plain", 4),
		"first-full.json":    full,
		"first-no_roll.json": declare("/test-b6e00af57e48f8dfa22bd5bb6baf1906", "j", "", 60),
		"present-full.json":  full,
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

// TestRecordsOfOtherVersionsAreKept: an update, a reset and a request to stop change only their own fields. They keep
// unknown fields, and the digest still matches.
func TestRecordsOfOtherVersionsAreKept(t *testing.T) {
	changes := map[string]struct {
		change  func(r *resource.Record) error
		changed []string // in the record, by dotted names
	}{
		"update": {func(r *resource.Record) error {
			j := job.Of(r)
			j.Labels, j.Timeouts.Join = map[string]string{"team": "web"}, j.Timeouts.Join*2
			r.Op, r.By, r.Applied = "o2", "me@here", "2026-11-22T00:00:00Z"
			return r.Declare(j)
		}, []string{"op", "by", "applied", "digest", "job.labels.team", "job.labels.on-call", "job.timeouts.join"}},
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
				if !strings.HasPrefix(file, "newer-") && firstEdited(t, body) {
					t.Errorf("the first version says that it was edited:\n%s", body)
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

// firstEdited reports whether the first release takes a Record for edited: it decodes the job, encodes it again and
// compares the digest of that.
func firstEdited(t *testing.T, body []byte) bool {
	t.Helper()
	type declared struct {
		Name       string `json:"name"`
		Root       string `json:"root"`
		Address    string `json:"address,omitempty"`
		Workers    int    `json:"workers"`
		RollFormat string `json:"roll_format"`
		Timeouts   struct {
			Session string `json:"session"`
			Join    string `json:"join"`
			Barrier string `json:"barrier"`
			Stale   string `json:"stale"`
		} `json:"timeouts"`
		Lifecycle struct {
			OnComplete string `json:"on_complete"`
			OnRunning  string `json:"on_running"`
			Protect    bool   `json:"protect"`
		} `json:"lifecycle"`
		Labels map[string]string `json:"labels,omitempty"`
	}
	var r struct {
		Job    declared
		Stack  string
		Digest string
		ACL    []string
	}
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	digested, err := json.Marshal(struct {
		Job   declared
		Stack string
		ACL   []string
	}{r.Job, r.Stack, r.ACL})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(digested)
	return hex.EncodeToString(sum[:]) != r.Digest
}
