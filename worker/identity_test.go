package worker_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/worker"
)

func TestIdentify(t *testing.T) {
	t.Parallel()
	type choice struct {
		Identity string
		Stable   bool
	}
	const kubernetes, address = "KUBERNETES_SERVICE_HOST", "10.0.0.1:1"
	both := map[string]string{"MUSTER_IDENTITY": "env", "JOB_COMPLETION_INDEX": "1"}
	indexed := map[string]string{"JOB_COMPLETION_INDEX": "0", kubernetes: "x"}
	for name, c := range map[string]struct {
		flag      string
		env       map[string]string
		host      string
		advertise string
		want      choice
	}{
		"flag_before_all": {"me", both, "h", address, choice{"me", true}},
		"environment":     {"", both, "h", address, choice{"env", true}},
		"indexed_job":     {"", indexed, "job-x7k2p", address, choice{"worker-0", true}},
		"slurm":           {"", map[string]string{"SLURM_PROCID": "12"}, "node7", address, choice{"worker-12", true}},
		"stateful_set":    {"", map[string]string{kubernetes: "x"}, "ingest-3", address, choice{"ingest-3", true}},
		"deployment":      {"", map[string]string{kubernetes: "x"}, "ingest-7d9f-x2x", address, choice{address, false}},
		"other_machine":   {"", nil, "node-3", address, choice{address, false}},
		"ipv6":            {"", nil, "node-3", "[fe80::1]:7000", choice{"[fe80::1]:7000", false}},
	} {
		t.Run(name, func(t *testing.T) {
			getenv := func(k string) string { return c.env[k] }
			identity, stable, err := worker.Identify(c.flag, getenv, c.host, c.advertise)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, choice{identity, stable}); d != "" {
				t.Errorf("identity (-want +got):\n%s", d)
			}
		})
	}
}

func TestIdentifyNamesTheSourceOfABadIdentity(t *testing.T) {
	t.Parallel()
	for want, env := range map[string]map[string]string{
		"MUSTER_IDENTITY":      {"MUSTER_IDENTITY": "a/b"},
		"JOB_COMPLETION_INDEX": {"JOB_COMPLETION_INDEX": "01"},
		"SLURM_PROCID":         {"SLURM_PROCID": "-1"},
		"the address":          {},
	} {
		_, _, err := worker.Identify("", func(k string) string { return env[k] }, "h", "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that names %s", err, want)
		}
	}
}
