package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"muster/apply/history"
	"muster/report"
	"muster/resource/queue"
	"muster/text"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// problem is an answer that is not what was asked for.
type problem struct {
	code int // of HTTP

	What string `json:"error"`
	Next string `json:"next,omitempty"` // what the caller can do
}

func (p *problem) Error() string { return p.What }

func busy(what string) error {
	return &problem{http.StatusServiceUnavailable, what, "try again in some seconds"}
}

// answer writes one document of the API. The error may be a problem.
type answer func(ctx context.Context, to *bytes.Buffer, r *http.Request, b *Board) error

// api handles requests for documents of JSON. Each is what a command prints with --json. Without ZooKeeper there is
// none: a program must not take what was for what is.
func (s *server) api(mux *http.ServeMux) {
	for pattern, f := range map[string]answer{
		"GET /api/status":            s.apiStatus,
		"GET /api/status/{path...}":  s.apiDetail,
		"GET /api/members/{path...}": s.apiMembers,
		"GET /api/batches/{path...}": s.apiBatches,
		"GET /api/batch/{path...}":   s.apiBatch,
		"GET /api/history":           s.apiHistory,
		"GET /api/": func(context.Context, *bytes.Buffer, *http.Request, *Board) error {
			return &problem{http.StatusNotFound, "there is no such document",
				"/api/status, /api/status/PATH, /api/members/PATH, /api/batches/PATH, " +
					"/api/batch/PATH/BATCH or /api/history"}
		},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, f) })
	}
}

