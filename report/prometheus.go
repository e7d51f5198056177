package report

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/apply"
	"muster/plan"
	"muster/text"
)

// prometheus writes a file for node-exporter's textfile collector: gauges without timestamps. It is written after failures too,
// so that a check that no longer succeeds can be told from one that no longer runs. Every series names command, configuration
// and stack: the files of several checks on one machine must not hold the same series.
func (r Run) prometheus() []byte {
	m := metrics{labels: []label{{"command", r.Command}, {"config", r.Config}, {"stack", r.stack()}}}
	m.family("muster_build_info", "The version of muster that ran; always 1.")
	m.sample(1, label{"version", r.Version})
	m.family("muster_last_check_timestamp_seconds", "When the last run started.")
	m.sample(float64(r.Started.Unix()))
	m.family("muster_check_duration_seconds", "How long the last run took.")
	m.sample(r.Took.Seconds())
	m.family("muster_last_check_success", "1 if the last run could compare and see everything, whatever it found.")
	m.sample(oneIf(r.Plan != nil && r.ExitCode <= 3 && r.ExitCode != 1 && !r.blind()))
	m.family("muster_last_exit_code", "The exit code of the last run.")
	m.sample(float64(r.ExitCode))
	if r.Plan == nil {
		return m.b.Bytes()
	}
	statuses, actions := map[plan.Status]int{}, counts(*r.Plan)
	for _, row := range r.Plan.Rows {
		statuses[row.Old.Status()]++
	}
	m.family("muster_jobs", "Jobs declared or found, by status.")
	for _, s := range plan.Statuses() {
		m.sample(float64(statuses[s]), label{"status", string(s)})
	}
	m.family("muster_plan_actions", "Rows of the plan, by what apply would do.")
	for _, a := range plan.Actions() {
		m.sample(float64(actions[a]), label{"action", string(a)})
	}
	m.outcomes(r.Outcomes)
	m.drift(r)
	return m.b.Bytes()
}

func (m *metrics) outcomes(outcomes []apply.Outcome) {
	if len(outcomes) == 0 {
		return
	}
	results := map[apply.Result]int{}
	for _, o := range outcomes {
		results[o.Result]++
	}
	m.family("muster_apply_results", "Changes that apply dealt with, by what became of them.")
	for _, res := range apply.Results() {
		m.sample(float64(results[res]), label{"result", string(res)})
	}
}

func (m *metrics) drift(r Run) {
	if r.Drift == nil {
		return
	}
	m.family("muster_drift", "What drifted, by kind.")
	for _, k := range plan.Kinds() {
		m.sample(float64(len(r.Drift.Of(k))), label{"kind", string(k)})
	}
	m.family("muster_drift_failing", "What drifted, of the kinds that count.")
	m.sample(float64(len(r.Drift.Of(r.FailOn...))))
	m.family("muster_drift_ignored", "What drifted and is ignored.")
	m.sample(float64(len(r.Drift.Ignored)))
	m.family("muster_drift_unseen", "Roots and znodes that could not be read.")
	m.sample(float64(len(r.Drift.Unlisted) + len(r.Drift.Unreadable)))
}

// blind reports that something could not be read.
func (r Run) blind() bool {
	if r.Drift != nil {
		return r.Drift.Blind()
	}
	return r.Plan != nil && (len(r.Plan.Unlisted) > 0 || slices.ContainsFunc(r.Plan.Rows, func(row plan.Row) bool {
		return row.Old.Status() == plan.Unreadable
	}))
}

type label struct{ name, value string }

// metrics writes families one after the other, each with its samples.
type metrics struct {
	b      bytes.Buffer
	name   string
	labels []label // of every sample
}

func (m *metrics) family(name, help string) {
	m.name = name
	fmt.Fprintf(&m.b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
}

func (m *metrics) sample(value float64, own ...label) {
	var parts []string
	for _, l := range append(m.labels[:len(m.labels):len(m.labels)], own...) {
		parts = append(parts, l.name+`="`+labelEscapes(l.value)+`"`)
	}
	fmt.Fprintf(&m.b, "%s{%s} %s\n", m.name, strings.Join(parts, ","), strconv.FormatFloat(value, 'f', -1, 64))
}

func labelEscapes(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text.Escape(s))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
