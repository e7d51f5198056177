package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
)

// edited edits a Record as somebody with zkCli.sh does: the digest is not changed.
func edited(edit func(*resource.Record)) func(*resource.Observed) {
	return func(o *resource.Observed) { edit(o.Record) }
}

// diffOf compares what is declared at one path, if anything, with what is observed there.
func diffOf(want *job.Job, have *resource.Observed) plan.Plan {
	w, s := plan.Want{Stack: stack, TakeOver: []string{"old"}}, plan.State{Found: map[string]resource.Observed{}}
	if want != nil {
		w.Declared = declarations(*want)
	}
	if have != nil {
		s.Found[path] = *have
	}
	return plan.Diff(w, s)
}

func ptr(j job.Job) *job.Job { return &j }

// lines are the findings as "kind: because".
func lines(fs []plan.Finding) []string {
	var all []string
	for _, f := range fs {
		all = append(all, string(f.Kind)+": "+f.Because())
	}
	return all
}

func TestDriftKinds(t *testing.T) {
	moreWorkers := edited(editJob(workers(40)))
	for _, c := range []struct {
		name string
		want *job.Job
		have *resource.Observed
		find []string
	}{
		{"missing", ptr(declared()), nil, []string{"missing: no job znode"}},
		{"missing_may_have_completed_and_removed_itself", ptr(declared(onComplete(job.Remove))), nil, nil},
		{"ready", ptr(declared()), recorded(declared()), nil},
		{"forming", ptr(declared()), recorded(declared(), counts(2, 0, 2)), nil},
		{"running", ptr(declared()), recorded(declared(), counts(4, 0, 4)), nil},
		{"running_while_it_must_not", ptr(declared(failIfRunning)),
			recorded(declared(failIfRunning), counts(4, 0, 4)), nil},
		{"completed_and_not_tidied_up", ptr(declared()), recorded(declared(), counts(4, 4, 0)), nil},
		{"completed_and_retained", ptr(declared(onComplete(job.Retain))),
			recorded(declared(onComplete(job.Retain)), counts(4, 4, 0)), nil},
		{"stale", ptr(declared()), recorded(declared(), counts(4, 1, 0)),
			[]string{"stale: workers have joined and none is live: 4 of 4 joined, 0 live, 1 completed, 3 left"}},
		{"stale_and_pending", ptr(declared(workers(8))), recorded(declared(), counts(4, 0, 0)), []string{
			"stale: workers have joined and none is live: 4 of 4 joined, 0 live, 0 completed, 4 left",
			"pending: the record is as apply wrote it; 1 field differs from the declaration"}},
		{"degraded", ptr(declared()), recorded(declared(), counts(4, 1, 2)),
			[]string{"degraded: 4 of 4 joined, 2 live, 1 completed, 1 left"}},
		{"changed", ptr(declared()), recorded(declared(), moreWorkers),
			[]string{"changed: somebody other than muster changed its record; 1 field differs from the declaration"}},
		{"changed_to_what_is_declared", ptr(declared(workers(40))), recorded(declared(), moreWorkers),
			[]string{"changed: somebody other than muster changed its record"}},
		{"changed_owner", ptr(declared()), recorded(declared(), owner("thief")),
			[]string{"changed: somebody other than muster changed its record"}},
		{"changed_acl", ptr(declared()),
			recorded(declared(), edited(func(r *resource.Record) { r.ACL = []string{"world:anyone:r"} })),
			[]string{"changed: somebody other than muster changed its record"}},
		{"degraded_and_changed", ptr(declared()),
			recorded(declared(), counts(4, 0, 3), edited(editJob(protect))), []string{
				"changed: somebody other than muster changed its record; 1 field differs from the declaration",
				"degraded: 4 of 4 joined, 3 live, 0 completed, 1 left"}},
		{"pending", ptr(declared(label("a", "b"), protect)), recorded(declared()),
			[]string{"pending: the record is as apply wrote it; 2 fields differ from the declaration"}},
		{"pending_take_over", ptr(declared()), recordedBy("old", declared()),
			[]string{"pending: owned by stack old until the next apply"}},
		{"pending_after_terminate", ptr(declared()), recorded(declared(), counts(4, 0, 2), terminating),
			[]string{"pending: its workers were asked to stop; nobody can join before the next apply"}},
		{"orphan_ready", nil, recorded(declared()), []string{"orphan: owned by stack etl, not declared, ready"}},
		{"orphan_running", nil, recorded(declared(), counts(4, 0, 4)),
			[]string{"orphan: owned by stack etl, not declared, running"}},
		{"orphan_protected", nil, recorded(declared(protect)),
			[]string{"orphan: owned by stack etl, not declared, ready"}},
		{"foreign", ptr(declared()), foreign(),
			[]string{"foreign: a znode is there that is not a job: 12 bytes that are no roll"}},
		{"foreign_stack", ptr(declared()), recordedBy("theirs", declared(), counts(4, 0, 0)),
			[]string{"foreign: owned by stack theirs"}},
		{"foreign_classic", ptr(declared()), classic(4, 4), []string{"foreign: made by classic workers, running"}},
		{"stale_classic", ptr(declared()), classic(4, 0),
			[]string{"stale: workers have joined and none is live: 4 joined, 0 live"}},
		{"unmanaged_foreign", nil, foreign(), []string{"unmanaged: not a job: 12 bytes that are no roll"}},
		{"unmanaged_stack", nil, recordedBy("theirs", declared()), []string{"unmanaged: owned by stack theirs, ready"}},
		{"unmanaged_classic", nil, classic(4, 4), []string{"unmanaged: made by classic workers, running"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := diffOf(c.want, c.have).Drift(nil)
			if d := cmp.Diff(c.find, lines(d.Findings)); d != "" {
				t.Errorf("findings (-want +got):\n%s", d)
			}
			if d.Incomplete() || len(d.Ignored) > 0 {
				t.Errorf("incomplete, or ignored: %+v", d)
			}
			for _, f := range d.Findings {
				if (f.Proceed() == "") != (f.Kind == plan.DriftUnmanaged) {
					t.Errorf("%s: to proceed: %q", f.Kind, f.Proceed())
				}
			}
		})
	}
}

