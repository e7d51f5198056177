package plan_test

import (
	"testing"

	"muster/resource"
	"muster/resource/job"
)

func TestStatus(t *testing.T) {
	damaged := recorded(declared())
	damaged.Problem = "the Record has no gate"
	for _, c := range []struct {
		name string
		o    *resource.Observed
		want resource.Status
	}{
		{"no_job_znode", nil, resource.StatusMissing},
		{"nobody_joined", recorded(declared()), resource.StatusReady},
		{"asked_to_stop_with_live_workers", recorded(declared(), counts(4, 0, 2), terminating),
			resource.StatusTerminating},
		{"asked_to_stop_and_gone", recorded(declared(), counts(4, 0, 0), terminating), resource.StatusTerminating},
		{"asked_to_stop_though_completed", recorded(declared(), counts(4, 4, 0), terminating),
			resource.StatusTerminating},
		{"fewer_than_n_and_somebody_live", recorded(declared(), counts(2, 0, 1)), job.Forming},
		{"fewer_than_n_none_live_all_completed", recorded(declared(), counts(2, 2, 0)), job.Forming},
		{"fewer_than_n_and_some_left", recorded(declared(), counts(3, 1, 1)), job.Forming},
		{"a_live_child_before_any_id", recorded(declared(), counts(0, 0, 1)), job.Forming},
		{"all_joined_all_live", recorded(declared(), counts(4, 0, 4)), job.Running},
		{"all_joined_some_completed", recorded(declared(), counts(4, 3, 1)), job.Running},
		{"all_joined_one_left", recorded(declared(), counts(4, 0, 3)), job.Degraded},
		{"all_joined_one_left_rest_completed_but_one", recorded(declared(), counts(4, 2, 1)), job.Degraded},
		{"all_left", recorded(declared(), counts(4, 0, 0)), resource.StatusStale},
		{"some_completed_rest_left", recorded(declared(), counts(4, 3, 0)), resource.StatusStale},
		{"died_while_forming", recorded(declared(), counts(2, 1, 0)), resource.StatusStale},
		{"all_completed", recorded(declared(), counts(4, 4, 0)), job.Completed},
		{"all_completed_and_a_child", recorded(declared(), counts(4, 4, 1)), job.Completed},
		{"one_worker_completed", recorded(declared(workers(1)), counts(1, 1, 0)), job.Completed},
		{"not_a_job", foreign(), resource.StatusForeign},
		{"no_permission", unreadable(), resource.StatusUnreadable},
		{"record_and_gate_disagree", damaged, resource.StatusUnreadable},
		{"nothing_known", &resource.Observed{}, resource.StatusUnreadable},
		{"classic_live", classic(4, 4), job.Running},
		{"classic_live_before_its_roll", classic(0, 2), job.Running},
		{"classic_left", classic(4, 0), resource.StatusStale},
		{"classic_never_joined", classic(0, 0), resource.StatusReady},
	} {
		if got := c.o.Status(); got != c.want {
			t.Errorf("%s: status = %q, want %q", c.name, got, c.want)
		}
	}
}
