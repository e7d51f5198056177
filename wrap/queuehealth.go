package wrap

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"muster/resource/queue"
	"muster/tasks"
)

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
