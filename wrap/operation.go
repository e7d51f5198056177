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
	"sync"
	"time"

	"muster/member"
)

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
	path := dutyPath(o.Use.Duty) + "/op/" + url.PathEscape(o.Name) + "/close?run=" + run.Run
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
	return dutyPath(r.Duty) + "/op/" + url.PathEscape(r.Operation) + "/step"
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
