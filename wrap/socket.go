package wrap

import (
	"bytes"
	"cmp"
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
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"muster/member"
	"muster/worker"
)

// The socket is how a command takes part: HTTP and JSON on a unix socket that only its own user can reach.
//
//	GET  /self                                 who this worker is
//	GET  /members[?live]                       who has joined, or who is live
//	POST /wait     {timeout}                   until all have joined
//	POST /barrier  {name, round, live, retry, timeout}
//
// and what workers leave to each other, see below.
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

// routes is what a worker answers.
func (r *run) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /self", answer(func(_ context.Context, _ *http.Request) (any, error) {
		m, _, _ := r.now()
		stage, isMember, _ := r.state()
		return Self{
			m.Job.Name, m.Job.Root, m.ID, m.Job.Workers, m.Identity, m.Address(), m.Generation, stage, isMember,
		}, nil
	}))
	mux.HandleFunc("GET /members", answer(func(ctx context.Context, q *http.Request) (any, error) {
		return r.members(ctx, q.URL.Query().Has("live"))
	}))
	mux.HandleFunc("POST /wait", post(maxRequest, r.answerWait))
	mux.HandleFunc("POST /barrier", post(maxRequest, func(ctx context.Context, b Barrier) (any, error) {
		begun := time.Now()
		err := r.answerBarrier(ctx, b)
		r.countBarrier(time.Since(begun), err)
		return struct{}{}, err
	}))
	mux.HandleFunc("POST /publish", post(maxPublish, r.answerPublish))
	mux.HandleFunc("POST /get", post(maxRequest, r.answerGet))
	mux.HandleFunc("POST /advertise", post(maxRequest, r.answerAdvertise))
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

// handle is a handler that answers with an error if f, which has not answered then, returns one.
func handle(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		if err := f(w, q); err != nil {
			refusal := refusalOf(err)
			writeJSON(w, refusal.known().status, refusal)
		}
	}
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// answer is a handler that writes what f returns: bytes as they are, and anything else as JSON.
func answer(f func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return handle(func(w http.ResponseWriter, q *http.Request) error {
		body, err := f(q.Context(), q)
		if err != nil {
			return err
		}
		if value, asIs := body.([]byte); asIs {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", strconv.Itoa(len(value)))
			_, _ = w.Write(value) // the client may be gone
			return nil
		}
		writeJSON(w, http.StatusOK, body)
		return nil
	})
}

// post is answer for a request that has a body of at most so many bytes.
func post[Q any](limit int64, f func(context.Context, Q) (any, error)) http.HandlerFunc {
	return answer(func(ctx context.Context, q *http.Request) (any, error) {
		var question Q
		if err := decode(q, limit, &question); err != nil {
			return nil, err
		}
		return f(ctx, question)
	})
}

