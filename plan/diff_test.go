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
		new    *job.Job           // as declared; nil is not declared
		old    *resource.Observed // as observed; nil is missing
	}{
		{"declared_foreign", plan.IsForeign, with(), foreign()},
		{"declared_unreadable", plan.IsUnreadable, with(), unreadable()},
		{"foreign_before_protect", plan.IsForeign, with(protect), foreign()},
		{"other_stack", plan.OtherStack, with(), recorded(four, owner("x"))},
		{"other_stack_before_terminating", plan.OtherStack, with(), recorded(four, owner("x"), live, terminating)},
		{"other_stack_before_protect", plan.OtherStack, with(protect), recorded(four, owner("x"), counts(4, 0, 0))},
		{"stopping", plan.MembersStopping, with(), recorded(four, live, terminating)},
		{"stopping_before_on_running", plan.MembersStopping, with(failIfRunning), recorded(four, live, terminating)},
		{"stopping_undeclared", plan.MembersStopping, nil, recorded(four, live, terminating)},
		{"protected_stale", plan.IsProtected, with(protect), recorded(four, counts(4, 0, 0))},
		{"protected_ready_immutable", plan.IsProtected, with(workers(5), protect), recorded(four)},
		{"protected_completed", plan.IsProtected, with(protect), recorded(four, counts(4, 4, 0))},
		{"protected_terminated", plan.IsProtected, with(protect), recorded(four, counts(4, 0, 0), terminating)},
		{"protected_classic", plan.IsProtected, with(protect), classic(4, 0)},
		{"protect_declared_off_wins_over_recorded", plan.StaleLeftover, with(),
			recorded(declared(protect), counts(4, 0, 0))},
		{"protected_undeclared", plan.IsProtected, nil, recorded(declared(protect))},
		{"protect_does_not_stop_update", plan.MutableDiffers, with(protect), recorded(four)},
		{"protect_does_not_stop_create", plan.NotThere, with(protect), nil},
		{"protected_live_undeclared", plan.UndeclaredLive, nil, recorded(declared(protect), live)},
		{"missing", plan.NotThere, with(), nil},
		{"on_running_fail_running", plan.AlreadyRunning, with(failIfRunning), recorded(declared(failIfRunning), live)},
		{"on_running_fail_forming", plan.AlreadyRunning, with(failIfRunning),
			recorded(declared(failIfRunning), forming)},
		{"on_running_fail_degraded", plan.AlreadyRunning, with(failIfRunning),
			recorded(declared(failIfRunning), degraded)},
		{"on_running_fail_classic", plan.AlreadyRunning, with(failIfRunning), classic(4, 4)},
		{"on_running_fail_ready", plan.Equal, with(failIfRunning), recorded(declared(failIfRunning))},
		{"classic_live", plan.ClassicLive, with(), classic(4, 4)},
		{"classic_stale", plan.ClassicLeftover, with(), classic(4, 0)},
		{"classic_ready", plan.ClassicLeftover, with(), classic(0, 0)},
		{"ready_equal", plan.Equal, with(), recorded(four)},
		{"running_equal", plan.Equal, with(), recorded(four, live)},
		{"degraded_equal", plan.Equal, with(), recorded(four, degraded)},
		{"forming_none_live_equal", plan.Equal, with(), recorded(four, counts(2, 2, 0))},
		{"address_is_not_compared", plan.Equal, with(func(j *job.Job) { j.Address = "job.b" }), recorded(four)},
		{"ready_label", plan.MutableDiffers, with(label("team", "data")), recorded(four)},
		{"running_timeout", plan.MutableDiffers, with(func(j *job.Job) { j.Timeouts.Join++ }), recorded(four, live)},
		{"forming_label", plan.MutableDiffers, with(label("team", "data")), recorded(four, forming)},
		{"completed_retain_label", plan.MutableDiffers, with(onComplete(job.Retain), label("k", "v")),
			recorded(retained, counts(4, 4, 0))},
		{"record_edited", plan.RecordEdited, with(), recorded(four, otherACL)},
		{"record_edited_live", plan.RecordEdited, with(), recorded(four, otherACL, live)},
		{"taken_over", plan.OwnerDiffers, with(), recorded(four, owner("old"))},
		{"taken_over_live", plan.OwnerDiffers, with(), recorded(four, owner("old"), live)},
		{"taken_over_completed_retain", plan.OwnerDiffers, with(onComplete(job.Retain)),
			recorded(retained, owner("old"), counts(4, 4, 0))},
		{"taken_over_stale", plan.StaleLeftover, with(), recorded(four, owner("old"), counts(4, 0, 0))},
		{"ready_workers", plan.ReadyDiffers, with(workers(5)), recorded(four)},
		{"ready_roll_format", plan.ReadyDiffers, with(func(j *job.Job) { j.RollFormat = job.Text }), recorded(four)},
		{"running_workers", plan.LiveDiffers, with(workers(5)), recorded(four, live)},
		{"forming_none_live_workers", plan.LiveDiffers, with(workers(5)), recorded(four, counts(2, 2, 0))},
		{"stale_equal", plan.StaleLeftover, with(), recorded(four, counts(4, 3, 0))},
		{"stale_workers", plan.StaleLeftover, with(workers(5)), recorded(four, counts(4, 0, 0))},
		{"terminated", plan.TerminatedIdle, with(), recorded(four, counts(4, 0, 0), terminating)},
		{"completed_retain_equal", plan.CompletedKept, with(onComplete(job.Retain)),
			recorded(retained, counts(4, 4, 0))},
		{"completed_reset", plan.CompletedDone, with(), recorded(four, counts(4, 4, 0))},
		{"completed_retain_no_longer", plan.CompletedDone, with(), recorded(retained, counts(4, 4, 0))},
		{"completed_retain_workers", plan.CompletedDone, with(onComplete(job.Retain), workers(5)),
			recorded(retained, counts(4, 4, 0))},
		{"undeclared_ready", plan.Undeclared, nil, recorded(four)},
		{"undeclared_stale", plan.Undeclared, nil, recorded(four, counts(4, 1, 0))},
		{"undeclared_completed", plan.Undeclared, nil, recorded(retained, counts(4, 4, 0))},
		{"undeclared_terminated", plan.Undeclared, nil, recorded(four, counts(4, 0, 0), terminating)},
		{"undeclared_live", plan.UndeclaredLive, nil, recorded(four, live)},
		{"undeclared_forming_none_live", plan.UndeclaredLive, nil, recorded(four, counts(2, 2, 0))},
		{"undeclared_other_stack", plan.NotOurs, nil, recorded(four, owner("x"))},
		{"undeclared_take_over_stack", plan.NotOurs, nil, recorded(four, owner("old"))},
		{"undeclared_foreign", plan.NotOurs, nil, foreign()},
		{"undeclared_unreadable", plan.NotOurs, nil, unreadable()},
		{"undeclared_classic", plan.NotOurs, nil, classic(4, 0)},
		{"stranger_among_workers", plan.LiveDiffers, with(workers(5)), recorded(four, live, strangers("notes"))},
		{"stranger_alone_blocks_a_change", plan.StrangerChildren, with(workers(5)), recorded(four, strangers("notes"))},
		{"stranger_alone_blocks_a_delete", plan.StrangerChildren, nil, recorded(four, strangers("notes"))},
		{"stranger_among_undeclared_workers", plan.UndeclaredLive, nil, recorded(four, live, strangers("notes"))},
		{"stranger_below_terminated", plan.StrangerChildren, nil,
			recorded(four, counts(4, 4, 0), terminating, strangers("notes"))},
		{"stranger_does_not_block_update", plan.MutableDiffers, with(label("k", "v")),
			recorded(four, live, strangers("notes"))},
		{"completed_with_child_is_not_replaced", plan.StrangerChildren, with(), recorded(four, counts(4, 4, 1))},
		{"completed_with_child_is_not_deleted", plan.StrangerChildren, nil, recorded(four, counts(4, 4, 1))},
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
