package plan_test

import (
	"testing"

	"muster/plan"
)

func TestStatus(t *testing.T) {
	damaged := recorded(declared())
	damaged.Problem = "the Record has no gate"
	for _, c := range []struct {
		name string
		o    *plan.Observed
		want plan.Status
	}{
		{"no_job_znode", nil, plan.Missing},
		{"nobody_joined", recorded(declared()), plan.Ready},
		{"asked_to_stop_with_live_workers", recorded(declared(), counts(4, 0, 2), terminating), plan.Terminating},
		{"asked_to_stop_and_gone", recorded(declared(), counts(4, 0, 0), terminating), plan.Terminating},
		{"asked_to_stop_though_completed", recorded(declared(), counts(4, 4, 0), terminating), plan.Terminating},
		{"fewer_than_n_and_somebody_live", recorded(declared(), counts(2, 0, 1)), plan.Forming},
		{"fewer_than_n_none_live_all_completed", recorded(declared(), counts(2, 2, 0)), plan.Forming},
		{"fewer_than_n_and_some_left", recorded(declared(), counts(3, 1, 1)), plan.Forming},
		{"a_live_child_before_any_id", recorded(declared(), counts(0, 0, 1)), plan.Forming},
		{"all_joined_all_live", recorded(declared(), counts(4, 0, 4)), plan.Running},
		{"all_joined_some_completed", recorded(declared(), counts(4, 3, 1)), plan.Running},
		{"all_joined_one_left", recorded(declared(), counts(4, 0, 3)), plan.Degraded},
		{"all_joined_one_left_rest_completed_but_one", recorded(declared(), counts(4, 2, 1)), plan.Degraded},
		{"all_left", recorded(declared(), counts(4, 0, 0)), plan.Stale},
		{"some_completed_rest_left", recorded(declared(), counts(4, 3, 0)), plan.Stale},
		{"died_while_forming", recorded(declared(), counts(2, 1, 0)), plan.Stale},
		{"all_completed", recorded(declared(), counts(4, 4, 0)), plan.Completed},
		{"all_completed_and_a_child", recorded(declared(), counts(4, 4, 1)), plan.Completed},
		{"one_worker_completed", recorded(declared(workers(1)), counts(1, 1, 0)), plan.Completed},
		{"not_a_job", foreign(), plan.Foreign},
		{"no_permission", unreadable(), plan.Unreadable},
		{"record_and_gate_disagree", damaged, plan.Unreadable},
		{"nothing_known", &plan.Observed{}, plan.Unreadable},
		{"classic_live", classic(4, 4), plan.Running},
		{"classic_live_before_its_roll", classic(0, 2), plan.Running},
		{"classic_left", classic(4, 0), plan.Stale},
		{"classic_never_joined", classic(0, 0), plan.Ready},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.o.Status(); got != c.want {
				t.Errorf("status = %q, want %q", got, c.want)
			}
		})
	}
}
