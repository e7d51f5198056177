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
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"muster/member"
	"muster/tasks"
	"muster/tasks/store"
	"muster/worker"
	"muster/wrap/command"
)

// health is a server for what supervises the process: a container platform, Prometheus.
//
//	/live     200 as long as the process is there
//	/ready    200 while it runs and is a member that reaches ZooKeeper; 503 and why not
//	/metrics  in Prometheus' text format
type health struct {
	server *http.Server
	addr   net.Addr // where it listens
	served sync.WaitGroup
}

// healthOf is what a health server tells of one kind of process.
type healthOf struct {
	info    func() []string        // the labels of the info metric, as those of samples.show; nil: not known yet
	counts  []prometheus.Collector // what has happened
	collect func(to samples)       // unless nil, what there is besides
	problem func() string          // unless nil, why a member that reaches ZooKeeper is not ready; empty: it is
	routes  map[string]http.HandlerFunc
}

// openHealth serves until it is closed.
func (l *life) openHealth(of healthOf) (*health, error) {
	listener, err := net.Listen("tcp", l.HTTP)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHealth, err)
	}
	all := prometheus.NewRegistry()
	all.MustRegister(of.counts...)
	all.MustRegister(
		collector(func(to samples) { l.collect(to, of) }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "live\n") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		ready, why := l.ready(of)
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, why)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
	for pattern, handler := range of.routes {
		mux.HandleFunc(pattern, handler)
	}
	h := &health{addr: listener.Addr(), server: &http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, ErrorLog: warnings(l.Log),
	}}
	h.served.Go(func() { _ = h.server.Serve(listener) }) // it always ends with an error
	return h, nil
}

func (h *health) close() {
	_ = h.server.Close()
	h.served.Wait()
}

// ready says whether the process runs as a member that reaches ZooKeeper, and if not, why not.
func (l *life) ready(of healthOf) (bool, string) {
	stage, isMember, _ := l.state()
	problem := ""
	switch {
	case stage != StageRunning:
		return false, string(stage)
	case !isMember:
		problem = "the session is lost"
	case !l.connected():
		problem = "no connection to ZooKeeper"
	case of.problem != nil:
		problem = of.problem()
	}
	if problem != "" {
		return false, "degraded: " + problem
	}
	return true, string(stage)
}

// collector shows what there is at each request. What it shows is not known before.
type collector func(to samples)

// Describe implements prometheus.Collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) { c(to) }

// samples are what a collector shows.
type samples chan<- prometheus.Metric

// show shows a sample. labels are a name and its value, one after the other.
func (to samples) show(t prometheus.ValueType, name, help string, value float64, labels ...string) {
	var names, values []string
	for pair := range slices.Chunk(labels, 2) {
		names, values = append(names, pair[0]), append(values, pair[1])
	}
	to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), t, value, values...)
}

func (to samples) gauge(name, help string, value float64, labels ...string) {
	to.show(prometheus.GaugeValue, name, help, value, labels...)
}

func (to samples) holds(name, help string, holds bool, labels ...string) {
	value := 0.0
	if holds {
		value = 1
	}
	to.gauge(name, help, value, labels...)
}

// collect shows how the process is.
func (l *life) collect(to samples, of healthOf) {
	now, isMember, rejoins := l.state()
	name := func(what string) string { return "muster_" + l.who + "_" + what }
	for _, s := range []Stage{StageJoining, StageWaiting, StageRunning, StageDraining, StageLeaving} {
		to.holds(name("stage"), "1 for the stage that the "+l.who+" is at.", s == now, "stage", string(s))
	}
	joined := "joined"
	if l.who == "worker" {
		joined = "member"
	}
	to.holds(name(joined), "1 while it is a member of its "+l.kind.Name+", 0 while its session is lost.", isMember)
	to.holds(name("connected"), "1 while its session has a connection to a ZooKeeper server.", l.connected())
	to.show(prometheus.CounterValue, name("rejoins_total"), "How often it joined again after a lost session.",
		float64(rejoins))
	if labels := of.info(); labels != nil {
		to.holds(name("info"), "Which "+l.who+" it is.", true, append(labels, l.kind.Name, l.name, "root", l.root)...)
	}
	if of.collect != nil {
		of.collect(to)
	}
}

// secondsBuckets are from 1 ms to 4 minutes.
func secondsBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 4, 10) }

func newBarriers() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "muster_worker_barrier_seconds",
		Help:    "How long the command waited at barriers, by outcome: released, aborted or failed.",
		Buckets: secondsBuckets(),
	}, []string{"outcome"})
}

// countBarrier counts one wait at a barrier.
func (r *run) countBarrier(took time.Duration, err error) {
	outcome := "released"
	switch {
	case errors.As(err, new(*worker.AbortedError)):
		outcome = "aborted"
	case err != nil:
		outcome = "failed"
	}
	r.barriers.WithLabelValues(outcome).Observe(took.Seconds())
}

// healthOf is what the health server of a member tells.
func (r *memberRun) healthOf() healthOf {
	of := r.c.Member
	return healthOf{
		info:   func() []string { return []string{"identity", of.Identity, "version", of.Version} },
		counts: []prometheus.Collector{r.ticks, r.takeovers},
		collect: func(to samples) {
			for _, duty := range of.Can {
				_, held := r.epochOf(duty)
				to.holds("muster_member_held", "1 for each duty that this member holds, 0 for each other that it can do.",
					held, "duty", duty)
			}
		},
		routes: map[string]http.HandlerFunc{"GET /duty/{duty}": func(w http.ResponseWriter, q *http.Request) {
			epoch, held := r.epochOf(q.PathValue("duty"))
			if !held || (&command.Lease{Session: r.session.Load()}).Check() != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintln(w, "not held")
				return
			}
			fmt.Fprintln(w, "held", epoch)
		}},
	}
}

