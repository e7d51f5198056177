package worker_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/worker"
)

func TestIdentify(t *testing.T) {
	type choice struct {
		Identity string
		Stable   bool
	}
	const kubernetes = "KUBERNETES_SERVICE_HOST"
	for name, c := range map[string]struct {
		flag      string
		env       map[string]string
		host      string
		advertise string
		want      choice
	}{
		"flag_before_all": {"me", map[string]string{"MUSTER_IDENTITY": "env", "JOB_COMPLETION_INDEX": "1"}, "h", "10.0.0.1:1", choice{"me", true}},
		"environment":     {"", map[string]string{"MUSTER_IDENTITY": "env", "JOB_COMPLETION_INDEX": "1"}, "h", "10.0.0.1:1", choice{"env", true}},
		"indexed_job":     {"", map[string]string{"JOB_COMPLETION_INDEX": "0", kubernetes: "x"}, "job-x7k2p", "10.0.0.1:1", choice{"worker-0", true}},
		"slurm":           {"", map[string]string{"SLURM_PROCID": "12"}, "node7", "10.0.0.1:1", choice{"worker-12", true}},
		"stateful_set":    {"", map[string]string{kubernetes: "x"}, "ingest-3", "10.0.0.1:1", choice{"ingest-3", true}},
		"deployment":      {"", map[string]string{kubernetes: "x"}, "ingest-7d9f-x2x", "10.0.0.1:1", choice{"10.0.0.1:1", false}},
		"other_machine":   {"", nil, "node-3", "10.0.0.1:1", choice{"10.0.0.1:1", false}},
		"ipv6":            {"", nil, "node-3", "[fe80::1]:7000", choice{"[fe80::1]:7000", false}},
	} {
		t.Run(name, func(t *testing.T) {
			identity, stable, err := worker.Identify(c.flag, func(k string) string { return c.env[k] }, c.host, c.advertise)
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
