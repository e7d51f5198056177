package wrap

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"muster/member"
	"muster/worker"
)

// Refusal is the socket's answer to a request that failed. As an error it wraps what the worker met: a
// worker.AbortedError, a worker.AbsentError, a worker.UnpublishedError, worker.ErrFenced, worker.ErrDataFull,
// ErrRequest, ErrLate, ErrUnavailable, or an error of package member: ErrNotHeld, or one that memberErrors lists.
type Refusal struct {
	Text    string   `json:"error"`
	Kind    Kind     `json:"kind"`
	Aborted *Aborted `json:"aborted,omitempty"`
	Absent  *Absent  `json:"absent,omitempty"`

	Unpublished *Unpublished `json:"unpublished,omitempty"`
}

// Aborted is a worker.AbortedError, Absent a worker.AbsentError, and Unpublished a worker.UnpublishedError, as JSON.
type (
	Aborted struct {
		Name    string `json:"name"`
		Round   int    `json:"round"`
		Attempt int    `json:"attempt"`
		Why     string `json:"why"`
		Missing []int  `json:"missing"`
		Retry   bool   `json:"retry"`
	}
	Absent struct {
		Workers int      `json:"workers"`
		Joined  int      `json:"joined"`
		NotLive []string `json:"not_live"`
		Missing []string `json:"missing"`
	}
	Unpublished struct {
		Key     string `json:"key"`
		Missing []int  `json:"missing"`
	}
)

// What a Refusal may wrap, besides the errors of package worker.
var (
	// ErrRequest means that the request is not understood. Correct it.
	ErrRequest = errors.New("bad request")
	// ErrUnavailable means that there is no worker to ask, or that it is about to end. Ask again only if it should be
	// there.
	ErrUnavailable = errors.New("the worker does not answer")
)

// Kind is the kind of a Refusal, for programs.
type Kind string

// The kinds. KindFailed is every error that has no other.
const (
	KindRequest     Kind = "request"
	KindAborted     Kind = "aborted"
	KindAbsent      Kind = "absent"
	KindFenced      Kind = "fenced"
	KindUnpublished Kind = "unpublished"
	KindDataFull    Kind = "data-full"
	KindLate        Kind = "late"
	KindUnavailable Kind = "unavailable"
	KindNotHeld     Kind = "not-held"
	KindFailed      Kind = "failed"
)

func badRequest(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRequest, fmt.Errorf(format, args...))
}

// refusalOf is the Refusal for an error.
func refusalOf(err error) *Refusal {
	r := &Refusal{Text: err.Error(), Kind: KindFailed}
	var byAbort *worker.AbortedError
	var byAbsence *worker.AbsentError
	var unpublished *worker.UnpublishedError
	switch {
	case errors.As(err, &byAbort):
		r.Kind, r.Aborted = KindAborted, (*Aborted)(byAbort)
	case errors.As(err, &byAbsence):
		r.Kind, r.Absent = KindAbsent, (*Absent)(byAbsence)
	case errors.As(err, &unpublished):
		r.Kind, r.Unpublished = KindUnpublished, (*Unpublished)(unpublished)
	case errors.Is(err, worker.ErrDataFull):
		r.Kind = KindDataFull
	case errors.Is(err, worker.ErrFenced):
		r.Kind = KindFenced
	case errors.Is(err, member.ErrNotHeld):
		r.Kind = KindNotHeld
	case kindOfMember(err) != "":
		r.Kind = kindOfMember(err)
	case errors.Is(err, ErrUnavailable):
		r.Kind = KindUnavailable
	case errors.Is(err, ErrRequest):
		r.Kind = KindRequest
	case errors.Is(err, ErrLate):
		r.Kind = KindLate
	case errors.Is(err, context.Canceled):
		r.Kind, r.Text = KindUnavailable, "the worker ends"
	}
	return r
}

func (r *Refusal) status() int {
	switch r.Kind {
	case KindRequest:
		return http.StatusBadRequest
	case KindAborted, KindNotHeld, KindDataFull:
		return http.StatusConflict
	case KindAbsent, KindUnpublished, KindLate:
		return http.StatusGatewayTimeout
	case KindFenced:
		return http.StatusGone
	case KindUnavailable:
		return http.StatusServiceUnavailable
	}
	if memberErrors()[r.Kind] != nil {
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

func (r *Refusal) Error() string { return r.Text }

// Unwrap is what the worker met; nil if that is none of the errors that have a kind.
func (r *Refusal) Unwrap() error {
	switch {
	case r.Aborted != nil:
		return (*worker.AbortedError)(r.Aborted)
	case r.Absent != nil:
		return (*worker.AbsentError)(r.Absent)
	case r.Unpublished != nil:
		return (*worker.UnpublishedError)(r.Unpublished)
	case r.Kind == KindDataFull:
		return worker.ErrDataFull
	case r.Kind == KindFenced:
		return worker.ErrFenced
	case r.Kind == KindRequest:
		return ErrRequest
	case r.Kind == KindLate:
		return ErrLate
	case r.Kind == KindUnavailable:
		return ErrUnavailable
	case r.Kind == KindNotHeld:
		return member.ErrNotHeld
	}
	return memberErrors()[r.Kind]
}
