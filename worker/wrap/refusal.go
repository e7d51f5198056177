package wrap

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"muster/worker"
)

// Refusal is what the socket answers instead of what was asked for. As an error it is what the worker met: a
// worker.AbortedError, a worker.AbsentError, worker.ErrFenced, ErrRequest, ErrLate or ErrUnavailable.
type Refusal struct {
	Text    string   `json:"error"`
	Kind    kind     `json:"kind"`
	Aborted *aborted `json:"aborted,omitempty"`
	Absent  *absent  `json:"absent,omitempty"`
}

// aborted is a worker.AbortedError, and absent a worker.AbsentError, as JSON.
type (
	aborted struct {
		Name    string `json:"name"`
		Round   int    `json:"round"`
		Why     string `json:"why"`
		Missing []int  `json:"missing"`
	}
	absent struct {
		Workers int      `json:"workers"`
		Joined  int      `json:"joined"`
		NotLive []string `json:"not_live"`
		Missing []string `json:"missing"`
	}
)

// What a Refusal may be, besides the errors of package worker.
var (
	// ErrRequest means that the request makes no sense. Correct it.
	ErrRequest = errors.New("bad request")
	// ErrUnavailable means that there is no worker to ask, or that it ends. Ask again if it is to live longer.
	ErrUnavailable = errors.New("the worker does not answer")
)

// kind is a Refusal's, for programs.
type kind string

const (
	kindRequest     kind = "request"
	kindAborted     kind = "aborted"
	kindAbsent      kind = "absent"
	kindFenced      kind = "fenced"
	kindLate        kind = "late"
	kindUnavailable kind = "unavailable"
	kindFailed      kind = "failed"
)

func badRequest(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRequest, fmt.Errorf(format, args...))
}

// refuse is the Refusal for an error.
func refuse(err error) *Refusal {
	r := &Refusal{Text: err.Error(), Kind: kindFailed}
	var byAbort *worker.AbortedError
	var byAbsence *worker.AbsentError
	switch {
	case errors.As(err, &byAbort):
		r.Kind, r.Aborted = kindAborted, (*aborted)(byAbort)
	case errors.As(err, &byAbsence):
		r.Kind, r.Absent = kindAbsent, (*absent)(byAbsence)
	case errors.Is(err, worker.ErrFenced):
		r.Kind = kindFenced
	case errors.Is(err, ErrRequest):
		r.Kind = kindRequest
	case errors.Is(err, ErrLate):
		r.Kind = kindLate
	case errors.Is(err, context.Canceled):
		r.Kind, r.Text = kindUnavailable, "the worker ends"
	}
	return r
}

func (r *Refusal) status() int {
	switch r.Kind {
	case kindRequest:
		return http.StatusBadRequest
	case kindAborted:
		return http.StatusConflict
	case kindAbsent, kindLate:
		return http.StatusGatewayTimeout
	case kindFenced:
		return http.StatusGone
	case kindUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func (r *Refusal) Error() string { return r.Text }

// Unwrap is what the worker met; nil if it has no name.
func (r *Refusal) Unwrap() error {
	switch {
	case r.Aborted != nil:
		return (*worker.AbortedError)(r.Aborted)
	case r.Absent != nil:
		return (*worker.AbsentError)(r.Absent)
	case r.Kind == kindFenced:
		return worker.ErrFenced
	case r.Kind == kindRequest:
		return ErrRequest
	case r.Kind == kindLate:
		return ErrLate
	case r.Kind == kindUnavailable:
		return ErrUnavailable
	}
	return nil
}
