package wrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"muster/member"
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
	var h *hold
	r.note(func() { h = r.holds[duty] })
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
	if err := h.lease.check(); err != nil {
		return fmt.Errorf("%w: %w", member.ErrNotHeld, err)
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
			return nil
		}
	}
	return nil
}

// use is held, for as long as its users say.
func (r *memberRun) use(duty string) (*hold, error) {
	h, err := r.held(duty)
	if err != nil {
		return nil, err
	}
	r.note(func() {
		if r.holds[duty] == h {
			h.users.Add(1)
		} else {
			err = fmt.Errorf("%w: %s", member.ErrNotHeld, duty)
		}
	})
	return h, err
}

// Held returns the duty if the member holds it, and member.ErrNotHeld if not.
func (c *Client) Held(ctx context.Context, duty string) (Held, error) {
	var h Held
	return h, c.ask(ctx, http.MethodGet, UseOf{Duty: duty}.path(), nil, &h)
}

// Ready says that the member may be given duties.
func (c *Client) Ready(ctx context.Context) error {
	return c.ask(ctx, http.MethodPost, "/ready", struct{}{}, &struct{}{})
}

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
	j, err := c.join(ctx, t, UseOf{Duty: duty}.path("command"), nil, &h)
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
	mux.HandleFunc("GET /duty/{duty}/state/{key}", handle(r.getState))
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