func (s *server) answer(w http.ResponseWriter, r *http.Request, f answer) {
	w.Header().Set("Content-Type", "application/json")
	select {
	case s.answering <- struct{}{}:
		defer func() { <-s.answering }()
	default:
		refuse(w, busy("too many requests at a time"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), firstRead)
	defer cancel()
	var body bytes.Buffer
	b, err := s.current(ctx)
	if err == nil {
		err = f(ctx, &body, r, b)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	if b.Unindexed != "" || len(b.Unlisted) > 0 {
		w.Header().Set("Muster-Incomplete", "true")
	}
	_, _ = patient(w).Write(body.Bytes()) // the reader may have gone
}

func (s *server) current(ctx context.Context) (*Board, error) {
	b, ok := await(ctx, &s.keeper.board)
	switch {
	case !ok:
		return nil, busy("ZooKeeper was not read yet")
	case !b.Connected:
		return nil, busy("ZooKeeper does not answer; it last did at " + b.At.UTC().Format(time.RFC3339))
	}
	return b, nil
}

func problemOf(err error) *problem {
	p := &problem{http.StatusInternalServerError, err.Error(), ""}
	errors.As(err, &p)
	return p
}

func refuse(w http.ResponseWriter, err error) {
	p := problemOf(err)
	if p.code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	w.WriteHeader(p.code)
	_ = json.NewEncoder(w).Encode(p) // the reader may have gone
}

// apiStatus is "muster status --json". It is made once for each board.
func (s *server) apiStatus(_ context.Context, to *bytes.Buffer, _ *http.Request, b *Board) error {
	s.all.Lock()
	defer s.all.Unlock()
	if s.all.board != b {
		var body bytes.Buffer
		if err := report.StatusJSON(&body, b.Resources, s.lastApplies(b, b.Resources...)...); err != nil {
			return err
		}
		s.all.board, s.all.body = b, body.Bytes()
	}
	*to = *bytes.NewBuffer(slices.Clip(s.all.body)) // all answers share it
	return nil
}

// lastApplies are the last applies of the stacks of these resources, and of the configuration's, as a status has them.
func (s *server) lastApplies(b *Board, of ...view.Resource) (all []history.Found) {
	declared := ""
	if len(s.cfg.Also) > 0 {
		declared = s.cfg.Stacks[0]
	}
	for _, stack := range view.Stacks(s.cfg.Home, declared, of) {
		if a, ok := b.last[stack]; ok {
			all = append(all, a)
		}
	}
	return all
}

// pathOf is the path that a request names.
func pathOf(r *http.Request) string { return "/" + r.PathValue("path") }

// found is the resource of the board at a path.
func found(path string, b *Board) (view.Resource, error) {
	if j, ok := b.resource(path); ok {
		return j, nil
	}
	return view.Resource{}, &problem{
		http.StatusNotFound, "there is no job, group or queue " + text.Escape(path),
		"/api/status shows what is there; muster serve --root PATH shows what is below another root",
	}
}

// withDetail calls f with a detail that is current.
func (s *server) withDetail(ctx context.Context, path, batch string, b *Board, f func(*Detail) error) error {
	j, err := found(path, b)
	if err != nil {
		return err
	}
	d, err := s.keeper.detail(j.Path, batch)
	if err != nil {
		return busy(err.Error())
	}
	defer s.keeper.releaseDetail(d)
	one, ok := s.currentDetail(ctx, d)
	switch {
	case !ok:
		return busy(j.Path + " was not read in time")
	case one == nil: // deleted meanwhile
		_, err = found(path, &Board{})
		return err
	case one.Problem != "":
		return &problem{http.StatusBadGateway, one.Problem, "muster explain " + text.ShellWord(j.Path)}
	}
	return f(one)
}

// currentDetail waits for a detail that was read in the session that there is; nil: the board has it no longer.
func (s *server) currentDetail(ctx context.Context, d *watchedDetail) (one *Detail, ok bool) {
	for {
		b, _, boardChanged := s.keeper.board.now()
		l, _, linkChanged := s.keeper.link.now()
		one, read, changed := d.shown.now()
		switch _, listed := b.resource(d.path); {
		case !listed:
			return nil, true
		case read && one != nil && one.link == l:
			return one, true
		}
		select {
		case <-changed:
		case <-boardChanged:
		case <-linkChanged:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// apiDetail is "muster status PATH --json".
func (s *server) apiDetail(ctx context.Context, to *bytes.Buffer, r *http.Request, b *Board) error {
	return s.withDetail(ctx, pathOf(r), "", b, func(d *Detail) error {
		all := []view.Resource{d.Resource}
		return report.StatusJSON(to, all, s.lastApplies(b, all...)...)
	})
}

// peer is a worker as "muster members" shows it.
type peer struct {
	Identity string `json:"identity,omitempty"` // only of a live worker
	znode.Worker
}

// apiMembers is "muster members --json", with ?live that of "muster members --live --json".
func (s *server) apiMembers(ctx context.Context, to *bytes.Buffer, r *http.Request, b *Board) error {
	j, err := found(pathOf(r), b)
	switch {
	case err != nil:
		return err
	case !view.IsJob(&j.Observed):
		return &problem{http.StatusNotFound, j.Path + " is not a job", "/api/status" + j.Path}
	}
	l, _, _ := s.keeper.link.now()
	if l == nil {
		return busy("ZooKeeper does not answer")
	}
	look := l.mirror.Look()
	defer look.Close()
	all, _, err := zkstate.NewReader(look, s.cfg.Home, s.cfg.Kinds...).Workers(ctx, j.Path)
	switch {
	case errors.Is(err, zkconn.ErrSessionLost), errors.Is(err, zkconn.ErrUnreachable), ctx.Err() != nil:
		return busy(err.Error())
	case err != nil:
		return &problem{http.StatusBadGateway, err.Error(), "muster explain " + text.ShellWord(j.Path)}
	}
	live := r.URL.Query().Has("live")
	members := []peer{}
	for _, w := range all {
		switch {
		case live && w.Live:
			members = append(members, peer{w.Identity, w.Info})
		case !live && w.ID >= 0:
			members = append(members, peer{"", w.Info})
		}
	}
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	return e.Encode(map[string][]peer{"members": members})
}

// isQueue says why what is at a path is no queue; nil: it is one.
func isQueue(path string, b *Board) error {
	j, err := found(path, b)
	if err == nil && view.KindOf(&j.Observed).Name != queue.KindName {
		err = &problem{http.StatusNotFound, j.Path + " is not a queue", "/api/status" + j.Path}
	}
	return err
}

// redisError says that Redis does not answer; nil: it does.
func (d *Detail) redisError() error {
	if d.Redis == "" {
		return nil
	}
	return &problem{http.StatusBadGateway, d.Redis,
		"try again when Redis answers; muster explain " + text.ShellWord(d.Path) + " says which"}
}

func (s *server) apiBatches(ctx context.Context, to *bytes.Buffer, r *http.Request, b *Board) error {
	if err := isQueue(pathOf(r), b); err != nil {
		return err
	}
	return s.withDetail(ctx, pathOf(r), "", b, func(d *Detail) error {
		if err := d.redisError(); err != nil { // an empty list would say that there is nothing to do
			return err
		}
		var rows []view.BatchRow
		for _, b := range d.Batches {
			rows = append(rows, b.BatchRow)
		}
		return report.BatchesJSON(to, rows)
	})
}

// apiBatch is "muster queue batches QUEUE BATCH --json".
func (s *server) apiBatch(ctx context.Context, to *bytes.Buffer, r *http.Request, b *Board) error {
	at, ok := batchRequest(pathOf(r))
	if !ok {
		return &problem{http.StatusNotFound, "this is not QUEUE/BATCH", "/api/batches/PATH lists those of a queue"}
	}
	if err := isQueue(at.Path, b); err != nil {
		return err
	}
	return s.withDetail(ctx, at.Path, at.Batch, b, func(d *Detail) error {
		if d.Batch == nil {
			return &problem{http.StatusNotFound, "there is no batch " + at.Batch + " of " + text.Escape(at.Path),
				"/api/batches" + at.Path + " lists the unfinished ones"}
		}
		if err := d.redisError(); err != nil && d.Batch.How == "" {
			return err
		}
		_, batch := d.current()
		e := json.NewEncoder(to)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(batch)
	})
}

func (s *server) apiHistory(_ context.Context, to *bytes.Buffer, _ *http.Request, b *Board) error {
	return report.HistoryJSON(to, b.History)
}

// health says whether ZooKeeper answers.
func (s *server) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if _, err := s.current(ctx); err != nil {
		p := problemOf(err)
		w.Header().Set("Retry-After", "5")
		http.Error(w, p.What, p.code)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}
