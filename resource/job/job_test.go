package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/job"
)

func valid() job.Job {
	j := job.Default()
	j.Name, j.Workers = "a", 4
	return j
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
		"timeouts.barrier":      func(j *job.Job) { j.Timeouts.Barrier = -1 },
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
	b.Workers, b.Timeouts.Stale, b.Lifecycle.Protect = 5, resource.Duration(time.Minute), true
	b.Address, b.At = "job.b", "jobs.hcl:3" // neither is compared
	var got []string
	for _, c := range resource.Changes(a, b) {
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
	if cs := resource.Changes(a, a); len(cs) > 0 {
		t.Errorf("a job differs from itself: %v", cs)
	}
}

func TestNamesOfRuns(t *testing.T) {
	for _, id := range []string{
		"monday", "2026-11-21T10:00:00+01:00", "build/1234", "sha256:ab#3?x=y", "tæller", strings.Repeat("é", 128),
	} {
		if err := job.CheckRun(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{
		"", " ", "x/ y", "a\nb", "a\tb", "a\u00a0b", "a\x1b[1mb", "a\u202eb", "a\xffb", strings.Repeat("a", 129),
	} {
		if job.CheckRun(id) == nil {
			t.Errorf("%q can be the name of a run", id)
		}
	}
}