func (r *memberRun) getState(w http.ResponseWriter, q *http.Request) error {
	m, err := r.current()
	if err != nil {
		return err
	}
	value, err := m.Get(q.Context(), q.PathValue("duty"), q.PathValue("key"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(value)))
	_, _ = w.Write(value) // the client may be gone
	return nil
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
	p := "/duty"
	for _, name := range append([]string{u.Duty}, names...) {
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

	mu    sync.Mutex
	ended bool
	steps map[string]*member.Step // whose commands run, by key
}

// runOf is the run that a request names.
func (r *memberRun) runOf(q *http.Request) (run *opRun, err error) {
	r.note(func() { run = r.opRuns[q.URL.Query().Get("run")] })
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
	mux.HandleFunc("POST /duty/{duty}/op/{op}", handle(r.runOperation))
	mux.HandleFunc("POST /duty/{duty}/op/{op}/close", answer(func(ctx context.Context, q *http.Request) (any, error) {
		run, err := r.runOf(q)
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
	mux.HandleFunc("POST /duty/{duty}/op/{op}/step", handle(r.runStep))
	mux.HandleFunc("PUT /duty/{duty}/op/{op}/step/{key}", answer(func(ctx context.Context, q *http.Request) (any, error) {
		output, err := io.ReadAll(io.LimitReader(q.Body, maxOutput+1)) // before a refusal, as for state
		if err != nil {
			return nil, err
		}
		run, err := r.runOf(q)
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
	run.end()
	return err
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
func (r *memberRun) runStep(w http.ResponseWriter, q *http.Request) error {
	var ask stepRequest
	if err := decode(q, maxStepRequest, &ask); err != nil {
		return err
	}
	run, err := r.runOf(q)
	if err != nil {
		return err
	}
	if !run.begin() {
		return member.ErrOperationOver
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
	run.setStep(s)
	return feedOrders(w, q, run.hold, StepRun{s.Key, false, nil, s.Again}, run.over)
}

// Operations are the open operations of a duty, by name.
type Operations struct {
	Operations []member.OperationInfo `json:"operations"`
}

// "muster op" runs the script of an operation, and inside it "muster step" the command of a step. Both stay connected
// to the member while their command runs, and get orders for it. It is ended when the duty is handed over, and killed
// when the duty is lost or the member has died. The command of a step is also killed when the runner has died.

// The variables that a script and the commands of its steps are given.
const (
	OperationVariable = "MUSTER_OP"
	RunVariable       = "MUSTER_OP_RUN"     // names the run, for muster step
	AgainVariable     = "MUSTER_STEP_AGAIN" // 1 if an earlier attempt has begun this step
)

// maxOutput is the largest output of a step.
const maxOutput = member.MaxOutput

// OpenOperation is what RunOperation is asked for.
type OpenOperation struct {
	Use    UseOf
	Name   string
	Script string // digest
	Adopt  bool
	// Opened, unless nil, is called when it is open.
	Opened func(OperationRun)
}

// RunOperation opens or resumes an operation, and runs its script. The operation is closed if that ends with 0, or if
// it could not be executed and no step has begun. Otherwise it stays open.
func (c *Client) RunOperation(ctx context.Context, o OpenOperation, t Task) Result {
	var run OperationRun
	j, err := c.join(ctx, t, o.Use.path("op", o.Name), openRequest{o.Script, o.Adopt}, &run)
	if err != nil {
		return Result{Code: startCode(err), Err: err}
	}
	defer j.hangUp()
	if o.Opened != nil {
		o.Opened(run)
	}
	environ := setVariables(t.Environ, [][2]string{
		{OperationVariable, o.Name}, {RunVariable, run.Run}, {AgainVariable, ""},
	})
	r, told := j.run(t, environ, t.Files)
	path := UseOf{Duty: o.Use.Duty}.path("op", o.Name, "close") + "?run=" + run.Run
	switch {
	case r.Code == cannotRun || r.Code == notFound:
		r.Err = errors.Join(r.Err, c.ask(ctx, http.MethodPost, path+"&unbegun=1", struct{}{}, &struct{}{}))
	case r.Err != nil || r.Code != 0:
	case told != nil:
		r.Err = fmt.Errorf("operation %s stays open: %w", o.Name, told)
	default:
		r.Err = c.ask(ctx, http.MethodPost, path, struct{}{}, &struct{}{})
	}
	return r
}

// RunOfOperation is the run that a step is part of, as its environment says.
type RunOfOperation struct{ Duty, Operation, Run string }

func (r RunOfOperation) path() string {
	return UseOf{Duty: r.Duty}.path("op", r.Operation, "step")
}

// RunStep runs the command of a step, unless it was done before, and writes its output to out. The step is recorded if
// the command ends with 0.
func (c *Client) RunStep(ctx context.Context, of RunOfOperation, name string, t Task, out io.Writer) Result {
	var s StepRun
	query := "?run=" + url.QueryEscape(of.Run)
	j, err := c.join(ctx, t, of.path()+query, stepRequest{name, t.Command}, &s)
	if err != nil {
		return Result{Code: startCode(err), Err: err}
	}
	defer j.hangUp()
	if s.Done {
		_, err := out.Write(s.Output)
		return Result{Err: err}
	}
	again := ""
	if s.Again {
		again = "1"
	}
	read, write, err := os.Pipe()
	if err != nil {
		return Result{Err: err}
	}
	defer read.Close()
	kept := &keptOutput{to: out}
	var copied error
	var copying sync.WaitGroup
	copying.Go(func() { _, copied = io.Copy(kept, read) })
	environ := setVariables(t.Environ, [][2]string{{AgainVariable, again}})
	r, told := j.run(t, environ, []*os.File{t.Files[0], write, t.Files[2]})
	_ = write.Close()
	_ = read.SetReadDeadline(time.Now().Add(outputLimit)) // what left its group may keep the other end open
	copying.Wait()
	if r.Err != nil || r.Code != 0 {
		return r
	}
	switch {
	case told != nil:
		r.Err = fmt.Errorf("step %s is not recorded: %w", name, told)
	case copied != nil:
		r.Err = fmt.Errorf("step %s is not recorded: %w", name, ErrOutputGoesOn)
	case kept.size > maxOutput:
		r.Err = fmt.Errorf("step %s is not recorded: %w: it has %d bytes, and a step has at most %d",
			name, member.ErrOutputTooLarge, kept.size, maxOutput)
	default:
		var answer *http.Response
		answer, r.Err = c.sendBytes(ctx, http.MethodPut, of.path()+"/"+s.Key+query, kept.start.Bytes())
		if r.Err == nil {
			r.Err = answer.Body.Close()
		}
	}
	return r
}

// ErrOutputGoesOn means that the command of a step has left a process behind, outside of its process group, that may
// write more output. Let that one write elsewhere.
var ErrOutputGoesOn = errors.New("something goes on and may write more output")

// outputLimit is how long the output of a command that has ended may take.
const outputLimit = 10 * time.Second

// keptOutput passes output on, and keeps as much as can be recorded.
type keptOutput struct {
	to    io.Writer
	start bytes.Buffer
	size  int
}

func (k *keptOutput) Write(b []byte) (int, error) {
	k.size += len(b)
	k.start.Write(b[:min(len(b), maxOutput-k.start.Len())])
	return k.to.Write(b)
}

// joined is a command's connection to its member.
type joined struct {
	path   string // of the command
	hangUp func()
	lines  *json.Decoder
}

// join asks the member whether the command of t may run, and reads the first line of the answer.
func (c *Client) join(ctx context.Context, t Task, path string, question, first any) (*joined, error) {
	found, err := lookUp(t.Command[0])
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	answer, err := c.send(ctx, http.MethodPost, path, question) //nolint:bodyclose // hangUp closes it
	if err != nil {
		cancel()
		return nil, err
	}
	j := &joined{found, func() { cancel(); _ = answer.Body.Close() }, json.NewDecoder(answer.Body)}
	if err := j.lines.Decode(first); err != nil {
		j.hangUp()
		return nil, c.unavailable(err)
	}
	return j, nil
}

// run runs the command to its end, as the member orders. told is why, if it was told to end.
func (j *joined) run(t Task, environ []string, files []*os.File) (r Result, told error) {
	command, err := start(launch{j.path, t.Command, environ, t.Dir, files, adoptOrphans()})
	if err != nil {
		return Result{Code: startCode(err), Err: err}, nil
	}
	orders := make(chan order, 1)
	go decodeOrders(j.lines, orders)
	e, _ := obey(command, orders, t.Signals)
	takeTerminal(t.Files)
	text := e.String()
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	told = e.cause
	if told == nil && e.asked != 0 {
		told = fmt.Errorf("its command was asked to end by %s", signalName(e.asked))
	}
	return Result{Code: e.code(), Text: text}, told
}

// Operations lists the open operations of a duty.
func (c *Client) Operations(ctx context.Context, u UseOf) (Operations, error) {
	var o Operations
	return o, c.ask(ctx, http.MethodGet, u.path("op"), nil, &o)
}

// AbortOperation closes an operation that nobody runs. The error is member.ErrNoOperation, member.ErrOperationBusy or
// member.ErrNotHeld, besides those of all requests.
func (c *Client) AbortOperation(ctx context.Context, u UseOf, name string) error {
	return c.ask(ctx, http.MethodDelete, u.path("op", name), nil, &struct{}{})
}
