package wrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"muster/member"
	"muster/wrap/command"
	"muster/zkstate"
)

// The socket of a member is like that of a worker. It answers:
//
//	GET  /duty/NAME            whether this member holds the duty: it asks ZooKeeper
//	POST /duty/NAME/command    see useDuty
//	POST /ready                {}: from now on the member may be given duties
//
// Below are the requests for saved state and for operations.

// Held is a duty that this member holds.
type Held struct {
	Duty  string `json:"duty"`
	Epoch int64  `json:"epoch"`
}

// current is the membership now. The error is ErrUnavailable while this process joins again.
func (r *memberRun) current() (*member.Member, error) {
	if m, ok := r.now(); ok {
		return m, nil
	}
	return nil, fmt.Errorf("%w: it has lost its session and joins again", ErrUnavailable)
}

// held is the duty as this member holds it. Its writes are refused if that is not true any more. The error is
// member.ErrNotHeld, or ErrUnavailable.
func (r *memberRun) held(duty string) (*hold, error) {
	h, err := r.use(duty)
	if err == nil {
		h.users.Done()
	}
	return h, err
}

// use is held, for as long as its users say.
func (r *memberRun) use(duty string) (h *hold, err error) {
	r.note(func() {
		if h = r.holds[duty]; h != nil {
			h.users.Add(1)
		}
	})
	if h != nil {
		return h, nil
	}
	if _, err := r.current(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %s", member.ErrNotHeld, duty)
}

// routes is everything that the socket answers.
func (r *memberRun) routes() http.Handler {
	mux := http.NewServeMux()
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
	mux.HandleFunc("POST /duty/{duty}/command", handle(r.useDuty))
	mux.HandleFunc("POST /ready", answer(func(ctx context.Context, _ *http.Request) (any, error) {
		r.note(func() { r.saysReady = true })
		m, err := r.current()
		if err == nil {
			err = m.Ready(ctx)
		}
		if errors.Is(err, ErrUnavailable) { // the next join says it
			err = nil
		}
		return struct{}{}, err
	}))
	r.stateRoutes(mux)
	r.operationRoutes(mux)
	return mux
}

// A command may run something only while its member holds a duty: "muster duty NAME -- COMMAND". That process is the
// guard of it. It gets its orders over the socket, by POST /duty/NAME/command: one line of JSON with the duty, then
// orders, for as long as it stays connected. The member gives the duty back when it has hung up.

// useDuty is the handler of that request.
func (r *memberRun) useDuty(w http.ResponseWriter, q *http.Request) error {
	h, err := r.use(q.PathValue("duty"))
	if err != nil {
		return err
	}
	defer h.users.Done()
	if err := h.Check(q.Context()); err != nil {
		return err
	}
	return feedOrders(w, q, h, Held{h.Duty, h.Epoch}, nil)
}

// feedOrders answers with first, and then with the orders for a command, until the client hangs up. over, unless nil,
// is closed when the command is to be killed.
func feedOrders(w http.ResponseWriter, q *http.Request, h *hold, first any, over <-chan struct{}) error {
	if err := h.lease.Check(); err != nil {
		return fmt.Errorf("%w: %w", member.ErrNotHeld, err)
	}
	lines, flush := json.NewEncoder(w), http.NewResponseController(w)
	tell := func(line any) bool {
		_ = flush.SetWriteDeadline(time.Now().Add(command.OrderLimit))
		return lines.Encode(line) == nil && flush.Flush() == nil
	}
	if !tell(first) {
		return nil
	}
	for o := range h.lease.Orders(h.ctx, h.stopAs, over, q.Context().Done()) {
		if !tell(o) {
			break
		}
	}
	return nil
}

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
	mux.HandleFunc("GET /duty/{duty}/state", r.read(
		func(q *http.Request, m *member.Member, duty string) (any, error) {
			keys, err := m.Keys(q.Context(), duty)
			return StateKeys{keys}, err
		}))
	mux.HandleFunc("GET /duty/{duty}/state/{key}", r.read(
		func(q *http.Request, m *member.Member, duty string) (any, error) {
			return m.Get(q.Context(), duty, q.PathValue("key"))
		}))
	mux.HandleFunc("PUT /duty/{duty}/state/{key}", change(member.MaxStateValue, r.holdSince,
		func(q *http.Request, h *hold, value []byte) error {
			return h.Put(q.Context(), q.PathValue("key"), value)
		}))
	mux.HandleFunc("DELETE /duty/{duty}/state/{key}", change(0, r.holdSince,
		func(q *http.Request, h *hold, _ []byte) error { return h.Remove(q.Context(), q.PathValue("key")) }))
}

// read is a handler that reads something of a duty, also of one that another member holds.
func (r *memberRun) read(f func(q *http.Request, m *member.Member, duty string) (any, error)) http.HandlerFunc {
	return answer(func(_ context.Context, q *http.Request) (any, error) {
		m, err := r.current()
		if err != nil {
			return nil, err
		}
		return f(q, m, q.PathValue("duty"))
	})
}