// recordedBy is an observation of a job that another stack applied.
func recordedBy(stack string, j job.Job, edits ...func(*resource.Observed)) *resource.Observed {
	o := recorded(j, append(edits, owner(stack))...)
	o.Record.Sign()
	return o
}

func TestDriftListsWhatCouldNotBeRead(t *testing.T) {
	want := plan.Want{Stack: stack, Declared: declarations(declared())}
	have := plan.State{
		Unlisted: []string{"/jobs"},
		Found:    map[string]resource.Observed{path: *unreadable(), "/jobs/b": *unreadable()},
	}
	p := plan.Diff(want, have)
	d := p.Drift(nil)
	if len(d.Findings) > 0 || !d.Incomplete() || len(d.Unreadable) != 2 || len(d.Unlisted) != 1 || d.Declared != 1 {
		t.Errorf("got %+v", d)
	}
	d = p.Drift([]resource.Ignore{{Address: "job.a"}, {Address: "/jobs/b"}})
	if len(d.Unreadable) != 0 || !d.Incomplete() {
		t.Errorf("ignored, got %+v", d)
	}
}

func TestIgnores(t *testing.T) {
	two := diffOf(ptr(declared(label("team", "data"), workers(8))), recorded(declared()))
	edited := diffOf(ptr(declared()),
		recorded(declared(), edited(editJob(func(j *job.Job) { j.Labels = map[string]string{"x": "y"} }))))
	for _, c := range []struct {
		name          string
		p             plan.Plan
		ignores       []resource.Ignore
		find, ignored string
	}{
		{"by_address", two, []resource.Ignore{{Address: "job.a"}}, "", "pending(workers labels.team)"},
		{"by_path", two, []resource.Ignore{{Address: path}}, "", "pending(workers labels.team)"},
		{"of_another_job", two, []resource.Ignore{{Address: "job.b"}}, "pending(workers labels.team)", ""},
		{"one_field", two, []resource.Ignore{{Address: "job.a", Fields: []string{"workers"}}}, "pending(labels.team)", ""},
		{"a_group_of_fields", two, []resource.Ignore{{Address: "job.a", Fields: []string{"labels"}}},
			"pending(workers)", ""},
		{"a_field_is_not_a_prefix", two, []resource.Ignore{{Address: "job.a", Fields: []string{"labels.te", "work"}}},
			"pending(workers labels.team)", ""},
		{"every_field", two, []resource.Ignore{{Address: "job.a", Fields: []string{"workers", "labels.team"}}},
			"", "pending(workers labels.team)"},
		{"every_field_in_two_blocks", two,
			[]resource.Ignore{{Address: "job.a", Fields: []string{"labels"}}, {Address: path, Fields: []string{"workers"}}},
			"", "pending(workers labels.team)"},
		{"an_edited_field", edited, []resource.Ignore{{Address: "job.a", Fields: []string{"labels"}}},
			"", "changed(labels.x)"},
		{"fields_of_an_edit_that_differs_in_none", diffOf(ptr(declared()), recorded(declared(), owner("thief"))),
			[]resource.Ignore{{Address: "job.a", Fields: []string{"labels"}}}, "changed()", ""},
		{"fields_of_a_job_to_be_taken_over",
			diffOf(ptr(declared(label("team", "data"))), recordedBy("old", declared())),
			[]resource.Ignore{{Address: "job.a", Fields: []string{"labels"}}}, "pending()", ""},
		{"fields_do_not_hide_a_missing_job", diffOf(ptr(declared()), nil),
			[]resource.Ignore{{Address: "job.a", Fields: []string{"labels"}}}, "missing()", ""},
		{"stale_is_not_hidden_by_fields", diffOf(ptr(declared(workers(8))), recorded(declared(), counts(4, 0, 0))),
			[]resource.Ignore{{Address: "job.a", Fields: []string{"workers"}}}, "stale()", "pending(workers)"},
		{"an_orphan_by_path", diffOf(nil, recorded(declared())), []resource.Ignore{{Address: path}}, "", "orphan()"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.p.Drift(c.ignores)
			if d := cmp.Diff([]string{c.find, c.ignored}, []string{names(d.Findings), names(d.Ignored)}); d != "" {
				t.Errorf("found and ignored (-want +got):\n%s", d)
			}
			for _, f := range d.Ignored {
				if f.Ignore == nil {
					t.Errorf("%s does not say what hides it", f.Kind)
				}
			}
		})
	}
}

func names(fs []plan.Finding) string {
	var all []string
	for _, f := range fs {
		var fields []string
		for _, c := range f.Changes {
			fields = append(fields, c.Name)
		}
		all = append(all, string(f.Kind)+"("+strings.Join(fields, " ")+")")
	}
	return strings.Join(all, " ")
}
