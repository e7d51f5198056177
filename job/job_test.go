package job_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/job"
)

func valid() job.Job {
	j := job.Default()
	j.Name, j.Workers = "a", 4
	return j
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "A-b_c.d", "0", "run", strings.Repeat("n", job.MaxName)} {
		if err := job.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", job.Reserved, ".a", "-a", "_a", "a/b", "a b", "ä", "a\x00", "a\u202e", strings.Repeat("n", job.MaxName+1)} {
		if err := job.CheckName(name); err == nil {
			t.Errorf("%q may be a job's name", name)
		}
	}
}

func TestCheckRoot(t *testing.T) {
	for _, root := range []string{"/muster", "/jobs/prod", "/a.b/c d", "/zookeeper2"} {
		if err := job.CheckRoot(root); err != nil {
			t.Errorf("%q: %v", root, err)
		}
	}
	for _, root := range []string{
		"", "/", "jobs", "/jobs/", "//jobs", "/jobs//a", "/jobs/.", "/jobs/../a", "/zookeeper", "/zookeeper/quota",
		"/.muster", "/jobs/.muster/job", "/jobs\n", "/ä", "/" + strings.Repeat("r", 512),
	} {
		if err := job.CheckRoot(root); err == nil {
			t.Errorf("%q may be a root", root)
		}
	}
}

func TestCheckHome(t *testing.T) {
	for _, home := range []string{"/.muster", "/jobs/.muster", "/locks"} {
		if err := job.CheckHome(home); err != nil {
			t.Errorf("%q: %v", home, err)
		}
	}
	for _, home := range []string{"", "/", ".muster", "//.muster", "/../.muster", "/.muster/.muster", "/.muster/x", "/.muster/", "/zookeeper/.muster"} {
		if err := job.CheckHome(home); err == nil {
			t.Errorf("%q may be a home", home)
		}
	}
}

func TestCheckNamesTheValue(t *testing.T) {
	if err := valid().Check(); err != nil {
		t.Errorf("a valid job: %v", err)
	}
	for field, edit := range map[string]func(*job.Job){
		"name":                  func(j *job.Job) { j.Name = "" },
		"root":                  func(j *job.Job) { j.Root = "/" },
		"workers":               func(j *job.Job) { j.Workers = job.MaxWorkers + 1 },
		"roll_format":           func(j *job.Job) { j.RollFormat = "xml" },
		"timeouts":              func(j *job.Job) { j.Timeouts.Barrier = -1 },
		"lifecycle.on_complete": func(j *job.Job) { j.Lifecycle.OnComplete = "" },
		"lifecycle.on_running":  func(j *job.Job) { j.Lifecycle.OnRunning = "kill" },
	} {
		j := valid()
		edit(&j)
		if err := j.Check(); err == nil || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%s: error = %v", field, err)
		}
	}
}

func TestChangesAreInTheOrderOfFields(t *testing.T) {
	a, b := valid(), valid()
	a.Labels = map[string]string{"gone": "1", "same": "x", "team": "a"}
	b.Labels = map[string]string{"new": "", "same": "x", "team": "b"}
	b.Workers, b.Timeouts.Stale, b.Lifecycle.Protect = 5, job.Duration(time.Minute), true
	b.Address, b.At = "job.b", "jobs.hcl:3" // neither is compared
	var got []string
	for _, c := range job.Changes(a, b) {
		side := func(s *string) string {
			if s == nil {
				return "nil"
			}
			return *s
		}
		line := c.Name + " " + side(c.Old) + " -> " + side(c.New)
		if c.Immutable {
			line += " immutable"
		}
		got = append(got, line)
	}
	want := []string{
		"workers 4 -> 5 immutable", "timeouts.stale 30s -> 1m", "lifecycle.protect false -> true",
		"labels.new nil -> ", "labels.team a -> b", "labels.gone 1 -> nil",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	if cs := job.Changes(a, a); len(cs) > 0 {
		t.Errorf("a job differs from itself: %v", cs)
	}
}

func TestDurationsAreWrittenShort(t *testing.T) {
	for text, want := range map[string]string{
		"100s": "1m40s", "60s": "1m", "1h": "1h", "90m": "1h30m", "1h0m5s": "1h0m5s", "10m": "10m", "0s": "0s", "1500ms": "1.5s", "-2m": "-2m",
	} {
		var d job.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if d.String() != want {
			t.Errorf("%s is written %s, want %s", text, d, want)
		}
	}
	var d job.Duration
	if err := d.UnmarshalText([]byte("100")); err == nil {
		t.Error("a number without a unit is a duration")
	}
}

func TestAnEditedRecordDoesNotVerify(t *testing.T) {
	r := job.Record{Job: valid(), Stack: "etl", Generation: "g1", State: job.Open}
	r.Digest = r.Sum()
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again job.Record
	if err := json.Unmarshal(body, &again); err != nil {
		t.Fatal(err)
	}
	if again.Edited() {
		t.Error("a record that was only read back counts as edited")
	}
	again.State, again.Generation, again.ACL = job.Terminating, "g2", []string{}
	if again.Edited() {
		t.Error("state and generation are not the declaration's")
	}
	again.Job.Workers++
	if !again.Edited() {
		t.Error("an edited declaration verifies")
	}
}

func TestJoin(t *testing.T) {
	for want, got := range map[string]string{
		"/a": job.Join("/", "a"), "/r/a/b": job.Join("/r", "a", "b"), "/r": job.Join("/r"),
	} {
		if got != want {
			t.Errorf("joined %q, want %q", got, want)
		}
	}
}

func TestNamesOfRuns(t *testing.T) {
	for _, id := range []string{"monday", "2026-11-21T10:00:00+01:00", "build/1234", "sha256:ab#3?x=y", "tæller", strings.Repeat("é", 128)} {
		if err := job.CheckRun(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"", " ", "x/ y", "a\nb", "a\tb", "a\u00a0b", "a\x1b[1mb", "a\u202eb", "a\xffb", strings.Repeat("a", 129)} {
		if job.CheckRun(id) == nil {
			t.Errorf("%q can be the name of a run", id)
		}
	}
}
