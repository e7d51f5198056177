package page

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"muster/resource"
	"muster/text"
	"muster/view"
	"muster/zkstate"
)

// metrics handles /metrics: what is on the board, and how the server is. It makes one answer at a time, because its
// samples take much more memory than the answer. At most maxScrapes answers wait for their readers.
func (s *server) metrics() http.Handler {
	own := prometheus.NewRegistry()
	own.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collector{s},
	)
	handler := promhttp.HandlerFor(own, promhttp.HandlerOpts{})
	places := make(chan struct{}, maxScrapes)
	var making sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			unavailable(w, "too many scrapes at a time")
			return
		}
		made := unsentAnswer{ResponseWriter: w, code: http.StatusOK}
		making.Lock()
		handler.ServeHTTP(&made, r)
		making.Unlock()
		w.WriteHeader(made.code)
		_, _ = patient(w).Write(made.body.Bytes()) // the reader may have gone
	})
}

// unsentAnswer keeps the code and the body of an answer. Its header is that of the answer.
type unsentAnswer struct {
	http.ResponseWriter
	code int
	body bytes.Buffer
}

func (a *unsentAnswer) WriteHeader(code int) { a.code = code }

func (a *unsentAnswer) Write(b []byte) (int, error) { return a.body.Write(b) }

// collector collects the metrics of a server and its board. While ZooKeeper does not answer, nothing is known of jobs,
// groups and queues, so there are no series of them.
type collector struct{ *server }

// Describe implements prometheus.Collector: which metrics there are is known when they are collected.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(to chan<- prometheus.Metric) {
	s := scrape{to, c.cfg.Kinds}
	s.add("muster_build_info", "The version of muster; always 1.", 1, "version", c.cfg.Version)
	s.add("muster_serve_connections", "Open connections.", float64(c.connections.count()))
	s.count("muster_serve_refused_connections_total", "Connections that were too many.", &c.connections.refused)
	s.add("muster_serve_streams", "Pages that are open somewhere.", float64(c.streams.count()))
	s.count("muster_serve_dropped_streams_total", "Streams that were closed because their reader was too slow.",
		&c.dropped)
	s.add("muster_serve_views", "Different pages that are shown.", float64(c.hub.count()))
	s.add("muster_serve_details", "Jobs, groups and queues that are looked at in detail.",
		float64(c.keeper.countDetails()))
	s.count("muster_serve_sessions_total", "ZooKeeper sessions that were opened.", &c.keeper.sessions)
	b, _, _ := c.keeper.board.now()
	connected := b != nil && b.Connected
	s.add("muster_serve_connected", "1 while ZooKeeper answers.", oneIf(connected))
	if connected {
		s.board(b)
	}
}

type scrape struct {
	to    chan<- prometheus.Metric
	kinds []zkstate.Kind
}

func (s scrape) count(name, help string, n *atomic.Int64) {
	s.send(prometheus.CounterValue, name, help, float64(n.Load()))
}

// add sends a gauge; labels are name, value, name, value …
func (s scrape) add(name, help string, value float64, labels ...string) {
	s.send(prometheus.GaugeValue, name, help, value, labels...)
}

func (s scrape) send(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
	own := prometheus.Labels{}
	for pair := range slices.Chunk(labels, 2) {
		own[pair[0]] = pair[1]
	}
	s.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, own), kind, value)
}

func (s scrape) board(b *Board) {
	s.add("muster_serve_changed_timestamp_seconds", "When it was read last: after a change, or a new connection.",
		seconds(b.At))
	s.add("muster_serve_incomplete", "1 if not everything could be listed.",
		oneIf(b.Unindexed != "" || len(b.Unlisted) > 0))
	s.counts(b.Resources)
	crons := maxSeries
	for _, j := range b.Resources[:min(len(b.Resources), maxSeries)] {
		s.resource(j)
		results := j.Observed.Results[:min(len(j.Observed.Results), crons)]
		crons -= len(results)
		s.crons(j, results)
	}
	s.add("muster_serve_left_out", "Jobs, groups and queues that have no series of their own, because there are too many.",
		float64(max(0, len(b.Resources)-maxSeries)))
	for _, stack := range b.Stacks {
		if stack.Last != nil {
			s.add("muster_stack_last_apply_timestamp_seconds", "When the stack was applied last.",
				seconds(stack.Last.Started), "stack", label(stack.Name))
		}
	}
}

// counts adds how many jobs, groups and queues have each status; those that none has are 0.
func (s scrape) counts(all []view.Resource) {
	type one struct {
		kind   string
		status resource.Status
	}
	counts := map[one]int{}
	for _, k := range s.kinds {
		for _, status := range k.Statuses {
			counts[one{k.Name, status}] = 0
		}
	}
	for _, j := range all {
		counts[one{view.KindOf(&j.Observed).Name, j.Observed.Status()}]++
	}
	for c, n := range counts {
		s.add("muster_"+c.kind+"s", "The "+c.kind+"s that were found, by status.", float64(n), "status", string(c.status))
	}
}

// resource adds the series of one job, group or queue: its status, what its kind counts, and what only a job or a group
// has.
func (s scrape) resource(j view.Resource) {
	o, kind := &j.Observed, view.KindOf(&j.Observed)
	path, stack := label(j.Path), ""
	if o.Record != nil {
		stack = label(o.Record.Stack)
	}
	add := func(name, help string, value float64) {
		s.add("muster_"+kind.Name+"_"+name, help, value, "path", path, "stack", stack)
	}
	s.add("muster_"+kind.Name+"_status", "1 for the status that the "+kind.Name+" has.", 1,
		"path", path, "stack", stack, "status", string(o.Status()))
	if !view.HasCounts(o) {
		return
	}
	add("live", "Live "+kind.Member+"s.", float64(o.Live))
	for _, c := range kind.Counts {
		name := strings.TrimSuffix(c.Name, "_"+kind.Unfinished.Many) // muster_queue_lost counts batches
		add(name, "Of a "+kind.Name+": "+c.Word+".", float64(o.Count(c.Name)))
	}
	for _, g := range view.DisplayOf(o).Gauges(j) {
		add(g.Name, g.Help, g.Value)
	}
}

// crons adds the series of crons of a group.
func (s scrape) crons(j view.Resource, all []resource.Results) {
	for _, r := range all {
		duty := r.Duty()
		labels := []string{"path", label(j.Path), "stack", label(j.Observed.Record.Stack), "duty", duty}
		if r.Ended() > 0 {
			s.add("muster_cron_last_result", "1 if the last run of the cron is done, 0 if it failed or was lost.",
				oneIf(r.InARow == 0), labels...)
		}
		if !r.LastSuccess.IsZero() {
			s.add("muster_cron_last_success_timestamp_seconds", "When the last run that is done ended.",
				seconds(r.LastSuccess), labels...)
		}
		for state, n := range map[string]int{
			"done": r.Done, "failed": r.Failed, "lost": r.Lost, "missed": r.Missed, "skipped": r.Skipped,
		} {
			s.send(prometheus.CounterValue, "muster_cron_runs_total",
				"Runs of the cron that ended so, and ticks that were missed or skipped.", float64(n),
				append([]string{"state", state}, labels...)...)
		}
	}
}

// label is the value of a label. What is not printable is written as Go writes it, since dashboards show labels as they
// are; and so are backslashes, so that two names never become one.
func label(name string) string { return text.Visible(strings.ReplaceAll(name, `\`, `\\`)) }

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
