package wrap

import (
	"context"
	"io"
	"net/http"
	"sync"

	"muster/member"
	"muster/zkstate"
)

// The socket of a member serves operations, see operation.go for who asks:
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

// opRuns are the runs of operations, by their random names.
type opRuns struct {
	mu   sync.Mutex
	runs map[string]*opRun
}

// opRun is one runner of an operation.
type opRun struct {
	hold  *hold
	o     *member.Operation
	over  chan struct{} // closed when the runner has hung up
	users sync.WaitGroup

	mu    sync.Mutex
	ended bool
	steps map[string]*member.Step // whose commands run, by key
}

func (s *opRuns) set(name string, run *opRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[string]*opRun{}
	}
	if s.runs[name] = run; run == nil {
		delete(s.runs, name)
	}
}

// of is the run that a request names.
func (s *opRuns) of(q *http.Request) (*opRun, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.runs[q.URL.Query().Get("run")]
	if run == nil || run.o.Name != q.PathValue("op") || run.hold.Duty != q.PathValue("duty") {
		return nil, member.ErrOperationOver
	}
	return run, nil
}

func (r *memberRun) operationRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /duty/{duty}/op", answer(func(ctx context.Context, q *http.Request) (any, error) {
		m, err := r.current()
		if err != nil {
			return nil, err
		}
		open, err := m.Operations(ctx, q.PathValue("duty"))
		return Operations{open}, err
	}))
	mux.HandleFunc("POST /duty/{duty}/op/{op}", r.runOperation)
	mux.HandleFunc("POST /duty/{duty}/op/{op}/close", answer(func(ctx context.Context, q *http.Request) (any, error) {
		run, err := r.opRuns.of(q)
		if err != nil {
			return nil, err
		}
		if q.URL.Query().Has("unbegun") {
			return struct{}{}, run.o.CloseUnbegun(ctx)
		}
		return struct{}{}, run.o.Close(ctx)
	}))
	mux.HandleFunc("DELETE /duty/{duty}/op/{op}", answer(func(ctx context.Context, q *http.Request) (any, error) {
		h, err := r.holdSince(q)
		if err != nil {
			return nil, err
		}
		return struct{}{}, h.Abort(ctx, q.PathValue("op"))
	}))
	mux.HandleFunc("POST /duty/{duty}/op/{op}/step", r.runStep)
	mux.HandleFunc("PUT /duty/{duty}/op/{op}/step/{key}", answer(func(ctx context.Context, q *http.Request) (any, error) {
		output, err := io.ReadAll(io.LimitReader(q.Body, maxOutput+1)) // before a refusal, as for state
		if err != nil {
			return nil, err
		}
		run, err := r.opRuns.of(q)
		if err != nil {
			return nil, err
		}
		s := run.step(q.PathValue("key"))
		if s == nil {
			return nil, badRequest("this step has not begun")
		}
		return struct{}{}, s.Finish(ctx, output)
	}))
}

// runOperation opens an operation until the client hangs up.
func (r *memberRun) runOperation(w http.ResponseWriter, q *http.Request) {
	var ask openRequest
	err := decode(q, &ask)
	var h *hold
	if err == nil {
		if h, err = r.holdSince(q); err == nil {
			h, err = r.use(h.Duty)
		}
	}
	if err != nil {
		refuse(w, q, err)
		return
	}
	defer h.users.Done()
	o, err := h.Open(q.Context(), q.PathValue("op"), ask.Script, ask.Adopt)
	if err != nil {
		refuse(w, q, err)
		return
	}
	run := &opRun{hold: h, o: o, over: make(chan struct{}), steps: map[string]*member.Step{}}
	name := zkstate.NewID()
	r.opRuns.set(name, run)
	feedOrders(w, q, h, OperationRun{name, o.ID, o.Resumed}, nil)
	r.opRuns.set(name, nil)
	run.end()
	o.Leave()
}

// end returns when no command of a step runs any more.
func (run *opRun) end() {
	run.mu.Lock()
	run.ended = true
	run.mu.Unlock()
	close(run.over)
	run.users.Wait()
}

// begin counts a step. It reports false if the run has ended.
func (run *opRun) begin() bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	if !run.ended {
		run.users.Add(1)
	}
	return !run.ended
}

func (run *opRun) setStep(s *member.Step) {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.steps[s.Key] = s
}

// step is a step whose command runs; nil if none has this key.
func (run *opRun) step(key string) *member.Step {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.steps[key]
}

// runStep comes to a step. If it is not done, its command runs until the client hangs up.
func (r *memberRun) runStep(w http.ResponseWriter, q *http.Request) {
	var ask stepRequest
	err := decodeUpTo(q, maxStepRequest, &ask)
	var run *opRun
	if err == nil {
		if run, err = r.opRuns.of(q); err == nil && !run.begin() {
			err = member.ErrOperationOver
		}
	}
	if err != nil {
		refuse(w, q, err)
		return
	}
	defer run.users.Done()
	s, err := run.o.Step(q.Context(), ask.Name, ask.Args)
	switch {
	case err != nil:
		refuse(w, q, err)
	case s.Done:
		answer(func(context.Context, *http.Request) (any, error) {
			return StepRun{s.Key, true, s.Output, false}, nil
		})(w, q)
	default:
		run.setStep(s)
		feedOrders(w, q, run.hold, StepRun{s.Key, false, nil, s.Again}, run.over)
	}
}

// Operations are the open operations of a duty, by name.
type Operations struct {
	Operations []member.OperationInfo `json:"operations"`
}
