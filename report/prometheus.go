package report

import (
	"bytes"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"muster/apply"
	"muster/exitcode"
	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
	"muster/text"
)

// prometheus writes a file for node-exporter's textfile collector: gauges without timestamps. A run that failed has one
// too, so that a check that fails differs from one that no longer runs. Every series has the labels command, config and
// stack, since the files of several checks on one machine must not hold the same series.
func (r Run) prometheus() ([]byte, error) {
	m := metrics{labels: []*dto.LabelPair{
		label("command", r.Command), label("config", r.Config), label("stack", r.stack()),
	}}
	m.family("muster_build_info", "The version of muster that ran; always 1.")
	m.sample(1, label("version", r.Version))
	m.family("muster_last_check_timestamp_seconds", "When the last run started.")
	m.sample(float64(r.Started.Unix()))
	m.family("muster_check_duration_seconds", "How long the last run took.")
	m.sample(r.Took.Seconds())
	compared := slices.Contains([]int{exitcode.Done, exitcode.Differences, exitcode.Attention}, r.ExitCode)
	m.family("muster_last_check_success", "1 if the last run could compare and see everything, whatever it found.")
	m.sample(oneIf(r.Plan != nil && compared && !r.incomplete()))
	m.family("muster_last_exit_code", "The exit code of the last run.")
	m.sample(float64(r.ExitCode))
	if r.Plan != nil {
		m.plan(*r.Plan, r.Kinds)
	}
	m.outcomes(r.Outcomes)
	m.drift(r)
	return m.encode()
}

func (m *metrics) plan(p plan.Plan, kinds []resource.Kind) {
	type statusOfKind struct {
		kind   string
		status resource.Status
	}
	statuses, actions := map[statusOfKind]int{}, counts(p)
	for _, row := range p.Rows {
		statuses[statusOfKind{planfile.KindOf(row, kinds).Name, row.Old.Status()}]++
	}
	for _, k := range kinds {
		m.family("muster_"+k.Name+"s", strings.ToUpper(k.Name[:1])+k.Name[1:]+"s declared or found, by status.")
		for _, s := range k.Statuses {
			m.sample(float64(statuses[statusOfKind{k.Name, s}]), label("status", string(s)))
		}
	}
	m.family("muster_plan_actions", "Rows of the plan, by what apply would do.")
	for _, a := range plan.Actions() {
		m.sample(float64(actions[a]), label("action", string(a)))
	}
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
		m.sample(float64(results[res]), label("result", string(res)))
	}
}

func (m *metrics) drift(r Run) {
	if r.Drift == nil {
		return
	}
	m.family("muster_drift", "What drifted, by kind.")
	for _, k := range plan.DriftKinds() {
		m.sample(float64(len(r.Drift.Of(k))), label("kind", string(k)))
	}
	m.family("muster_drift_failing", "What drifted, of the kinds that count.")
	m.sample(float64(len(r.Drift.Of(r.FailOn...))))
	m.family("muster_drift_ignored", "What drifted and is ignored.")
	m.sample(float64(len(r.Drift.Ignored)))
	m.family("muster_drift_unseen", "Roots and znodes that could not be read.")
	m.sample(float64(len(r.Drift.Unlisted)+len(r.Drift.Unreadable)) + oneIf(r.Drift.Unindexed != ""))
}

// incomplete reports whether something could not be read.
func (r Run) incomplete() bool {
	switch {
	case r.Drift != nil:
		return r.Drift.Incomplete()
	case r.Plan == nil:
		return false
	case len(r.Plan.Unlisted) > 0, r.Plan.Unindexed != "":
		return true
	}
	unreadable := func(row plan.Row) bool { return row.Old.Class() == resource.Unreadable }
	return slices.ContainsFunc(r.Plan.Rows, unreadable)
}

// statusesOf lists every status that a resource of these kinds can have, each once.
func statusesOf(kinds []resource.Kind) []resource.Status {
	var all []resource.Status
	for _, k := range kinds {
		for _, s := range k.Statuses {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// metrics collects families, each with its samples.
type metrics struct {
	families []*dto.MetricFamily
	labels   []*dto.LabelPair // of every sample
}

// family starts a family of gauges. The samples that follow belong to it.
func (m *metrics) family(name, help string) {
	m.families = append(m.families, &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum()})
}

func (m *metrics) sample(value float64, own ...*dto.LabelPair) {
	f := m.families[len(m.families)-1]
	f.Metric = append(f.Metric, &dto.Metric{Label: slices.Concat(m.labels, own), Gauge: &dto.Gauge{Value: &value}})
}

func label(name, value string) *dto.LabelPair {
	value = text.Escape(value)
	return &dto.LabelPair{Name: &name, Value: &value}
}

func (m *metrics) encode() ([]byte, error) {
	var b bytes.Buffer
	for _, f := range m.families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
