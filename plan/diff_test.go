package plan_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
)

// TestActionTable has at least one case for each row of the action table, in its order. If two rows match, the case
// shows which of them is tried first.
func TestActionTable(t *testing.T) {
	with := func(edits ...func(*job.Job)) *job.Job {
		j := declared(edits...)
		return &j
	}
	four, retained := declared(), declared(onComplete(job.Retain))
	live, forming, degraded := counts(4, 0, 4), counts(2, 0, 2), counts(4, 0, 3)
	for _, c := range []struct {
		name   string
		reason plan.Reason
		action plan.Action
		new    *job.Job           // as declared; nil is not declared
		old    *resource.Observed // as observed; nil is missing
	}{
		{"declared_foreign", plan.IsForeign, plan.Blocked, with(), foreign()},
		{"declared_unreadable", plan.IsUnreadable, plan.Blocked, with(), unreadable()},
		{"foreign_before_protect", plan.IsForeign, plan.Blocked, with(protect), foreign()},
		{"other_stack", plan.OtherStack, plan.Blocked, with(), recorded(four, owner("x"))},
		{"other_stack_before_terminating", plan.OtherStack, plan.Blocked, with(),
			recorded(four, owner("x"), live, terminating)},
		{"other_stack_before_protect", plan.OtherStack, plan.Blocked, with(protect),
			recorded(four, owner("x"), counts(4, 0, 0))},
		{"stopping", plan.MembersStopping, plan.Blocked, with(), recorded(four, live, terminating)},
		{"stopping_before_on_running", plan.MembersStopping, plan.Blocked, with(failIfRunning),
			recorded(four, live, terminating)},
		{"stopping_undeclared", plan.MembersStopping, plan.Blocked, nil, recorded(four, live, terminating)},
		{"protected_stale", plan.IsProtected, plan.Blocked, with(protect), recorded(four, counts(4, 0, 0))},
		{"protected_ready_immutable", plan.IsProtected, plan.Blocked, with(workers(5), protect), recorded(four)},
		{"protected_completed", plan.IsProtected, plan.Blocked, with(protect), recorded(four, counts(4, 4, 0))},
		{"protected_terminated", plan.IsProtected, plan.Blocked, with(protect),
			recorded(four, counts(4, 0, 0), terminating)},
		{"protected_classic", plan.IsProtected, plan.Blocked, with(protect), classic(4, 0)},
		{"protect_declared_off_wins_over_recorded", plan.StaleLeftover, plan.Replace, with(),
			recorded(declared(protect), counts(4, 0, 0))},
		{"protected_undeclared", plan.IsProtected, plan.Blocked, nil, recorded(declared(protect))},
		{"protect_does_not_stop_update", plan.MutableDiffers, plan.Update, with(protect), recorded(four)},
		{"protect_does_not_stop_create", plan.NotThere, plan.Create, with(protect), nil},
		{"protected_live_undeclared", plan.UndeclaredLive, plan.LeftRunning, nil, recorded(declared(protect), live)},
		{"missing", plan.NotThere, plan.Create, with(), nil},
		{"on_running_fail_running", plan.AlreadyRunning, plan.Blocked, with(failIfRunning),
			recorded(declared(failIfRunning), live)},
		{"on_running_fail_forming", plan.AlreadyRunning, plan.Blocked, with(failIfRunning),
			recorded(declared(failIfRunning), forming)},
		{"on_running_fail_degraded", plan.AlreadyRunning, plan.Blocked, with(failIfRunning),
			recorded(declared(failIfRunning), degraded)},
		{"on_running_fail_classic", plan.AlreadyRunning, plan.Blocked, with(failIfRunning), classic(4, 4)},
		{"on_running_fail_ready", plan.Equal, plan.None, with(failIfRunning), recorded(declared(failIfRunning))},
		{"classic_live", plan.ClassicLive, plan.Blocked, with(), classic(4, 4)},
		{"classic_stale", plan.ClassicLeftover, plan.Replace, with(), classic(4, 0)},
		{"classic_ready", plan.ClassicLeftover, plan.Replace, with(), classic(0, 0)},
		{"ready_equal", plan.Equal, plan.None, with(), recorded(four)},
		{"running_equal", plan.Equal, plan.None, with(), recorded(four, live)},
		{"degraded_equal", plan.Equal, plan.None, with(), recorded(four, degraded)},
		{"forming_none_live_equal", plan.Equal, plan.None, with(), recorded(four, counts(2, 2, 0))},
		{"address_is_not_compared", plan.Equal, plan.None, with(func(j *job.Job) { j.Address = "job.b" }),
			recorded(four)},
		{"ready_label", plan.MutableDiffers, plan.Update, with(label("team", "data")), recorded(four)},
		{"running_timeout", plan.MutableDiffers, plan.Update, with(func(j *job.Job) { j.Timeouts.Join++ }),
			recorded(four, live)},
		{"forming_label", plan.MutableDiffers, plan.Update, with(label("team", "data")), recorded(four, forming)},
		{"completed_retain_label", plan.MutableDiffers, plan.Update, with(onComplete(job.Retain), label("k", "v")),
			recorded(retained, counts(4, 4, 0))},
		{"record_edited", plan.RecordEdited, plan.Update, with(), recorded(four, otherACL)},
		{"record_edited_live", plan.RecordEdited, plan.Update, with(), recorded(four, otherACL, live)},
		{"taken_over", plan.OwnerDiffers, plan.Update, with(), recorded(four, owner("old"))},
		{"taken_over_live", plan.OwnerDiffers, plan.Update, with(), recorded(four, owner("old"), live)},
		{"taken_over_completed_retain", plan.OwnerDiffers, plan.Update, with(onComplete(job.Retain)),
			recorded(retained, owner("old"), counts(4, 4, 0))},
		{"taken_over_stale", plan.StaleLeftover, plan.Replace, with(), recorded(four, owner("old"), counts(4, 0, 0))},
		{"ready_workers", plan.ReadyDiffers, plan.Replace, with(workers(5)), recorded(four)},
		{"ready_roll_format", plan.ReadyDiffers, plan.Replace, with(func(j *job.Job) { j.RollFormat = job.Text }),
			recorded(four)},
		{"running_workers", plan.LiveDiffers, plan.Blocked, with(workers(5)), recorded(four, live)},
		{"forming_none_live_workers", plan.LiveDiffers, plan.Blocked, with(workers(5)),
			recorded(four, counts(2, 2, 0))},
		{"stale_equal", plan.StaleLeftover, plan.Replace, with(), recorded(four, counts(4, 3, 0))},
		{"stale_workers", plan.StaleLeftover, plan.Replace, with(workers(5)), recorded(four, counts(4, 0, 0))},
		{"terminated", plan.TerminatedIdle, plan.Replace, with(), recorded(four, counts(4, 0, 0), terminating)},
		{"completed_retain_equal", plan.CompletedKept, plan.None, with(onComplete(job.Retain)),
			recorded(retained, counts(4, 4, 0))},
		{"completed_reset", plan.CompletedDone, plan.Replace, with(), recorded(four, counts(4, 4, 0))},
		{"completed_retain_no_longer", plan.CompletedDone, plan.Replace, with(), recorded(retained, counts(4, 4, 0))},
		{"completed_retain_workers", plan.CompletedDone, plan.Replace, with(onComplete(job.Retain), workers(5)),
			recorded(retained, counts(4, 4, 0))},
		{"undeclared_ready", plan.Undeclared, plan.Delete, nil, recorded(four)},
		{"undeclared_stale", plan.Undeclared, plan.Delete, nil, recorded(four, counts(4, 1, 0))},
		{"undeclared_completed", plan.Undeclared, plan.Delete, nil, recorded(retained, counts(4, 4, 0))},
		{"undeclared_terminated", plan.Undeclared, plan.Delete, nil, recorded(four, counts(4, 0, 0), terminating)},
		{"undeclared_live", plan.UndeclaredLive, plan.LeftRunning, nil, recorded(four, live)},
		{"undeclared_forming_none_live", plan.UndeclaredLive, plan.LeftRunning, nil, recorded(four, counts(2, 2, 0))},
		{"undeclared_other_stack", plan.NotOurs, plan.Unmanaged, nil, recorded(four, owner("x"))},
		{"undeclared_take_over_stack", plan.NotOurs, plan.Unmanaged, nil, recorded(four, owner("old"))},
		{"undeclared_foreign", plan.NotOurs, plan.Unmanaged, nil, foreign()},
		{"undeclared_unreadable", plan.NotOurs, plan.Unmanaged, nil, unreadable()},
		{"undeclared_classic", plan.NotOurs, plan.Unmanaged, nil, classic(4, 0)},
		{"stranger_among_workers", plan.LiveDiffers, plan.Blocked, with(workers(5)),
			recorded(four, live, strangers("notes"))},
		{"stranger_alone_blocks_a_change", plan.StrangerChildren, plan.Blocked, with(workers(5)),
			recorded(four, strangers("notes"))},
		{"stranger_alone_blocks_a_delete", plan.StrangerChildren, plan.Blocked, nil,
			recorded(four, strangers("notes"))},
		{"stranger_among_undeclared_workers", plan.UndeclaredLive, plan.LeftRunning, nil,
			recorded(four, live, strangers("notes"))},
		{"stranger_below_terminated", plan.StrangerChildren, plan.Blocked, nil,
			recorded(four, counts(4, 4, 0), terminating, strangers("notes"))},
		{"stranger_does_not_block_update", plan.MutableDiffers, plan.Update, with(label("k", "v")),
			recorded(four, live, strangers("notes"))},
		{"completed_with_child_is_not_replaced", plan.StrangerChildren, plan.Blocked, with(),
			recorded(four, counts(4, 4, 1))},
		{"completed_with_child_is_not_deleted", plan.StrangerChildren, plan.Blocked, nil,
			recorded(four, counts(4, 4, 1))},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := plan.Want{Stack: stack, TakeOver: []string{"old"}}
			if c.new != nil {
				want.Declared = append(want.Declared, *c.new)
			}
			have := plan.State{Found: map[string]resource.Observed{}}
			if c.old != nil {
				have.Found[path] = *c.old
			}
			p := plan.Diff(want, have)
			wantRows := []plan.Row{{Path: path, Old: c.old, New: declaration(c.new), Reason: c.reason}}
			if d := cmp.Diff(wantRows, p.Rows); d != "" {
				t.Errorf("rows (-want +got):\n%s", d)
			}
			if got := p.Rows[0].Action(); got != c.action {
				t.Errorf("action = %q, want %q", got, c.action)
			}
			for _, r := range plan.Diff(want, p.After(have)).Rows {
				if r.Action().Changes() {
					t.Errorf("a second apply would %s", r.Title())
				}
			}
		})
	}
}

