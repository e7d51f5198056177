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

// routes is everything that the socket answers.
func (r *memberRun) routes() http.Handler {
	mux := http.NewServeMux()
	r.dutyRoutes(mux)
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

// held is the duty as this member holds it. Its writes are refused if that is not true any more. The error is
// member.ErrNotHeld, or ErrUnavailable.
func (r *memberRun) held(duty string) (*hold, error) {
	if h, ok := r.now().holds[duty]; ok {
		return h, nil
	}
	if _, err := r.current(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %s", member.ErrNotHeld, duty)
}

func (r *memberRun) dutyRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /duty/{duty}", answer(func(ctx context.Context, q *http.Request) (any, error) {
		h, err := r.held(q.PathValue("duty"))
		if err == nil {
			err = h.Check(ctx)
		}
		if err != nil {
			return nil, err
		}
		return Held{h.Duty, h.Epoch}, nil
	}))
	mux.HandleFunc("POST /duty/{duty}/command", r.useDuty)
	mux.HandleFunc("POST /ready", answer(func(ctx context.Context, _ *http.Request) (any, error) {
		r.set(func(s *memberState) { s.ready = true })
		m, err := r.current()
		if err == nil {
			err = m.Ready(ctx)
		}
		if errors.Is(err, ErrUnavailable) { // the next join says it
			err = nil
		}
		return struct{}{}, err
	}))
}
