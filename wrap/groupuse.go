package wrap

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"muster/member"
)

// A command may run something only while its member holds a duty: "muster duty NAME -- COMMAND". That process is the
// guard of it. It gets its orders over the socket, by POST /duty/NAME/command: one line of JSON with the duty, then
// orders, for as long as it stays connected. The member gives the duty back when it has hung up.

// useDuty is the handler of that request.
func (r *memberRun) useDuty(w http.ResponseWriter, q *http.Request) {
	h, err := r.use(q.PathValue("duty"))
	if err == nil {
		defer h.users.Done()
		err = h.Check(q.Context())
	}
	if err != nil {
		refuse(w, q, err)
		return
	}
	feedOrders(w, q, h, Held{h.Duty, h.Epoch}, nil)
}

// feedOrders answers with first, and then with the orders for a command, until the client hangs up. over, unless nil,
// is closed when the command is to be killed.
func feedOrders(w http.ResponseWriter, q *http.Request, h *hold, first any, over <-chan struct{}) {
	if err := h.lease.check(); err != nil {
		refuse(w, q, fmt.Errorf("%w: %w", member.ErrNotHeld, err))
		return
	}
	lines, flush := json.NewEncoder(w), http.NewResponseController(w)
	tell := func(line any) bool {
		_ = flush.SetWriteDeadline(time.Now().Add(orderLimit))
		return lines.Encode(line) == nil && flush.Flush() == nil
	}
	feed := time.NewTicker(h.lease.every())
	defer feed.Stop()
	stop, killed := h.ctx.Done(), h.lease.killed
	for going := tell(first) && tell(h.lease.order()); going; {
		select {
		case <-feed.C:
			going = tell(h.lease.order())
		case <-stop:
			stop = nil
			going = tell(h.stopAs(context.Cause(h.ctx)))
		case <-killed:
			killed = nil
			going = tell(order{Now: true})
		case <-over:
			over = nil
			going = tell(order{Now: true})
		case <-q.Context().Done():
			return
		}
	}
}

// use is held, for as long as its users say.
func (r *memberRun) use(duty string) (*hold, error) {
	h, err := r.held(duty)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.holds[duty] != h {
		return nil, fmt.Errorf("%w: %s", member.ErrNotHeld, duty)
	}
	h.users.Add(1)
	return h, nil
}

// Held returns the duty if the member holds it, and member.ErrNotHeld if not.
func (c *Client) Held(ctx context.Context, duty string) (Held, error) {
	var h Held
	return h, c.ask(ctx, http.MethodGet, dutyPath(duty), nil, &h)
}

// Ready says that the member may be given duties.
func (c *Client) Ready(ctx context.Context) error {
	return c.ask(ctx, http.MethodPost, "/ready", struct{}{}, &struct{}{})
}

func dutyPath(duty string) string { return "/duty/" + strings.ReplaceAll(duty, "/", "%2F") }

// Task is a command that is run only while a duty is held.
type Task struct {
	Command []string // with its arguments
	Dir     string
	Environ []string // NAME=value; DutyVariable and EpochVariable are added
	Files   []*os.File
	Signals <-chan os.Signal // see Signals
}

// WhileHeld runs a command while the member holds the duty. If the duty is lost or given back, or the member has died,
// the command is ended as the member's own commands are. The error is member.ErrNotHeld if the member does not hold the
// duty.
func (c *Client) WhileHeld(ctx context.Context, duty string, t Task) Result {
	var h Held
	j, err := c.join(ctx, t, dutyPath(duty)+"/command", nil, &h)
	if err != nil {
		return Result{Code: startCode(err), Err: err}
	}
	defer j.hangUp()
	environ := setVariables(t.Environ, [][2]string{
		{DutyVariable, h.Duty}, {EpochVariable, strconv.FormatInt(h.Epoch, 10)},
	})
	result, _ := j.run(t, environ, t.Files)
	return result
}
