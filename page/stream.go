package page

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"
)

// stream sends what changes in a page, as server-sent events:
//
//	event: patch   what to set and to remove
//	event: reload  the page is too old, or was made by another process: load it again
//	event: alive   nothing has changed for a while
//
// u is the path and the query of the page, v the version that it has.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	at, err := url.Parse(r.URL.Query().Get("u"))
	if err != nil || len(at.String()) > maxURL {
		http.Error(w, "u is not a page", http.StatusBadRequest)
		return
	}
	request, ok := parseRequest(at)
	if !ok {
		http.Error(w, "u is not a page", http.StatusNotFound)
		return
	}
	from := addressOf(r.RemoteAddr)
	if !s.streams.begin(from) {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer s.streams.end(from)
	v, err := s.hub.acquire(request)
	if err != nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.hub.release(v)
	version, _ := strconv.ParseUint(r.URL.Query().Get("v"), 10, 64)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must pass each event on
	if r.Method == http.MethodHead {
		return
	}
	if err := s.follow(patientForever(w), r, v, version); err != nil && !errors.Is(err, errGone) {
		s.dropped.Add(1)
	}
}

// streams counts those that are open.
type streams struct {
	mu   sync.Mutex
	all  int
	from map[netip.Addr]int // how many each address has
}

// begin counts one more; false: that is too many.
func (s *streams) begin(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= MaxStreams || s.from[from] >= MaxStreamsFromAddress {
		return false
	}
	if s.from == nil {
		s.from = map[netip.Addr]int{}
	}
	s.all++
	s.from[from]++
	return true
}

func (s *streams) end(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.from[from]--; s.from[from] == 0 {
		delete(s.from, from)
	}
}

func (s *streams) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// errGone means that the reader closed the connection.
var errGone = errors.New("the reader has gone")

// follow sends events until the reader goes, is too slow, or the server ends.
func (s *server) follow(w *patientWriter, r *http.Request, v *scene, version uint64) error {
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	if err := w.send("retry: 2000\n\n"); err != nil {
		return err
	}
	for {
		shown, ok, changed := v.shown.now()
		if ok {
			events, known := shown.since(version)
			version = shown.Version
			if !known {
				events = [][]byte{[]byte("event: reload\ndata: {}\n\n")}
			}
			for _, e := range events {
				if err := w.send(string(e)); err != nil {
					return err
				}
			}
		}
		select {
		case <-changed:
		case <-alive.C:
			if err := w.send("event: alive\ndata: {}\n\n"); err != nil {
				return err
			}
		case <-r.Context().Done():
			return nil
		case <-s.ending:
			return nil
		}
	}
}

// send writes an event. The error is errGone, or that of a reader who is too slow.
func (p *patientWriter) send(event string) error {
	_, err := p.Write([]byte(event))
	if err == nil {
		err = p.flush()
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return errGone
	}
	return err
}
