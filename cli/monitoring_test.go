package cli_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"muster/resource"
	"muster/sim/rig"
)

// TestMonitoringUsesMetricsThatExist: the dashboard, the alerts and the scaler that examples and pages show name only
// metrics, labels and statuses that a real muster serve and a real executor export, or a report of drift.
func TestMonitoringUsesMetricsThatExist(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.write(t, 1, queueAndGroup(f.root))
	f.mustApply(t)
	f.submit("one", []byte("1"))
	f.duty("calc", "exit 0")
	_, executor := f.executor(servers.Connect(), "e", "--http", "127.0.0.1:0", "--", f.script("calc"))
	for _, identity := range []string{"w0", "w1"} {
		startOnScreen(t, f.worker(servers.Connect(), "j0", identity, "--", "true"))
	}
	f.duty("nightly", "exit 0")
	f.memberWithDuties(servers.Connect(), "m", "1.0.0")
	nightly := f.command(servers.Connect(), "group", "run", "--wait", "--timeout", "2m", f.root+"/shop/nightly")
	if out, err := nightly.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	known := exported{}
	known.add(read(t, "../report/testdata/drift.prom"))
	reconciler := startOnScreen(t, f.command(servers.Connect(), "reconcile", "--listen", "127.0.0.1:0"))
	urls := []string{
		f.serve(t, servers.Connect()).url, health(t, executor), strings.TrimSuffix(health(t, reconciler), "/"),
	}
	named := map[string]bool{}
	for _, q := range queries(t) {
		for _, name := range metricName.FindAllString(q, -1) {
			named[name] = true
			rig.Await(t, name, func() bool {
				for i := 0; i < len(urls) && known[name] == nil; i++ {
					_, body := httpGet(urls[i] + "/metrics")
					known.add(body)
				}
				return known[name] != nil
			})
		}
	}
	for _, q := range queries(t) {
		known.check(t, q)
	}
	if len(named) < 20 {
		t.Errorf("only these metrics are used: %v", named)
	}
}

// exported holds the labels of each metric.
type exported map[string]map[string]bool

// add adds what a page of metrics has.
func (e exported) add(page string) {
	for _, sample := range regexp.MustCompile(`(?m)^(\w+)(\{.*\})? \S+$`).FindAllStringSubmatch(page, -1) {
		if e[sample[1]] == nil {
			e[sample[1]] = map[string]bool{"instance": true, "job": true} // which Prometheus adds
		}
		for _, label := range matcher.FindAllStringSubmatch(sample[2], -1) {
			e[sample[1]][label[1]] = true
		}
	}
}

var (
	metricName = regexp.MustCompile(`\bmuster_[a-z_]*[a-z]\b`)
	selector   = regexp.MustCompile(`(muster_\w+)?\{([^{}]*)\}`)
	matcher    = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring) \(([^)]*)\)|label_values\(.*, (\w+)\)|\{\{(\w+)\}\}`)
)

// check checks the labels and statuses of a query, which may have the legend of its lines.
func (e exported) check(t *testing.T, query string) {
	t.Helper()
	need := func(metrics []string, label string) {
		for _, name := range metrics {
			if e[name] != nil && !e[name][label] {
				t.Errorf("%s has no label %s: %s", name, label, query)
			}
		}
	}
	names := metricName.FindAllString(query, -1)
	for _, found := range selector.FindAllStringSubmatch(query, -1) {
		metrics := []string{found[1]}
		for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
			switch m[1] {
			case "__name__":
				all := slices.Sorted(maps.Keys(e))
				like := regexp.MustCompile("^(?:" + m[2] + ")$")
				metrics = slices.DeleteFunc(all, func(name string) bool { return !like.MatchString(name) })
				names = append(names, metrics...)
			case "status":
				checkStatuses(t, m[2])
			}
		}
		for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
			if m[1] != "__name__" {
				need(metrics, m[1])
			}
		}
	}
	for _, found := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(found[1]+found[2]+found[3], ", ") {
			need(names, label)
		}
	}
	if len(names) == 0 {
		t.Errorf("no metric is named: %s", query)
	}
}

func checkStatuses(t *testing.T, alternatives string) {
	t.Helper()
	for word := range strings.SplitSeq(alternatives, "|") {
		if !slices.ContainsFunc(kinds, func(k resource.Kind) bool {
			return slices.Contains(k.Statuses, resource.Status(word))
		}) {
			t.Errorf("there is no status %s", word)
		}
	}
}

// queries are the expressions of the dashboard, each with its legend, of all alerts, and of the scaler.
func queries(t *testing.T) (all []string) {
	t.Helper()
	var dashboard struct {
		Templating struct{ List []struct{ Query any } }
		Panels     []struct {
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "../examples/monitoring/grafana.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, v := range dashboard.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			all = append(all, q["query"].(string))
		}
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr+" "+target.LegendFormat)
		}
	}
	type rule struct{ Alert, Expr string }
	var files struct{ Groups []struct{ Rules []rule } }
	var shown []rule
	var scaler struct {
		Spec struct {
			Triggers []struct{ Metadata struct{ Query string } }
		}
	}
	for text, into := range map[string]any{
		read(t, "../examples/pipelines/alerts.yml"): &files,
		yamlOf(t, "../docs/serve.md"):               &shown,
		yamlOf(t, "../docs/howto/keda.md"):          &scaler,
	} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
	for _, g := range files.Groups {
		shown = append(shown, g.Rules...)
	}
	for _, r := range shown {
		all = append(all, r.Expr)
	}
	return append(all, scaler.Spec.Triggers[0].Metadata.Query)
}

// yamlOf returns the first YAML that a page shows.
func yamlOf(t *testing.T, file string) string {
	t.Helper()
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(read(t, file))
	if block == nil {
		t.Fatalf("%s shows no YAML", file)
	}
	return block[1]
}
