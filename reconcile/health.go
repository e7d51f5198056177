package reconcile

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler answers what supervises the process:
//
//	/healthz   200 while the process works, also without ZooKeeper
//	/readyz    200 once files are loaded and ZooKeeper is reached, also of one that does not act; else 503 and why
//	/metrics   in Prometheus' text format
func (r *Reconciler) Handler() http.Handler {
	all := prometheus.NewRegistry()
	all.MustRegister(
		collector{r}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		why := "ready"
		switch now := r.Now(); {
		case now.Config == "":
			why = "no configuration is loaded"
		case !now.Connected:
			why = "no connection to ZooKeeper"
		}
		if why != "ready" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, why)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
	return mux
}

// collector shows how a Reconciler stands.
type collector struct{ r *Reconciler }

// Describe implements prometheus.Collector: which metrics there are is known when they are collected.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(to chan<- prometheus.Metric) {
	now := c.r.Now()
	show := func(t prometheus.ValueType, name, help string, value float64, labels ...string) {
		var names, values []string
		if len(labels) > 0 {
			names, values = labels[:1], labels[1:]
		}
		desc := prometheus.NewDesc("muster_reconcile_"+name, help, names, nil)
		to <- prometheus.MustNewConstMetric(desc, t, value, values...)
	}
	gauge := func(name, help string, is bool) {
		value := 0.0
		if is {
			value = 1
		}
		show(prometheus.GaugeValue, name, help, value)
	}
	gauge("leader", "1 of the reconciler that acts.", now.Acts)
	gauge("config_last_reload_successful", "0 while the files do not load: then those of before count.",
		now.Config != "" && now.Problem == "")
	gauge("config_differs", "1 if the files are others than those that were taken last.", now.Differs)
	gauge("paused", "1 while muster pause holds all of the stack.", now.Paused)
	gauge("guard_closed", "1 while a guard keeps changes back since they are too many.", now.Shut)
	for _, state := range []string{"waiting", "held"} {
		show(prometheus.GaugeValue, "rows", "Changes that are not made now.", float64(now.Rows[state]), "state", state)
	}
	for _, result := range []string{"committed", "refused", "failed"} {
		show(prometheus.CounterValue, "changes_total", "Changes by what became of them.", float64(now.Rows[result]),
			"result", result)
	}
	for _, result := range []string{"ok", "failed"} {
		show(prometheus.CounterValue, "passes_total", "Comparisons, with what they changed.", float64(now.Passes[result]),
			"result", result)
	}
	show(prometheus.GaugeValue, "pass_duration_seconds", "How long the last pass took.", now.Took.Seconds())
	if !now.LastSuccess.IsZero() {
		show(prometheus.GaugeValue, "last_success_timestamp_seconds", "When the last pass of one that acts went well.",
			float64(now.LastSuccess.UnixMilli())/float64(time.Second/time.Millisecond))
	}
}
