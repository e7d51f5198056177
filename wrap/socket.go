package wrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"muster/worker"
)

// The socket is how a command takes part: HTTP and JSON on a unix socket that only its own user can reach.
//
//	GET  /self                                 who this worker is
//	GET  /members[?live]                       who has joined, or who is live
//	POST /wait     {timeout}                   until all have joined
//	POST /barrier  {name, round, live, retry, timeout}
//
// and what data.go says.
//
// Durations are Go's ("30s"). Every field but name may be absent. A client that hangs up only stops waiting. An answer
// other than 200 is a Refusal.

// Self is what a command may know of its worker.
type Self struct {
	Job        string `json:"job"`
	Root       string `json:"root"`
	ID         int    `json:"id"`
	Workers    int    `json:"workers"`
	Identity   string `json:"identity"`
	Address    string `json:"address"` // where the others reach it
	Generation string `json:"generation"`
	Stage      Stage  `json:"stage"`
	Member     bool   `json:"member"` // false while it joins again after a lost session
}

// Members are workers, in the order of their ids.
type Members struct {
	Members []worker.Worker `json:"members"`
}

// Wait asks to wait until all have joined.
type Wait struct {
	Timeout string `json:"timeout,omitempty"` // empty: the job's join timeout, which is also the longest
}

// Barrier asks to wait at a barrier; see worker.Barrier.
type Barrier struct {
	Name    string `json:"name"`
	Round   *int   `json:"round,omitempty"`
	Live    bool   `json:"live,omitempty"`
	Retry   bool   `json:"retry,omitempty"`
	Timeout string `json:"timeout,omitempty"`
}

// maxRequest bounds the body of a request.
const maxRequest = 64 << 10

// socket serves the command. It exists before the worker has joined; the command is told its path.
type socket struct {
	path     string
	listener net.Listener
	server   *http.Server
	served   sync.WaitGroup
}

// openSocket makes the socket in a fresh directory that only this user can enter.
func openSocket() (*socket, error) {
	dir, err := privateDir()
	if err != nil {
		return nil, fmt.Errorf("a directory for the command's socket (TMPDIR says where): %w", err)
	}
	s := &socket{path: filepath.Join(dir, "socket")}
	if s.listener, err = net.Listen("unix", s.path); err == nil {
		err = os.Chmod(s.path, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the command's socket: %w", err), os.RemoveAll(dir))
	}
	return s, nil
}

// maxSocketPath is the length of a unix socket's path that every system allows.
const maxSocketPath = 100

func privateDir() (string, error) {
	base, err := filepath.Abs(os.TempDir()) // the command may run in another directory
	if err != nil {
		return "", err
	}
	if len(base) > maxSocketPath-len("/muster-1234567890/socket") {
		base = "/tmp"
	}
	return os.MkdirTemp(base, "muster-")
}

// workerRoutes is what a worker answers.
func workerRoutes(ms *membership, p *progress) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /self", answer(func(_ context.Context, _ *http.Request) (any, error) {
		m, isMember, _ := ms.state()
		stage, _ := p.now()
		return Self{
			m.Job.Name, m.Job.Root, m.ID, m.Job.Workers, m.Identity, m.Address(), m.Generation, stage, isMember,
		}, nil
	}))
	mux.HandleFunc("GET /members", answer(func(ctx context.Context, q *http.Request) (any, error) {
		return members(ctx, ms, q)
	}))
	mux.HandleFunc("POST /wait", answer(func(ctx context.Context, q *http.Request) (any, error) {
		return wait(ctx, ms, q)
	}))
	mux.HandleFunc("POST /barrier", answer(func(ctx context.Context, q *http.Request) (any, error) {
		begun := time.Now()
		body, err := barrier(ctx, ms, q)
		p.metrics.barrierWait(time.Since(begun), err)
		return body, err
	}))
	dataRoutes(mux, ms)
	return mux
}

// serve answers until ctx ends, which also ends the requests that wait.
func (s *socket) serve(ctx context.Context, routes http.Handler, to *slog.Logger) {
	s.server = &http.Server{
		Handler:           routes,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          warnings(to),
	}
	s.served.Go(func() { _ = s.server.Serve(s.listener) }) // it always ends with an error
}

// warnings is where a server logs what it cannot tell its client. Standard error is the command's.
func warnings(to *slog.Logger) *log.Logger { return slog.NewLogLogger(to.Handler(), slog.LevelWarn) }

// close removes the socket and its directory.
func (s *socket) close() {
	if s.server != nil {
		_ = s.server.Close()
	}
	_ = s.listener.Close()
	s.served.Wait()
	_ = os.RemoveAll(filepath.Dir(s.path))
}

// answer is a handler that writes what f returns.
func answer(f func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		body, err := f(q.Context(), q)
		code := http.StatusOK
		if err != nil {
			refusal := refusalOf(err)
			body, code = refusal, refusal.status()
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body) // the client may be gone
	}
}

// decode reads a request strictly: a mistyped field must not become a default. An empty body is an empty object.
func decode(q *http.Request, into any) error { return decodeUpTo(q, maxRequest, into) }

// decodeUpTo is decode for requests of so many bytes.
func decodeUpTo(q *http.Request, limit int64, into any) error {
	body, err := io.ReadAll(io.LimitReader(q.Body, limit+1))
	switch {
	case err != nil:
		return badRequest("%v", err)
	case int64(len(body)) > limit:
		return badRequest("it has more than %d bytes", limit)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	switch err := d.Decode(into); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return badRequest("%v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("something follows the object")
	}
	return nil
}

// parseTimeout reads the timeout of a request; empty is 0.
func parseTimeout(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err == nil && d <= 0 {
		err = fmt.Errorf("it is not above 0")
	}
	if err != nil {
		return 0, badRequest("timeout %q: %v", s, err)
	}
	return d, nil
}

func members(ctx context.Context, ms *membership, q *http.Request) (any, error) {
	read := (*worker.Member).Joined
	if q.URL.Query().Has("live") {
		read = (*worker.Member).Live
	}
	found := Members{Members: []worker.Worker{}}
	err := ms.within(ctx, 0, func(ctx context.Context, m *worker.Member) error {
		ws, err := read(m, ctx)
		found.Members = append(found.Members[:0], ws...)
		return err
	}, "who the members are")
	return found, err
}

func wait(ctx context.Context, ms *membership, q *http.Request) (any, error) {
	var w Wait
	if err := decode(q, &w); err != nil {
		return nil, err
	}
	limit, err := parseTimeout(w.Timeout)
	if err != nil {
		return nil, err
	}
	return struct{}{}, ms.waitAll(ctx, limit)
}

func barrier(ctx context.Context, ms *membership, q *http.Request) (any, error) {
	var b Barrier
	if err := decode(q, &b); err != nil {
		return nil, err
	}
	limit, err := parseTimeout(b.Timeout)
	if err != nil {
		return nil, err
	}
	at := worker.Barrier{Name: b.Name, Round: b.Round, Live: b.Live, Retry: b.Retry, Timeout: limit}
	if err := at.Check(); err != nil {
		return nil, badRequest("%w", err)
	}
	return struct{}{}, ms.barrier(ctx, at)
}
