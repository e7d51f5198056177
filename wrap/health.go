package wrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"muster/member"
	"muster/resource/queue"
	"muster/tasks"
	"muster/worker"
)

// health is a server for what supervises the worker: a container platform, Prometheus.
//
//	/live     200 as long as the process is there
//	/ready    200 while the command runs and the worker is a member that reaches ZooKeeper; 503 and why not
//	/metrics  in Prometheus' text format
type health struct {
	server *http.Server
	addr   net.Addr // where it listens
	served sync.WaitGroup
}

// healthOf is what a health server tells of.
type healthOf struct {
	ready   func() (bool, string)
	metrics *prometheus.Registry
	more    map[string]http.HandlerFunc // by pattern
}

// openHealth serves at address until it is closed.
func openHealth(address string, of healthOf, to *slog.Logger) (*health, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHealth, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "live\n") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		ready, why := of.ready()
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, why)
	})
	for pattern, handler := range of.more {
		mux.HandleFunc(pattern, handler)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(of.metrics, promhttp.HandlerOpts{}))
	h := &health{addr: listener.Addr(), server: &http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, ErrorLog: warnings(to),
	}}
	h.served.Go(func() { _ = h.server.Serve(listener) }) // it always ends with an error
	return h, nil
}

func (h *health) close() {
	_ = h.server.Close()
	h.served.Wait()
}

// ready says whether the command runs as a member that reaches ZooKeeper, and if not, why not.
func (p *progress) ready() (bool, string) {
	stage, membership := p.now()
	if stage != StageRunning {
		return false, string(stage)
	}
	if _, isMember, _ := membership.state(); !isMember {
		return false, "degraded: the session is lost"
	}
	if !membership.sessions.connected() {
		return false, "degraded: no connection to ZooKeeper"
	}
	return true, "running"
}

// Stage is how far a worker has come.
type Stage string

// The stages, in order.
const (
	StageJoining  Stage = "joining"
	StageWaiting  Stage = "waiting"
	StageRunning  Stage = "running"
	StageDraining Stage = "draining"
	StageLeaving  Stage = "leaving"
)

func stages() []Stage {
	return []Stage{StageJoining, StageWaiting, StageRunning, StageDraining, StageLeaving}
}

// progress is what the socket and the health server tell of a run.
type progress struct {
	metrics *metrics

	mu         sync.Mutex
	stage      Stage
	membership *membership // nil before the join
}

func newProgress() *progress { return &progress{stage: StageJoining, metrics: newMetrics()} }

func (p *progress) enter(s Stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage = s
}

func (p *progress) joined(ms *membership) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.membership = ms
}

// now is the stage, and the membership once it has joined.
func (p *progress) now() (Stage, *membership) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stage, p.membership
}

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

// healthOf is what the health server of a process of a queue tells.
func (r *queueRun) healthOf() healthOf { return healthOf{ready: r.readiness, metrics: r.registry()} }

// readiness says whether this process takes work, and if not, why not.
func (r *queueRun) readiness() (bool, string) {
	now := r.now()
	switch {
	case now.stage != StageRunning:
		return false, string(now.stage)
	case now.process == nil:
		return false, "degraded: the session is lost"
	case !now.process.Connected():
		return false, "degraded: no connection to ZooKeeper"
	case !now.process.Ready():
		return false, "degraded: Redis does not answer"
	}
	return true, "running"
}

// newEnded counts what this process has done, by how it ended.
func newEnded(role queue.Role) *prometheus.CounterVec {
	if role == queue.Watcher {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_watcher_batches_total",
			Help: "Batches that this watcher had, by result: collected, failed or returned.",
		}, []string{"result"})
	}
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_executor_tasks_total",
		Help: "Attempts at tasks that this executor made, by result: done, again, never or returned.",
	}, []string{"result"})
}

// count counts something that has ended.
func (r *queueRun) count(result string) { r.ended.WithLabelValues(result).Inc() }

