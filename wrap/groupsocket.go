package wrap

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"muster/member"
)

// The socket of a member is like that of a worker. It answers:
//
//	GET  /duty/NAME            whether this member holds the duty: it asks ZooKeeper
//	POST /duty/NAME/command    see useDuty
//	POST /ready                {}: from now on the member may be given duties
//
// groupstate.go and groupop.go have more.

// Held is a duty that this member holds.
type Held struct {
	Duty  string `json:"duty"`
	Epoch int64  `json:"epoch"`
}

// route is a request that the socket answers, and what answers it. The answer is encoded as JSON, the error as a
// Refusal.
type route struct {
	pattern string
	answer  func(ctx context.Context, q *http.Request) (any, error)
}

// routes is everything that the socket answers. Commands of duties that need more have their routes in files of their
// own, and a line here.
func (r *memberRun) routes() http.Handler {
	mux := http.NewServeMux()
	for _, routes := range [][]route{
		r.dutyRoutes(),
	} {
		for _, one := range routes {
			mux.HandleFunc(one.pattern, answer(one.answer))
		}
	}
	mux.HandleFunc("POST /duty/{duty}/command", r.useDuty)
	r.stateRoutes(mux)
	r.operationRoutes(mux)
	return mux
}

// current is the membership now. The error is ErrUnavailable while this process joins again.
func (r *memberRun) current() (*member.Member, error) {
	if m := r.now().member; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%w: it has lost its session and joins again", ErrUnavailable)
}

// hold is the duty as this member holds it. Its writes are refused if that is not true any more. The error is
// member.ErrNotHeld, or ErrUnavailable.
func (r *memberRun) hold(duty string) (*member.Hold, error) {
	h, err := r.held(duty)
	if err != nil {
		return nil, err
	}
	return h.Hold, nil
}

func (r *memberRun) held(duty string) (*hold, error) {
	if h, ok := r.now().holds[duty]; ok {
		return h, nil
	}
	if _, err := r.current(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %s", member.ErrNotHeld, duty)
}

func (r *memberRun) dutyRoutes() []route {
	return []route{
		{"GET /duty/{duty}", func(ctx context.Context, q *http.Request) (any, error) {
			h, err := r.hold(q.PathValue("duty"))
			if err == nil {
				err = h.Check(ctx)
			}
			if err != nil {
				return nil, err
			}
			return Held{h.Duty, h.Epoch}, nil
		}},
		{"POST /ready", func(ctx context.Context, _ *http.Request) (any, error) {
			r.set(func(s *memberState) { s.ready = true })
			m, err := r.current()
			if err == nil {
				err = m.Ready(ctx)
			}
			if errors.Is(err, ErrUnavailable) { // the next join says it
				err = nil
			}
			return struct{}{}, err
		}},
	}
}