// change is a handler that changes something of what the request is about, as of finds it. All of the body is read
// before a refusal, and one byte too much: a client that still writes would get a broken pipe, and no answer.
func change[T any](
	most int64, of func(*http.Request) (T, error), f func(q *http.Request, of T, body []byte) error,
) http.HandlerFunc {
	return answer(func(_ context.Context, q *http.Request) (any, error) {
		body, err := io.ReadAll(io.LimitReader(q.Body, most+1))
		if err != nil {
			return nil, err
		}
		found, err := of(q)
		if err != nil {
			return nil, err
		}
		return struct{}{}, f(q, found, body)
	})
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

// The socket of a member serves operations:
//
//	GET    /duty/NAME/op                   the open operations
//	POST   /duty/NAME/op/OP?epoch=N        {script, adopt}: opens or resumes OP for as long as the client is connected.
//	                                       The answer is an OperationRun, then orders for the script
//	POST   /duty/NAME/op/OP/close?run=R    {}: the script has ended with 0. With &unbegun=1 it could not be executed:
//	                                       that closes OP if no step of it has begun
//	DELETE /duty/NAME/op/OP?epoch=N        aborts it
//	POST   /duty/NAME/op/OP/step?run=R     {name, args}: the answer is a StepRun. Unless it is done orders follow, for as
//	                                       long as the client is connected
//	PUT    /duty/NAME/op/OP/step/KEY?run=R the body is the output of the step, which is done
//
// R names the run: only what the script has started knows it. When the runner hangs up, the commands of its steps are
// killed. Only when these have hung up may another runner open the operation.

// OperationRun is the first answer to a runner.
type OperationRun struct {
	Run     string `json:"run"`
	ID      string `json:"id"`
	Resumed bool   `json:"resumed"`
}

// StepRun is the first answer to a step.
type StepRun struct {
	Key    string `json:"key"`
	Done   bool   `json:"done"`
	Output []byte `json:"output"` // of a step that is done
	Again  bool   `json:"again"`
}

type openRequest struct {
	Script string `json:"script"`
	Adopt  bool   `json:"adopt"`
}

type stepRequest struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
}

// maxStepRequest bounds a request with the arguments of a command, which Linux bounds by 2 MiB.
const maxStepRequest = 16 << 20

// opRun is one runner of an operation.
type opRun struct {
	hold  *hold
	o     *member.Operation
	over  chan struct{} // closed when the runner has hung up
	users sync.WaitGroup
	steps map[string]*member.Step // whose commands run, by key; note guards it
}

// runOf is the run that a request names, for as long as its users say.
func (r *memberRun) runOf(q *http.Request) (run *opRun, err error) {
	r.note(func() {
		run = r.opRuns[q.URL.Query().Get("run")]
		if run == nil || run.o.Name != q.PathValue("op") || run.hold.Duty != q.PathValue("duty") {
			err = member.ErrOperationOver
			return
		}
		run.users.Add(1)
	})
	return run, err
}

func (r *memberRun) operationRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /duty/{duty}/op", r.read(
		func(q *http.Request, m *member.Member, duty string) (any, error) {
			open, err := m.Operations(q.Context(), duty)
			return Operations{open}, err
		}))
	mux.HandleFunc("POST /duty/{duty}/op/{op}", handle(r.runOperation))
	mux.HandleFunc("POST /duty/{duty}/op/{op}/close", change(maxRequest, r.runOf,
		func(q *http.Request, run *opRun, _ []byte) error {
			defer run.users.Done()
			if q.URL.Query().Has("unbegun") {
				return run.o.CloseUnbegun(q.Context())
			}
			return run.o.Close(q.Context())
		}))
	mux.HandleFunc("DELETE /duty/{duty}/op/{op}", change(0, r.holdSince,
		func(q *http.Request, h *hold, _ []byte) error { return h.Abort(q.Context(), q.PathValue("op")) }))
	mux.HandleFunc("POST /duty/{duty}/op/{op}/step", handle(r.runStep))
	mux.HandleFunc("PUT /duty/{duty}/op/{op}/step/{key}", change(maxOutput, r.runOf,
		func(q *http.Request, run *opRun, output []byte) error {
			defer run.users.Done()
			var s *member.Step
			r.note(func() { s = run.steps[q.PathValue("key")] })
			if s == nil {
				return badRequest("this step has not begun")
			}
			return s.Finish(q.Context(), output)
		}))
}

// runOperation opens an operation until the client hangs up.
func (r *memberRun) runOperation(w http.ResponseWriter, q *http.Request) error {
	var ask openRequest
	if err := decode(q, maxRequest, &ask); err != nil {
		return err
	}
	h, err := r.holdSince(q)
	if err != nil {
		return err
	}
	if h, err = r.use(h.Duty); err != nil {
		return err
	}
	defer h.users.Done()
	o, err := h.Open(q.Context(), q.PathValue("op"), ask.Script, ask.Adopt)
	if err != nil {
		return err
	}
	defer o.Leave()
	run := &opRun{hold: h, o: o, over: make(chan struct{}), steps: map[string]*member.Step{}}
	name := zkstate.NewID()
	r.note(func() { r.opRuns[name] = run })
	err = feedOrders(w, q, h, OperationRun{name, o.ID, o.Resumed}, nil)
	r.note(func() { delete(r.opRuns, name) })
	close(run.over)
	run.users.Wait() // until no command of a step runs any more
	return err
}

// runStep comes to a step. If it is not done, its command runs until the client hangs up.
func (r *memberRun) runStep(w http.ResponseWriter, q *http.Request) error {
	var ask stepRequest
	if err := decode(q, maxStepRequest, &ask); err != nil {
		return err
	}
	run, err := r.runOf(q)
	if err != nil {
		return err
	}
	defer run.users.Done()
	s, err := run.o.Step(q.Context(), ask.Name, ask.Args)
	if err != nil {
		return err
	}
	if s.Done {
		writeJSON(w, http.StatusOK, StepRun{s.Key, true, s.Output, false})
		return nil
	}
	r.note(func() { run.steps[s.Key] = s })
	return feedOrders(w, q, run.hold, StepRun{s.Key, false, nil, s.Again}, run.over)
}

// Operations are the open operations of a duty, by name.
type Operations struct {
	Operations []member.OperationInfo `json:"operations"`
}
