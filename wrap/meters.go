package wrap

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"muster/worker"
)

// meters are what /metrics counts, besides what progress knows when it is asked.
type meters struct {
	barriers *prometheus.HistogramVec
}

func newMeters() *meters {
	return &meters{barriers: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "muster_worker_barrier_seconds",
		Help:    "How long the command waited at barriers, by outcome: released, aborted or failed.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // 1 ms to 4 minutes
	}, []string{"outcome"})}
}

// passed counts one wait at a barrier.
func (m *meters) passed(took time.Duration, err error) {
	outcome := "released"
	var aborted *worker.AbortedError
	switch {
	case errors.As(err, &aborted):
		outcome = "aborted"
	case err != nil:
		outcome = "failed"
	}
	m.barriers.WithLabelValues(outcome).Observe(took.Seconds())
}

// registry holds everything that /metrics shows.
func (p *progress) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		p.meters.barriers, facts{
			p,
			prometheus.NewDesc("muster_worker_stage", "1 for the stage that the worker is at.", []string{"stage"}, nil),
			prometheus.NewDesc("muster_worker_member", "1 while the worker is a member of its job, 0 while its session is lost.", nil, nil),
			prometheus.NewDesc("muster_worker_connected", "1 while its session has a connection to a ZooKeeper server.", nil, nil),
			prometheus.NewDesc("muster_worker_rejoins_total", "How often it joined again after a lost session.", nil, nil),
			prometheus.NewDesc("muster_worker_info", "Which worker it is.", []string{"job", "root", "identity", "id", "workers", "generation"}, nil),
		},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

// facts reads progress when it is asked.
type facts struct {
	progress                                *progress
	stage, member, connected, rejoins, info *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (f facts) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{f.stage, f.member, f.connected, f.rejoins, f.info} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (f facts) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, is bool, labels ...string) {
		value := 0.0
		if is {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	at, membership := f.progress.now()
	for _, s := range stages() {
		gauge(f.stage, s == at, string(s))
	}
	if membership == nil {
		gauge(f.member, false)
		gauge(f.connected, false)
		return
	}
	m, member, rejoins := membership.state()
	gauge(f.member, member)
	gauge(f.connected, membership.sessions.connected())
	gauge(f.info, true, m.Job.Name, m.Job.Root, m.Identity, strconv.Itoa(m.ID), strconv.Itoa(m.Job.Workers), m.Generation)
	to <- prometheus.MustNewConstMetric(f.rejoins, prometheus.CounterValue, float64(rejoins))
}