func newTicks() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_member_runs_total",
		Help: "Runs of crons that ended on this member, by duty and result.",
	}, []string{"duty", "result"})
}

func newTakeovers() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "muster_member_takeover_seconds",
		Help:    "From the moment when the assigner gave a duty to this member until it held it.",
		Buckets: secondsBuckets(),
	})
}

// watch notes what happens to a membership: which duties it holds, and how long take-overs last.
func (r *memberRun) watch(events iter.Seq[member.Event]) {
	defer r.note(func() { clear(r.taken) })
	given := map[string]time.Time{}
	for e := range events {
		r.logEvent(e)
		switch e.Kind {
		case member.EventGiven:
			given[e.Duty] = e.Time
		case member.EventTaken:
			if at, ok := given[e.Duty]; ok {
				r.takeovers.Observe(e.Time.Sub(at).Seconds())
				delete(given, e.Duty)
			}
			r.note(func() { r.taken[e.Duty] = e.Epoch })
		case member.EventReleased, member.EventResigned, member.EventLost:
			r.note(func() { delete(r.taken, e.Duty) })
		}
	}
}

// logEvent logs what happens to the duties of this member. Runs that end well are many, and are in the record of their
// cron; who is given a duty takes it soon.
func (r *memberRun) logEvent(e member.Event) {
	level := slog.LevelInfo
	switch e.Kind {
	case member.EventRunFailed:
		level = slog.LevelWarn
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
	if e.Run != nil && e.Run.Exit != member.NoExit {
		var output command.Tail
		output.Add(e.Run.Tail)
		attrs = append(attrs, slog.Int("exit", e.Run.Exit), slog.String("output", output.LastLine()))
	}
	r.Log.LogAttrs(context.Background(), level, string(e.Kind), attrs...)
}

// healthOf is what the health server of a process of a queue tells.
func (r *queueRun) healthOf() healthOf {
	of := r.c.Process
	return healthOf{
		info:   func() []string { return []string{"identity", of.Identity, "role", string(of.Role)} },
		counts: []prometheus.Collector{r.ended},
		problem: func() string {
			p, there := r.now()
			switch {
			case !there:
				return "the session is lost"
			case !p.Connected():
				return "no connection to ZooKeeper"
			case !p.Ready():
				return "Redis does not answer"
			}
			return ""
		},
		collect: func(to samples) {
			if p, there := r.now(); there {
				collectBooks(to, p, "queue", of.Queue, "root", of.Root)
			}
		},
	}
}

// booksLimit is how long a scrape waits for Redis.
const booksLimit = 3 * time.Second

// maxCounted is of how many batches a scrape counts the tasks.
const maxCounted = 1000

// readBooks reads what Redis holds of a queue: all in all, and the sum of its oldest batches. oldest is the time since
// the first of these with waiting tasks was submitted; 0: nothing waits.
func readBooks(ctx context.Context, p *tasks.Process) (
	books store.Books, sum store.Batch, oldest time.Duration, err error,
) {
	if books, err = p.Store().Books(ctx); err != nil {
		return books, sum, 0, err
	}
	first, counted := "", 0
	for b, err := range p.Store().AllBatches(ctx) {
		if err != nil {
			return books, sum, 0, err
		}
		waiting := b.Waiting + b.Returned + b.Late
		sum.Waiting, sum.Out, sum.Done, sum.Dead = sum.Waiting+waiting, sum.Out+b.Out, sum.Done+b.Done, sum.Dead+b.Dead
		if first == "" && waiting > 0 {
			first = b.ID
		}
		if counted++; counted == maxCounted {
			break
		}
	}
	if first == "" {
		return books, sum, 0, nil
	}
	m, err := p.Manifest(ctx, first)
	if errors.Is(err, tasks.ErrNoBatch) { // it has ended meanwhile
		return books, sum, 0, nil
	}
	return books, sum, max(time.Since(m.Since), 0), err
}

// collectBooks shows what Redis and ZooKeeper hold of the queue, which all of its processes tell alike.
func collectBooks(to samples, p *tasks.Process, labels ...string) {
	ctx, cancel := context.WithTimeout(p.Context(), booksLimit)
	defer cancel()
	books, batches, oldest, err := readBooks(ctx, p)
	to.holds("muster_queue_redis", "1 while the queue's Redis answers. Without it the others of the queue are missing.",
		err == nil, labels...)
	if err != nil {
		return
	}
	gauge := func(name, help string, value float64) { to.gauge("muster_queue_"+name, help, value, labels...) }
	gauge("batches", "Unfinished batches.", float64(books.Batches))
	gauge("depth", "Tasks that wait.", float64(batches.Waiting))
	gauge("oldest_age_seconds", "Since when the oldest batch that has waiting tasks was submitted; 0: none.",
		oldest.Seconds())
	gauge("in_hand", "Tasks that executors have.", float64(batches.Out))
	gauge("done", "Tasks of unfinished batches that have a result.", float64(batches.Done))
	gauge("dead", "Tasks of unfinished batches that failed for good.", float64(batches.Dead))
	gauge("bytes", "What Redis holds. Above twice max_bytes nothing is executed until a batch ends.", float64(books.Bytes))
	gauge("max_bytes", "The queue's max_bytes.", float64(p.Queue().MaxBytes))
	to.show(prometheus.CounterValue, "muster_queue_attempts_total", "Attempts at tasks that have ended.",
		float64(books.Finished), labels...)
}
