package report

import (
	"bytes"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	registry := prometheus.NewRegistry()
	m := metrics{promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{
		"command": text.Escape(r.Command), "config": text.Escape(r.Config), "stack": text.Escape(r.stack()),
	}, registry))}
	m.of("muster_build_info", "The version of muster that ran; always 1.", "version")(1, text.Escape(r.Version))
	m.one("muster_last_check_timestamp_seconds", "When the last run started.", float64(r.Started.Unix()))
	m.one("muster_check_duration_seconds", "How long the last run took.", r.Took.Seconds())
	compared := slices.Contains([]int{exitcode.Done, exitcode.Differences, exitcode.Attention}, r.ExitCode)
	m.one("muster_last_check_success", "1 if the last run could compare and see everything, whatever it found.",
		oneIf(r.Plan != nil && compared && !r.incomplete()))
	m.one("muster_last_exit_code", "The exit code of the last run.", float64(r.ExitCode))
	if r.Plan != nil {
		m.plan(*r.Plan, r.Kinds)
	}
	m.outcomes(r.Outcomes)
	m.drift(r)
	families, err := registry.Gather()
	var b bytes.Buffer
	for _, f := range families {
		if err == nil {
			_, err = expfmt.MetricFamilyToText(&b, f)
		}
	}
	return b.Bytes(), err
}

type metrics struct{ factory promauto.Factory }

// one is a gauge without labels of its own.
func (m metrics) one(name, help string, value float64) { m.of(name, help)(value) }

// of returns how to set a gauge by the values of its labels.
func (m metrics) of(name, help string, labels ...string) func(value float64, values ...string) {
	vec := m.factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	return func(value float64, values ...string) { vec.WithLabelValues(values...).Set(value) }
}

func (m metrics) plan(p plan.Plan, kinds []resource.Kind) {
	for _, k := range kinds {
		byStatus := map[resource.Status]int{}
		for _, row := range p.Rows {
			if planfile.KindOf(row, kinds).Name == k.Name {
				byStatus[row.Old.Status()]++
			}
		}
		help := strings.ToUpper(k.Name[:1]) + k.Name[1:] + "s declared or found, by status."
		set := m.of("muster_"+k.Name+"s", help, "status")
		for _, s := range k.Statuses {
			set(float64(byStatus[s]), string(s))
		}
	}
	set := m.of("muster_plan_actions", "Rows of the plan, by what apply would do.", "action")
	actions := counts(p)
	for _, a := range plan.Actions() {
		set(float64(actions[a]), string(a))
	}
}

func (m metrics) outcomes(outcomes []apply.Outcome) {
	if len(outcomes) == 0 {
		return
	}
	results := map[apply.Result]int{}
	for _, o := range outcomes {
		results[o.Result]++
	}
	set := m.of("muster_apply_results", "Changes that apply dealt with, by what became of them.", "result")
	for _, res := range apply.Results() {
		set(float64(results[res]), string(res))
	}
}

func (m metrics) drift(r Run) {
	if r.Drift == nil {
		return
	}
	set := m.of("muster_drift", "What drifted, by kind.", "kind")
	for _, k := range plan.DriftKinds() {
		set(float64(len(r.Drift.Of(k))), string(k))
	}
	m.one("muster_drift_failing", "What drifted, of the kinds that count.", float64(len(r.Drift.Of(r.FailOn...))))
	m.one("muster_drift_ignored", "What drifted and is ignored.", float64(len(r.Drift.Ignored)))
	m.one("muster_drift_unseen", "Roots and znodes that could not be read.",
		float64(len(r.Drift.Unlisted)+len(r.Drift.Unreadable))+oneIf(r.Drift.Unindexed != ""))
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

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
