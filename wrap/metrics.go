package wrap

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"muster/worker"
)

// metrics are what /metrics counts. The rest of what it shows is read from progress at each request.
type metrics struct {
	barriers *prometheus.HistogramVec
}

func newMetrics() *metrics {
	return &metrics{barriers: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "muster_worker_barrier_seconds",
		Help:    "How long the command waited at barriers, by outcome: released, aborted or failed.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // 1 ms to 4 minutes
	}, []string{"outcome"})}
}

// barrierWait counts one wait at a barrier.
func (m *metrics) barrierWait(took time.Duration, err error) {
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
		p.metrics.barriers, collector{
			p,
			desc("muster_worker_stage", "1 for the stage that the worker is at.", "stage"),
			desc("muster_worker_member", "1 while the worker is a member of its job, 0 while its session is lost."),
			desc("muster_worker_connected", "1 while its session has a connection to a ZooKeeper server."),
			desc("muster_worker_rejoins_total", "How often it joined again after a lost session."),
			desc("muster_worker_info", "Which worker it is.", "job", "root", "identity", "id", "workers", "generation"),
		},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// collector reads progress at each request.
type collector struct {
	progress                                *progress
	stage, member, connected, rejoins, info *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.stage, c.member, c.connected, c.rejoins, c.info} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	stage, membership := c.progress.now()
	for _, s := range stages() {
		gauge(to, c.stage, s == stage, string(s))
	}
	if membership == nil {
		gauge(to, c.member, false)
		gauge(to, c.connected, false)
		return
	}
	m, isMember, rejoins := membership.state()
	gauge(to, c.member, isMember)
	gauge(to, c.connected, membership.sessions.connected())
	gauge(to, c.info, true,
		m.Job.Name, m.Job.Root, m.Identity, strconv.Itoa(m.ID), strconv.Itoa(m.Job.Workers), m.Generation)
	to <- prometheus.MustNewConstMetric(c.rejoins, prometheus.CounterValue, float64(rejoins))
}
