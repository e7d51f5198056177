package wrap

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"muster/member"
)

// healthOf is what the health server of a member tells.
func (r *memberRun) healthOf() healthOf {
	return healthOf{ready: r.readiness, metrics: r.registry(), more: map[string]http.HandlerFunc{
		"GET /duty/{duty}": func(w http.ResponseWriter, q *http.Request) {
			now := r.now()
			epoch, held := now.taken[q.PathValue("duty")]
			if !held || now.session == nil || (&lease{session: now.session}).check() != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintln(w, "not held")
				return
			}
			fmt.Fprintln(w, "held", epoch)
		},
	}}
}

// readiness says whether this process is a member that reaches ZooKeeper, and if not, why not.
func (r *memberRun) readiness() (bool, string) {
	now := r.now()
	switch {
	case now.stage != StageRunning:
		return false, string(now.stage)
	case now.member == nil:
		return false, "degraded: the session is lost"
	case !r.sessions.connected():
		return false, "degraded: no connection to ZooKeeper"
	}
	return true, "running"
}

// memberMetrics are what /metrics counts. The rest of what it shows is read from the state at each request.
type memberMetrics struct {
	ticks    *prometheus.CounterVec
	takeover prometheus.Histogram
}

func newMemberMetrics() *memberMetrics {
	return &memberMetrics{
		ticks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_member_runs_total",
			Help: "Runs of crons that ended on this member, by duty and result.",
		}, []string{"duty", "result"}),
		takeover: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "muster_member_takeover_seconds",
			Help:    "From the moment when the assigner gave a duty to this member until it held it.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // 1 ms to 4 minutes
		}),
	}
}

// watch notes what happens to a membership: which duties it holds, and how long take-overs last.
func (r *memberRun) watch(events iter.Seq[member.Event]) {
	defer r.set(func(s *memberState) { clear(s.taken) })
	given := map[string]time.Time{}
	for e := range events {
		r.logEvent(e)
		switch e.Kind {
		case member.EventGiven:
			given[e.Duty] = e.Time
		case member.EventTaken:
			if at, ok := given[e.Duty]; ok {
				r.metrics.takeover.Observe(e.Time.Sub(at).Seconds())
				delete(given, e.Duty)
			}
			r.set(func(s *memberState) { s.taken[e.Duty] = e.Epoch })
		case member.EventReleased, member.EventResigned, member.EventLost:
			r.set(func(s *memberState) { delete(s.taken, e.Duty) })
		}
	}
}

// logEvent logs what happens to the duties of this member. Runs are many, and are in the record of their cron; who is
// given a duty takes it soon.
func (r *memberRun) logEvent(e member.Event) {
	level := slog.LevelInfo
	switch e.Kind {
	case member.EventRunStarted, member.EventRunEnded, member.EventGiven, member.EventAssigner, member.EventAssignerEnded:
		level = slog.LevelDebug
	}
	var attrs []slog.Attr
	if e.Duty != "" {
		attrs = append(attrs, slog.String("duty", e.Duty))
	}
	if e.Epoch != 0 {
		attrs = append(attrs, slog.Int64("epoch", e.Epoch))
	}
	if e.Text != "" {
		attrs = append(attrs, slog.String("text", e.Text))
	}
	r.c.Log.LogAttrs(context.Background(), level, string(e.Kind), attrs...)
}

// registry holds everything that /metrics shows.
func (r *memberRun) registry() *prometheus.Registry {
	all := prometheus.NewRegistry()
	all.MustRegister(
		r.metrics.ticks, r.metrics.takeover, memberCollector{
			r,
			desc("muster_member_stage", "1 for the stage that the member is at.", "stage"),
			desc("muster_member_joined", "1 while this process is a member of its group, 0 while its session is lost."),
			desc("muster_member_connected", "1 while its session has a connection to a ZooKeeper server."),
			desc("muster_member_rejoins_total", "How often it joined again after a lost session."),
			desc("muster_member_held", "1 for each duty that this member holds, 0 for each other that it can do.", "duty"),
			desc("muster_member_info", "Which member it is.", "group", "root", "identity", "version"),
		},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return all
}

// memberCollector reads the state at each request.
type memberCollector struct {
	run                                           *memberRun
	stage, joined, connected, rejoins, held, info *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c memberCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.stage, c.joined, c.connected, c.rejoins, c.held, c.info} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c memberCollector) Collect(to chan<- prometheus.Metric) {
	now, of := c.run.now(), c.run.c.Member
	for _, s := range stages() {
		gauge(to, c.stage, s == now.stage, string(s))
	}
	gauge(to, c.joined, now.member != nil)
	gauge(to, c.connected, c.run.sessions.connected())
	for _, duty := range of.Can {
		_, held := now.taken[duty]
		gauge(to, c.held, held, duty)
	}
	gauge(to, c.info, true, of.Group, of.Root, of.Identity, of.Version)
	to <- prometheus.MustNewConstMetric(c.rejoins, prometheus.CounterValue, float64(now.rejoins))
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, holds bool, labels ...string) {
	value := 0.0
	if holds {
		value = 1
	}
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}
