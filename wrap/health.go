package wrap

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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