// decode reads a request strictly: a mistyped field must not become a default. An empty body is an empty object.
func decode(q *http.Request, limit int64, into any) error {
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

func (r *run) members(ctx context.Context, live bool) (any, error) {
	read := (*worker.Member).Joined
	if live {
		read = (*worker.Member).Live
	}
	found := Members{Members: []worker.Worker{}}
	err := r.ask(ctx, func(ctx context.Context, m *worker.Member) error {
		ws, err := read(m, ctx)
		found.Members = append(found.Members[:0], ws...)
		return err
	}, "who the members are")
	return found, err
}

func (r *run) answerWait(ctx context.Context, w Wait) (any, error) {
	limit, err := parseTimeout(w.Timeout)
	if err != nil {
		return nil, err
	}
	return struct{}{}, r.waitAll(ctx, limit)
}

func (r *run) answerBarrier(ctx context.Context, b Barrier) error {
	limit, err := parseTimeout(b.Timeout)
	if err != nil {
		return err
	}
	at := worker.Barrier{Name: b.Name, Round: b.Round, Live: b.Live, Retry: b.Retry, Timeout: limit}
	if err := at.Check(); err != nil {
		return badRequest("%w", err)
	}
	return r.barrier(ctx, at)
}

// The socket of a worker also serves what workers leave to each other:
//
//	POST /publish    {key, value}              a value for the others; see worker.Publish
//	POST /get        {key, from, timeout}      waits for the values of a key: of this id, or without from of all N
//	POST /advertise  {address}                 another address of this worker
//
// Values are in base64.

// Publish asks to publish a value.
type Publish struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Get asks for what workers have published under a key.
type Get struct {
	Key     string `json:"key"`
	From    *int   `json:"from,omitempty"`    // an id; nil: all N
	Timeout string `json:"timeout,omitempty"` // empty: the job's barrier timeout
}

// Values are what workers have published under a key, in the order of their ids.
type Values struct {
	Values []worker.Published `json:"values"`
}

// Advertise asks to tell the others an address.
type Advertise struct {
	Address string `json:"address"` // HOST:PORT
}

// maxPublish bounds the body of a Publish.
const maxPublish = 1 << 20

func (r *run) answerPublish(ctx context.Context, p Publish) (any, error) {
	if err := worker.CheckValue(p.Key, 0); err != nil {
		return nil, badRequest("%w", err)
	}
	return struct{}{}, r.ask(ctx, func(ctx context.Context, m *worker.Member) error {
		return m.Publish(ctx, p.Key, p.Value)
	}, "whether "+p.Key+" is published")
}

func (r *run) answerGet(ctx context.Context, g Get) (any, error) {
	limit, err := parseTimeout(g.Timeout)
	if err != nil {
		return nil, err
	}
	if err := worker.CheckValue(g.Key, 0); err != nil {
		return nil, badRequest("%w", err)
	}
	m, _, _ := r.now()
	var ids []int
	if g.From != nil {
		if ids = []int{*g.From}; *g.From < 0 || *g.From >= m.Job.Workers {
			return nil, badRequest("there is no worker %d: the job has %d", *g.From, m.Job.Workers)
		}
	}
	found, err := r.values(ctx, g.Key, ids, limit)
	return Values{found}, err
}

// values waits for values, for at most limit or, if that is 0, the job's barrier timeout: as at a barrier, it is other
// workers that have to come so far.
func (r *run) values(
	ctx context.Context, key string, ids []int, limit time.Duration,
) (found []worker.Published, err error) {
	m, _, _ := r.now()
	defer r.whileWaiting(ctx, "workers to publish "+key, valueNotice(key, ids))()
	err = r.within(ctx, cmp.Or(limit, time.Duration(m.Job.Timeouts.Barrier)),
		func(ctx context.Context, m *worker.Member) (err error) {
			found, err = m.Values(ctx, key, ids)
			return err
		}, "who has published "+key)
	return found, err
}

func (r *run) answerAdvertise(ctx context.Context, a Advertise) (any, error) {
	host, port, err := ParseAddress(a.Address)
	if err != nil {
		return nil, badRequest("%w", err)
	}
	return struct{}{}, r.ask(ctx, func(ctx context.Context, m *worker.Member) error {
		return m.Advertise(ctx, host, port)
	}, "whether the others see "+a.Address)
}

// hostName is what may be the name of a host, whose length is checked apart: a pattern that counts is slow to build.
var hostName = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.-]*$`)

// ParseAddress reads HOST:PORT, an address that other machines can reach: HOST is an IP or a name.
func ParseAddress(address string) (host string, port int, err error) {
	host, digits, err := net.SplitHostPort(address)
	n, portErr := strconv.ParseUint(digits, 10, 16)
	if err != nil || portErr != nil || n == 0 || len(host) > 253 ||
		net.ParseIP(host) == nil && !hostName.MatchString(host) {
		return "", 0, fmt.Errorf("%q is not HOST:PORT", address)
	}
	return host, int(n), nil
}

// Refusal is the socket's answer to a request that failed. As an error it wraps what the worker met: a
// worker.AbortedError, a worker.AbsentError, a worker.UnpublishedError, worker.ErrFenced, worker.ErrDataFull,
// ErrRequest, ErrLate, ErrUnavailable, or an error of package member that refusals lists.
type Refusal struct {
	Text string `json:"error"`
	Kind string `json:"kind"` // for programs; see refusals

	Aborted     *worker.AbortedError     `json:"aborted,omitempty"`
	Absent      *worker.AbsentError      `json:"absent,omitempty"`
	Unpublished *worker.UnpublishedError `json:"unpublished,omitempty"`
}

// What a Refusal may wrap, besides the errors of package worker.
var (
	// ErrRequest means that the request is not understood. Correct it.
	ErrRequest = errors.New("bad request")
	// ErrUnavailable means that there is no worker to ask, or that it is about to end. Ask again only if it should be
	// there.
	ErrUnavailable = errors.New("the worker does not answer")
)

func badRequest(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRequest, fmt.Errorf(format, args...))
}

// refusal is an error that a Refusal names by its kind, and the status of that answer.
type refusal struct {
	kind   string
	err    error
	status int
}

// failed is the kind of every error that has no other.
const failed = "failed"

// refusals are all of them, in the order in which an error is compared with them.
func refusals() []refusal {
	return []refusal{
		{"aborted", nil, http.StatusConflict},
		{"absent", nil, http.StatusGatewayTimeout},
		{"unpublished", nil, http.StatusGatewayTimeout},
		{"data-full", worker.ErrDataFull, http.StatusConflict},
		{"fenced", worker.ErrFenced, http.StatusGone},
		{"moved", worker.ErrMoved, http.StatusGone},
		{"not-held", member.ErrNotHeld, http.StatusConflict},
		{"no-key", member.ErrNoKey, http.StatusConflict},
		{"state-too-large", member.ErrStateTooLarge, http.StatusConflict},
		{"state-damaged", member.ErrStateDamaged, http.StatusConflict},
		{"operation-busy", member.ErrOperationBusy, http.StatusConflict},
		{"other-script", member.ErrOtherScript, http.StatusConflict},
		{"no-operation", member.ErrNoOperation, http.StatusConflict},
		{"operation-limit", member.ErrOperationLimit, http.StatusConflict},
		{"operation-over", member.ErrOperationOver, http.StatusConflict},
		{"step-twice", member.ErrStepTwice, http.StatusConflict},
		{"output-too-large", member.ErrOutputTooLarge, http.StatusConflict},
		{"unavailable", ErrUnavailable, http.StatusServiceUnavailable},
		{"request", ErrRequest, http.StatusBadRequest},
		{"late", ErrLate, http.StatusGatewayTimeout},
		{"unavailable", context.Canceled, http.StatusServiceUnavailable},
		{failed, nil, http.StatusInternalServerError},
	}
}

// refusalOf is the Refusal for an error.
func refusalOf(err error) *Refusal {
	r := &Refusal{Text: err.Error()}
	switch {
	case errors.As(err, &r.Aborted):
		r.Kind = "aborted"
	case errors.As(err, &r.Absent):
		r.Kind = "absent"
	case errors.As(err, &r.Unpublished):
		r.Kind = "unpublished"
	default:
		all := refusals()
		found := all[slices.IndexFunc(all, func(k refusal) bool { return k.kind == failed || errors.Is(err, k.err) })]
		if r.Kind = found.kind; found.err == context.Canceled { //nolint:errorlint // the row
			r.Text = "the worker ends"
		}
	}
	return r
}

// known is the first row of this kind; failed if there is none, as in the answer of another version.
func (r *Refusal) known() (k refusal) {
	for _, k = range refusals() {
		if k.kind == r.Kind {
			break
		}
	}
	return k
}

func (r *Refusal) Error() string { return r.Text }

// Unwrap is what the worker met; nil if that is none of the errors that have a kind.
func (r *Refusal) Unwrap() error {
	switch {
	case r.Aborted != nil:
		return r.Aborted
	case r.Absent != nil:
		return r.Absent
	case r.Unpublished != nil:
		return r.Unpublished
	}
	return r.known().err
}
