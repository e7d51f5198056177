package wrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"muster/member"
)

// The socket of a member serves saved state:
//
//	GET    /duty/NAME/state              the keys
//	GET    /duty/NAME/state/KEY          the value, as it is
//	PUT    /duty/NAME/state/KEY?epoch=N  the body is the value
//	DELETE /duty/NAME/state/KEY?epoch=N
//
// Only the holder writes. epoch, which may be absent, is that under which the command runs: one that goes on although
// its member has lost the duty, and taken it again, is not the holder.

// StateKeys are the keys of a duty, sorted.
type StateKeys struct {
	Keys []member.KeyInfo `json:"keys"`
}

func (r *memberRun) stateRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /duty/{duty}/state", answer(func(ctx context.Context, q *http.Request) (any, error) {
		m, err := r.current()
		if err != nil {
			return nil, err
		}
		keys, err := m.Keys(ctx, q.PathValue("duty"))
		return StateKeys{keys}, err
	}))
	mux.HandleFunc("GET /duty/{duty}/state/{key}", r.getState)
	mux.HandleFunc("PUT /duty/{duty}/state/{key}", answer(func(ctx context.Context, q *http.Request) (any, error) {
		// All of the body is read before a refusal: a client that still writes would get a broken pipe, and no answer.
		value, err := io.ReadAll(io.LimitReader(q.Body, member.MaxStateValue+1))
		if err != nil {
			return nil, err
		}
		h, err := r.holdSince(q)
		if err != nil {
			return nil, err
		}
		return struct{}{}, h.Put(ctx, q.PathValue("key"), value)
	}))
	mux.HandleFunc("DELETE /duty/{duty}/state/{key}", answer(func(ctx context.Context, q *http.Request) (any, error) {
		h, err := r.holdSince(q)
		if err != nil {
			return nil, err
		}
		return struct{}{}, h.Remove(ctx, q.PathValue("key"))
	}))
}

func (r *memberRun) getState(w http.ResponseWriter, q *http.Request) {
	m, err := r.current()
	var value []byte
	if err == nil {
		value, err = m.Get(q.Context(), q.PathValue("duty"), q.PathValue("key"))
	}
	if err != nil {
		refuse(w, q, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(value)))
	_, _ = w.Write(value) // the client may be gone
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, q *http.Request, err error) {
	answer(func(context.Context, *http.Request) (any, error) { return nil, err })(w, q)
}

// holdSince is the duty of a request, if it is held under the epoch that the request names.
func (r *memberRun) holdSince(q *http.Request) (*hold, error) {
	duty := q.PathValue("duty")
	h, err := r.held(duty)
	if err != nil {
		return nil, err
	}
	text := q.URL.Query().Get("epoch")
	if text == "" {
		return h, nil
	}
	epoch, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, badRequest("epoch %q is not a number", text)
	case epoch != h.Epoch:
		return nil, fmt.Errorf("%w: %s was taken anew, with epoch %d after %d", member.ErrNotHeld, duty, h.Epoch, epoch)
	}
	return h, nil
}

// UseOf is a duty that a command uses: its name, and the epoch under which the command runs; 0 if it does not know.
type UseOf struct {
	Duty  string
	Epoch int64
}

// path is that of a request about the duty.
func (u UseOf) path(names ...string) string {
	p := dutyPath(u.Duty)
	for _, name := range names {
		p += "/" + url.PathEscape(name)
	}
	if u.Epoch != 0 {
		p += "?epoch=" + strconv.FormatInt(u.Epoch, 10)
	}
	return p
}

// StateKeys lists what is saved for a duty.
func (c *Client) StateKeys(ctx context.Context, u UseOf) (StateKeys, error) {
	var k StateKeys
	return k, c.ask(ctx, http.MethodGet, u.path("state"), nil, &k)
}

// State returns a saved value. The error is member.ErrNoKey or member.ErrStateDamaged, besides those of all requests.
func (c *Client) State(ctx context.Context, u UseOf, key string) ([]byte, error) {
	answer, err := c.sendBytes(ctx, http.MethodGet, u.path("state", key), nil)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	value, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, c.unavailable(err)
	}
	return value, nil
}

// PutState saves a value. The error is member.ErrNotHeld or member.ErrStateTooLarge, besides those of all requests.
func (c *Client) PutState(ctx context.Context, u UseOf, key string, value []byte) error {
	answer, err := c.sendBytes(ctx, http.MethodPut, u.path("state", key), value)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// RemoveState removes a key. The error is member.ErrNotHeld or member.ErrNoKey, besides those of all requests.
func (c *Client) RemoveState(ctx context.Context, u UseOf, key string) error {
	return c.ask(ctx, http.MethodDelete, u.path("state", key), nil, &struct{}{})
}

// memberErrors are the errors of package member that a Refusal names by its kind.
func memberErrors() map[Kind]error {
	return map[Kind]error{
		"no-key": member.ErrNoKey, "state-too-large": member.ErrStateTooLarge, "state-damaged": member.ErrStateDamaged,
		"operation-busy": member.ErrOperationBusy, "other-script": member.ErrOtherScript,
		"no-operation": member.ErrNoOperation, "operation-limit": member.ErrOperationLimit,
		"operation-over": member.ErrOperationOver, "step-twice": member.ErrStepTwice,
		"output-too-large": member.ErrOutputTooLarge,
	}
}

// kindOfMember is the kind of such an error; empty for any other.
func kindOfMember(err error) Kind {
	for kind, e := range memberErrors() {
		if errors.Is(err, e) {
			return kind
		}
	}
	return ""
}
