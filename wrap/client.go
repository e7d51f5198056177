package wrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster/member"
	"muster/text"
	"muster/wrap/command"
)

// Client asks a worker, from inside its command.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a Client of the worker with this socket: the value of MUSTER_SOCKET.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket, &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Self returns which worker it is.
func (c *Client) Self(ctx context.Context) (Self, error) {
	return ask[Self](ctx, c, http.MethodGet, "/self", nil)
}

// Members lists who has joined, or who is live, in the order of ids.
func (c *Client) Members(ctx context.Context, live bool) (Members, error) {
	path := "/members"
	if live {
		path += "?live"
	}
	return ask[Members](ctx, c, http.MethodGet, path, nil)
}

// Wait waits until all have joined; the end of ctx ends it.
func (c *Client) Wait(ctx context.Context, w Wait) error {
	return c.tell(ctx, http.MethodPost, "/wait", w)
}

// Barrier waits at a barrier. The end of ctx ends only the waiting: an arrival still counts.
func (c *Client) Barrier(ctx context.Context, b Barrier) error {
	return c.tell(ctx, http.MethodPost, "/barrier", b)
}

// Publish publishes a value for the other workers.
func (c *Client) Publish(ctx context.Context, p Publish) error {
	return c.tell(ctx, http.MethodPost, "/publish", p)
}

// Get waits for values; the end of ctx ends it.
func (c *Client) Get(ctx context.Context, g Get) (Values, error) {
	return ask[Values](ctx, c, http.MethodPost, "/get", g)
}

// Advertise tells the other workers an address of this one.
func (c *Client) Advertise(ctx context.Context, a Advertise) error {
	return c.tell(ctx, http.MethodPost, "/advertise", a)
}

// tell makes a request that has no answer but a Refusal.
func (c *Client) tell(ctx context.Context, method, path string, question any) error {
	_, err := ask[struct{}](ctx, c, method, path, question)
	return err
}

// ask makes one request. The error is a Refusal, or wraps ErrUnavailable, or is why ctx ended.
func ask[A any](ctx context.Context, c *Client, method, path string, question any) (a A, err error) {
	answer, err := c.send(ctx, method, path, question)
	if err != nil {
		return a, err
	}
	defer answer.Body.Close()
	if err = json.NewDecoder(answer.Body).Decode(&a); err != nil {
		return a, c.unavailable(err)
	}
	return a, nil
}

// send sends a request, and returns its answer if that is no error. The errors are those of ask. Bytes are sent as they
// are, and anything else as JSON.
func (c *Client) send(ctx context.Context, method, path string, question any) (*http.Response, error) {
	body, asIs := question.([]byte)
	if question != nil && !asIs {
		var err error
		if body, err = json.Marshal(question); err != nil {
			return nil, err
		}
	}
	q, err := http.NewRequestWithContext(ctx, method, "http://worker"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(q)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, c.unavailable(err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	var r Refusal
	if err == nil && json.Unmarshal(body, &r) == nil && r.Text != "" {
		return nil, &r
	}
	return nil, c.unavailable(errors.Join(err, fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(body)))))
}

func (c *Client) unavailable(err error) error {
	var request *url.Error
	if errors.As(err, &request) { // its URL is an invention of ask
		err = request.Err
	}
	var number syscall.Errno
	if errors.As(err, &number) { // the texts around it name the socket, as this one does
		err = number
	}
	return fmt.Errorf("%w at %s (%s): %w", ErrUnavailable, c.socket, SocketVariable, text.Plain(err))
}

// What commands of a member ask it.

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
	return ask[StateKeys](ctx, c, http.MethodGet, u.path("state"), nil)
}

// State returns a saved value. The error is member.ErrNoKey or member.ErrStateDamaged, besides those of all requests.
func (c *Client) State(ctx context.Context, u UseOf, key string) ([]byte, error) {
	answer, err := c.send(ctx, http.MethodGet, u.path("state", key), nil)
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
	return c.tell(ctx, http.MethodPut, u.path("state", key), value)
}

// RemoveState removes a key. The error is member.ErrNotHeld or member.ErrNoKey, besides those of all requests.
func (c *Client) RemoveState(ctx context.Context, u UseOf, key string) error {
	return c.tell(ctx, http.MethodDelete, u.path("state", key), nil)
}

// Held returns the duty if the member holds it, and member.ErrNotHeld if not.
func (c *Client) Held(ctx context.Context, duty string) (Held, error) {
	return ask[Held](ctx, c, http.MethodGet, UseOf{Duty: duty}.path(), nil)
}

// Ready says that the member may be given duties.
func (c *Client) Ready(ctx context.Context) error {
	return c.tell(ctx, http.MethodPost, "/ready", struct{}{})
}

// DutyCommand is a command that is run only while a duty is held: itself, a script, or a step of that.
type DutyCommand struct {
	Command []string // with its arguments
	Dir     string
	Environ []string // NAME=value; DutyVariable and EpochVariable are added
	Files   []*os.File
	Signals <-chan os.Signal // see command.Signals
}