func TestEveryReasonHasWords(t *testing.T) {
	old := recorded(declared(), counts(4, 0, 2))
	old.Lost = []resource.Part{resource.PartGate}
	for _, reason := range plan.Reasons() {
		j := declared(workers(5))
		r := plan.Row{Path: path, Old: old, New: &j, Reason: reason}
		if r.Title() == "" || r.Because() == "" {
			t.Errorf("%s: title %q, because %q", reason, r.Title(), r.Because())
		}
		if blocked := r.Action() == plan.Blocked; blocked && r.Proceed() == "" {
			t.Errorf("%s: blocked, and nothing says how to proceed", reason)
		}
		for _, text := range []string{r.Title(), r.Because(), r.Proceed()} {
			if i := slices.Index([]byte(text), '{'); i >= 0 {
				t.Errorf("%s: %q has a word in braces", reason, text)
			}
		}
	}
	if got := plan.Reason("no such reason").Action(); got != plan.Unmanaged {
		t.Errorf("an unknown reason's action is %q, want one that changes nothing", got)
	}
}

func TestRowsAreListedByActionThenAddress(t *testing.T) {
	want := plan.Want{Stack: stack}
	have := plan.State{Found: map[string]resource.Observed{}}
	add := func(name string, o *resource.Observed, edits ...func(*job.Job)) {
		j := declared(edits...)
		j.Name, j.Address = name, "job."+name
		want.Declared = append(want.Declared, j)
		if o != nil {
			have.Found[j.Path()] = *o
		}
	}
	add("f", recorded(declared(), counts(4, 0, 4)))
	add("e", recorded(declared(), counts(4, 0, 4)), workers(5))
	add("d", recorded(declared()), label("k", "v"))
	add("c", recorded(declared(), counts(4, 0, 0)))
	add("b", nil)
	add("a", nil)
	have.Found["/jobs/z"] = *recorded(declared())
	have.Found["/jobs/y"] = *recorded(declared(), counts(4, 0, 4))
	have.Found["/jobs/x"] = *foreign()
	var got []string
	for _, r := range plan.Diff(want, have).Rows {
		got = append(got, string(r.Action())+" "+r.Address())
	}
	wantOrder := []string{
		"create job.a", "create job.b", "replace job.c", "delete /jobs/z", "update job.d", "blocked job.e",
		"left running /jobs/y", "unchanged job.f", "unmanaged /jobs/x",
	}
	if d := cmp.Diff(wantOrder, got); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
}