// registry holds everything that /metrics shows.
func (r *queueRun) registry() *prometheus.Registry {
	all := prometheus.NewRegistry()
	all.MustRegister(
		r.ended, queueCollector{
			r,
			desc("muster_process_stage", "1 for the stage that the process is at.", "stage"),
			desc("muster_process_joined", "1 while this process is in its queue, 0 while its session is lost."),
			desc("muster_process_connected", "1 while its session has a connection to a ZooKeeper server."),
			desc("muster_process_rejoins_total", "How often it joined again after a lost session."),
			desc("muster_process_info", "Which process it is.", "queue", "root", "identity", "role"),
			queueDescs(),
		},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return all
}

// queueCollector reads the state, and the books of the queue in Redis, at each request.
type queueCollector struct {
	run                                     *queueRun
	stage, joined, connected, rejoins, info *prometheus.Desc
	queue                                   queueDesc
}

// queueDesc is what is told of a queue, by all of its processes alike.
type queueDesc struct {
	redis, batches, depth, oldest, hand, done, dead, attempts, bytes, maxBytes *prometheus.Desc
}

func queueDescs() queueDesc {
	of := func(name, help string) *prometheus.Desc { return desc("muster_queue_"+name, help, "queue", "root") }
	return queueDesc{
		redis:    of("redis", "1 while the queue's Redis answers. Without it the others of the queue are missing."),
		batches:  of("batches", "Unfinished batches."),
		depth:    of("depth", "Tasks that wait."),
		oldest:   of("oldest_age_seconds", "Since when the oldest batch that has waiting tasks was submitted; 0: none."),
		hand:     of("in_hand", "Tasks that executors have."),
		done:     of("done", "Tasks of unfinished batches that have a result."),
		dead:     of("dead", "Tasks of unfinished batches that failed for good."),
		attempts: of("attempts_total", "Attempts at tasks that have ended."),
		bytes:    of("bytes", "What Redis holds. Above twice max_bytes nothing is executed until a batch ends."),
		maxBytes: of("max_bytes", "The queue's max_bytes."),
	}
}

func (d queueDesc) all() []*prometheus.Desc {
	return []*prometheus.Desc{
		d.redis, d.batches, d.depth, d.oldest, d.hand, d.done, d.dead, d.attempts, d.bytes, d.maxBytes,
	}
}

// Describe implements prometheus.Collector.
func (c queueCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range append(c.queue.all(), c.stage, c.joined, c.connected, c.rejoins, c.info) {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c queueCollector) Collect(to chan<- prometheus.Metric) {
	now, of := c.run.now(), c.run.c.Process
	for _, s := range stages() {
		gauge(to, c.stage, s == now.stage, string(s))
	}
	gauge(to, c.joined, now.process != nil)
	gauge(to, c.connected, c.run.sessions.connected())
	gauge(to, c.info, true, of.Queue, of.Root, of.Identity, string(of.Role))
	to <- prometheus.MustNewConstMetric(c.rejoins, prometheus.CounterValue, float64(now.rejoins))
	if now.process != nil {
		c.books(to, now.process)
	}
}

// booksLimit is how long a scrape waits for Redis.
const booksLimit = 3 * time.Second

// books tells what Redis and ZooKeeper hold of the queue.
func (c queueCollector) books(to chan<- prometheus.Metric, p *tasks.Process) {
	ctx, cancel := context.WithTimeout(p.Context(), booksLimit)
	defer cancel()
	of, d := c.run.c.Process, c.queue
	load, err := p.Load(ctx)
	gauge(to, d.redis, err == nil, of.Queue, of.Root)
	if err != nil {
		return
	}
	for desc, value := range map[*prometheus.Desc]float64{
		d.batches: float64(load.Batches), d.depth: float64(load.Waiting), d.oldest: load.Oldest.Seconds(),
		d.hand: float64(load.Hand), d.done: float64(load.Done), d.dead: float64(load.Dead),
		d.bytes: float64(load.Bytes), d.maxBytes: float64(p.Queue().MaxBytes),
	} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, of.Queue, of.Root)
	}
	attempts := float64(load.Attempts)
	to <- prometheus.MustNewConstMetric(d.attempts, prometheus.CounterValue, attempts, of.Queue, of.Root)
}