// WhileHeld runs a command while the member holds the duty. If the duty is lost or given back, or the member has died,
// the command is ended as the member's own commands are. The error is member.ErrNotHeld if the member does not hold the
// duty.
func (c *Client) WhileHeld(ctx context.Context, duty string, t DutyCommand) command.Result {
	var h Held
	j, err := c.join(ctx, t, UseOf{Duty: duty}.path("command"), nil, &h)
	if err != nil {
		return command.Result{Code: command.StartCode(err), Err: err}
	}
	defer j.hangUp()
	t.Environ = command.SetVariables(t.Environ, [][2]string{
		{DutyVariable, h.Duty}, {EpochVariable, strconv.FormatInt(h.Epoch, 10)},
	})
	result, _ := j.run(t)
	return result
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
func (c *Client) RunOperation(ctx context.Context, o OpenOperation, t DutyCommand) command.Result {
	var run OperationRun
	j, err := c.join(ctx, t, o.Use.path("op", o.Name), openRequest{o.Script, o.Adopt}, &run)
	if err != nil {
		return command.Result{Code: command.StartCode(err), Err: err}
	}
	defer j.hangUp()
	if o.Opened != nil {
		o.Opened(run)
	}
	t.Environ = command.SetVariables(t.Environ, [][2]string{
		{OperationVariable, o.Name}, {RunVariable, run.Run}, {AgainVariable, ""},
	})
	r, told := j.run(t)
	path := UseOf{Duty: o.Use.Duty}.path("op", o.Name, "close") + "?run=" + run.Run
	switch {
	case r.Code == command.CannotRun || r.Code == command.NotFound:
		r.Err = errors.Join(r.Err, c.tell(ctx, http.MethodPost, path+"&unbegun=1", struct{}{}))
	case r.Err != nil || r.Code != 0:
	case told != nil:
		r.Err = fmt.Errorf("operation %s stays open: %w", o.Name, told)
	default:
		r.Err = c.tell(ctx, http.MethodPost, path, struct{}{})
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
func (c *Client) RunStep(
	ctx context.Context, of RunOfOperation, name string, t DutyCommand, out io.Writer,
) command.Result {
	var s StepRun
	query := "?run=" + url.QueryEscape(of.Run)
	j, err := c.join(ctx, t, of.path()+query, stepRequest{name, t.Command}, &s)
	if err != nil {
		return command.Result{Code: command.StartCode(err), Err: err}
	}
	defer j.hangUp()
	if s.Done {
		_, err := out.Write(s.Output)
		return command.Result{Err: err}
	}
	again := ""
	if s.Again {
		again = "1"
	}
	read, write, err := os.Pipe()
	if err != nil {
		return command.Result{Err: err}
	}
	defer read.Close()
	kept := &keptOutput{to: out}
	var copied error
	var copying sync.WaitGroup
	copying.Go(func() { _, copied = io.Copy(kept, read) })
	t.Environ = command.SetVariables(t.Environ, [][2]string{{AgainVariable, again}})
	t.Files = []*os.File{t.Files[0], write, t.Files[2]}
	r, told := j.run(t)
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
		r.Err = c.tell(ctx, http.MethodPut, of.path()+"/"+s.Key+query, kept.start.Bytes())
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
func (c *Client) join(ctx context.Context, t DutyCommand, path string, question, first any) (*joined, error) {
	found, err := command.LookUp(t.Command[0])
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
func (j *joined) run(t DutyCommand) (r command.Result, told error) {
	cmd, err := command.Start(command.Launch{
		Path: j.path, Argv: t.Command, Environ: t.Environ, Dir: t.Dir, Files: t.Files, Adopts: command.AdoptOrphans(),
	})
	if err != nil {
		return command.Result{Code: command.StartCode(err), Err: err}, nil
	}
	orders := make(chan command.Order, 1)
	go command.DecodeOrders(j.lines, command.Order{}, orders)
	e, _ := command.Obey(cmd, orders, t.Signals)
	command.TakeTerminal(t.Files)
	text := e.String()
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	told = e.Cause
	if told == nil && e.Asked != 0 {
		told = fmt.Errorf("its command was asked to end by %s", command.SignalName(e.Asked))
	}
	return command.Result{Code: e.Code(), Text: text}, told
}

// Operations lists the open operations of a duty.
func (c *Client) Operations(ctx context.Context, u UseOf) (Operations, error) {
	return ask[Operations](ctx, c, http.MethodGet, u.path("op"), nil)
}

// AbortOperation closes an operation that nobody runs. The error is member.ErrNoOperation, member.ErrOperationBusy or
// member.ErrNotHeld, besides those of all requests.
func (c *Client) AbortOperation(ctx context.Context, u UseOf, name string) error {
	return c.tell(ctx, http.MethodDelete, u.path("op", name), nil)
}