func TestOnlyAStaleJobGetsGrace(t *testing.T) {
	quick := func(j *job.Job) { j.Timeouts.Stale = 5 }
	j := declared(quick)
	for _, c := range []struct {
		name  string
		row   plan.Row
		stale bool
		grace resource.Duration
	}{
		{"stale_declared", plan.Row{Old: recorded(declared(), counts(4, 0, 0)), New: &j, Reason: plan.StaleLeftover},
			true, 5},
		{"stale_undeclared", plan.Row{Old: recorded(declared(quick), counts(4, 0, 0)), Reason: plan.Undeclared},
			true, 5},
		{"stale_classic", plan.Row{Old: classic(4, 0), New: &j, Reason: plan.ClassicLeftover}, true, 5},
		{"stale_protected", plan.Row{Old: recorded(declared(), counts(4, 0, 0)), New: &j, Reason: plan.IsProtected},
			false, 5},
		{"ready", plan.Row{Old: recorded(declared()), New: &j, Reason: plan.ReadyDiffers}, false, 5},
		{"terminated", plan.Row{Old: recorded(declared(), terminating), New: &j, Reason: plan.TerminatedIdle},
			false, 5},
		{"missing", plan.Row{New: &j, Reason: plan.NotThere}, false, 5},
		{"unknown_grace", plan.Row{Old: classic(4, 0), Reason: plan.NotOurs}, false, job.Default().Timeouts.Stale},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.row.Stale(); got != c.stale {
				t.Errorf("stale = %v, want %v", got, c.stale)
			}
			if got := c.row.Grace(); got != c.grace {
				t.Errorf("grace = %v, want %v", got, c.grace)
			}
		})
	}
}
