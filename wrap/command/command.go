// Package command runs one command: a process that leads a process group. It passes signals on, asks the group to end
// and kills it, and returns how the command ended. When it returns, nothing of the group is left. Where that must hold
// also for a caller that is frozen or killed, a guard, a process of its own, sees to it.
//
// The package knows neither jobs nor groups nor queues, and asks ZooKeeper nothing. As process 1 it reaps every child.
package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"muster/text"
)

// Result is how a worker ended.
type Result struct {
	// Code is the command's exit code if Err is nil. With an Err it is the code to exit with, or 0: then the caller
	// chooses one.
	Code int
	Err  error  // why the command did not run, or was stopped
	Text string // what became of the command and of the membership, for people

	// Drained means that a process of a queue has ended because nothing was left to do: Code is 0, and no command's.
	Drained bool
}

// Signals are those that a worker passes on to its command. A caller of Run catches all of them before it calls: a
// signal that is meant for the command must not end the worker.
func Signals() []os.Signal {
	return []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
	}
}

// AsksToEnd reports whether sig asks a command to end. A hang-up often means only "read your configuration again".
func AsksToEnd(sig os.Signal) bool {
	return slices.Contains([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}, sig)
}

// SignalName is the name that an operator searches for: "SIGTERM", where a syscall.Signal says "terminated".
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}

// Echo is how soon the same signal again is not a second request: timeout(1) signals its child, and then the child's
// whole group.
const Echo = 200 * time.Millisecond

// Launch is what a command is started with.
type Launch struct {
	Path    string
	Argv    []string
	Environ []string
	Dir     string
	Files   []*os.File // its standard streams
	Adopts  bool       // this process gets the orphans that the command leaves behind, and reaps them
}

// Command is a process that leads a process group of its own. On Linux it is killed if this process dies. The rest of
// its group goes on then, unless a guard kills it or this process was the first of a container.
type Command struct {
	process *os.Process
	exited  <-chan exitStatus // one value, when the process itself has ended
	reaped  <-chan struct{}   // closed when it and, if this process adopts orphans, all of those have ended
}

// exitStatus is how a process ended.
type exitStatus struct {
	status syscall.WaitStatus
	err    error // why the status is not known
}

// Code is the exit code that a shell would show: 128 and the number of the signal that killed the process.
func (e exitStatus) Code() int {
	switch {
	case e.err != nil:
		return 1
	case e.status.Signaled():
		return 128 + int(e.status.Signal())
	}
	return e.status.ExitStatus()
}

// Start starts the process. A thread of its own starts it and waits for it: the kernel sends the parent-death signal
// when the thread that started the process ends, not when this process ends.
func Start(l Launch) (*Command, error) { return startReaped(l, nil) }

// startReaped is start. The reaper, unless nil, waits for the process; it is needed where orphans are to be reaped.
func startReaped(l Launch, by *reaper) (*Command, error) {
	if by == nil && (l.Adopts || os.Getpid() == 1) {
		by = newReaper()
		by.empty = make(chan struct{})
	}
	how := attributes()
	giveTerminal(how, l.Files)
	started, end, reaped := make(chan error), make(chan exitStatus, 1), make(chan struct{})
	c := &Command{exited: end, reaped: reaped}
	go func() {
		defer close(reaped)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		begin := func() (err error) {
			attr := &os.ProcAttr{Dir: l.Dir, Env: l.Environ, Files: l.Files, Sys: how}
			c.process, err = os.StartProcess(l.Path, l.Argv, attr)
			return err
		}
		if by != nil {
			by.run(c, begin, started, end)
			return
		}
		err := begin()
		if started <- err; err == nil {
			c.wait(end)
		}
	}()
	if err := <-started; err != nil {
		return nil, newStartError(err)
	}
	return c, nil
}

// wait waits for the process.
func (c *Command) wait(end chan<- exitStatus) {
	state, err := c.process.Wait()
	if err != nil {
		end <- exitStatus{err: err}
		return
	}
	end <- exitStatus{status: state.Sys().(syscall.WaitStatus)}
}

// Signal signals the process alone: some signals end a process that does not expect them, and a shell decides itself
// what becomes of its children.
func (c *Command) Signal(sig os.Signal) { _ = c.process.Signal(sig) } // it may have ended by now

// signalGroup signals every process of the group, and reports whether there is one.
func (c *Command) signalGroup(sig syscall.Signal) bool {
	return !errors.Is(syscall.Kill(-c.process.Pid, sig), syscall.ESRCH)
}

// The exit codes of a command that cannot be started, as shells have them.
const (
	CannotRun = 126
	NotFound  = 127
)

// LookUp finds the file to execute as a shell would.
func LookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) { // a "." in PATH is the user's decision
		return "", newStartError(err)
	}
	if err := checkInterpreter(path); err != nil {
		return "", newStartError(err)
	}
	return path, nil
}

// checkInterpreter is an error if path is a script and the program that its first line names is not there.
func checkInterpreter(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // a program that may not be read may still be run
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n') // as much as Linux reads
	program, found := strings.CutPrefix(string(line), "#!")
	fields := strings.Fields(program)
	if !found || len(fields) == 0 || !filepath.IsAbs(fields[0]) {
		return nil
	}
	if _, err := os.Stat(fields[0]); err != nil {
		return fmt.Errorf("what is to run the script %s: %w", path, err)
	}
	return nil
}

// WithoutCredentials returns an environment without the variables that hold what this process proves with who it is, or
// name the files that do: what a command has in its environment gets into its logs and its own children.
func WithoutCredentials(environ []string) []string {
	credentials := []string{ // one that ends with an underscore stands for all that begin so
		"MUSTER_ZK_AUTH", "MUSTER_ZK_AUTH_FILE", "MUSTER_SASL_", "MUSTER_TLS_CERT", "MUSTER_TLS_KEY", "MUSTER_REDIS_",
		"MUSTER_SENTINEL_",
	}
	return slices.DeleteFunc(slices.Clone(environ), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return slices.ContainsFunc(credentials, func(one string) bool {
			return name == one || strings.HasSuffix(one, "_") && strings.HasPrefix(name, one)
		})
	})
}

// SetVariables returns the environment with these variables set. An empty value removes the variable.
func SetVariables(environ []string, variables [][2]string) []string {
	all := slices.DeleteFunc(slices.Clone(environ), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return slices.ContainsFunc(variables, func(v [2]string) bool { return v[0] == name })
	})
	for _, v := range variables {
		if v[1] != "" {
			all = append(all, v[0]+"="+v[1])
		}
	}
	return all
}

// startError is why a command cannot be started.
type startError struct {
	error
	code int
}

func newStartError(err error) *startError {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &startError{err, NotFound}
	}
	return &startError{err, CannotRun}
}

func (e *startError) Unwrap() error { return e.error }

// StartCode is the exit code for err, if it is a startError, and 0 otherwise.
func StartCode(err error) int {
	if start, ok := errors.AsType[*startError](err); ok {
		return start.code
	}
	return 0
}

// groupCheck is how often to look whether a group whose leader has ended is empty: its processes are not children of
// this one, so it cannot wait for them.
const groupCheck = 20 * time.Millisecond

// killLimit is how long a group may take to end after SIGKILL: long, because on a machine with too much to do even that
// takes seconds. A process that takes longer is left to the kernel.
const killLimit = 20 * time.Second

// End is how a command, and then the rest of its group, ended.
type End struct {
	exitStatus
	Asked      syscall.Signal // the first signal that asked it to end; 0 if it ended by itself
	Told       bool           // a signal that was passed on asked it to
	Late       syscall.Signal // likewise, when it had ended and something of its group had not; 0: none
	Cause      error          // why it was stopped, if the context or the membership ended first
	Lost       error          // why the membership ended, if it had ended before that was known
	Killed     bool           // the grace was over, somebody asked twice, or the membership was lost
	restKilled bool           // it left processes behind that had to be killed
	left       bool           // not even SIGKILL ended all of its group in time
}

// Completes reports whether the command has ended well by itself.
func (e *End) Completes() bool { return e.Asked == 0 && e.Code() == 0 }

// Left reports whether something of its group could not be killed.
func (e *End) Left() bool { return e.left }

// Signal is what ended the command; 0: it exited, or it is not known how it ended.
func (e *End) Signal() syscall.Signal {
	if e.err != nil || !e.status.Signaled() {
		return 0
	}
	return e.status.Signal()
}

// Exit is the exit code; nil: a signal ended it, or it is not known how it ended.
func (e *End) Exit() *int {
	if e.err != nil || e.status.Signaled() {
		return nil
	}
	code := e.status.ExitStatus()
	return &code
}

// String is how the command ended, for people.
func (e *End) String() string {
	s := "the command "
	switch {
	case e.err != nil:
		return s + "cannot be waited for: " + e.err.Error()
	case e.Killed && e.Asked == 0:
		s += "was killed at once"
	case e.Killed:
		s += "did not end when it was asked to, and was killed"
	case e.status.Signaled():
		s += "was ended by " + SignalName(e.status.Signal())
	default:
		s += fmt.Sprintf("exited with %d", e.status.ExitStatus())
	}
	if e.Asked != 0 && !(e.status.Signaled() && e.Asked == e.status.Signal()) {
		s += " after " + SignalName(e.Asked)
	}
	if e.restKilled {
		s += ", and what it had left behind was killed"
	}
	return s
}

// Reason is why an attempt has failed whose command has ended by itself.
func (e *End) Reason() string {
	switch {
	case e.err != nil:
		return "it is not known how the command ended: " + e.err.Error()
	case e.status.Signaled():
		return "ended by " + SignalName(e.status.Signal())
	}
	return fmt.Sprintf("exit %d", e.status.ExitStatus())
}

// endWithin is the cause of a context that asks a command to end, and gives it another grace than the supervisor's.
type endWithin struct {
	grace time.Duration
	why   error
}

func (e *endWithin) Error() string { return e.why.Error() }
func (e *endWithin) Unwrap() error { return e.why }

// errUnkillable is why the status of a command is not known.
var errUnkillable = fmt.Errorf("it did not end within %s of SIGKILL", killLimit)

// Supervisor passes signals on to a running command. When the command has ended it ends the rest of the group: what a
// member has started must not outlive the membership.
type Supervisor struct {
	Command *Command
	Grace   time.Duration // between being asked to end and SIGKILL
	Rest    time.Duration // likewise for what the command leaves behind, if it is not 0
	Echo    time.Duration // in which the same signal is the same request
	OnAsked func()        // unless nil, called when the command is asked to end
	Lost    <-chan error  // why to kill the whole group at once; the context may end as well, but not before

	end     End
	exited  bool     // the command has ended; its group may have not
	request struct { // the last signal passed on that asks to end, if there was one
		signal os.Signal
		at     time.Time
	}

	graceOver <-chan time.Time
	checkNow  <-chan time.Time // time to look whether the group is empty
	giveUp    <-chan time.Time // time to leave the group to the kernel
}

// Run returns when the group has ended. The end of ctx asks the command to end, as SIGTERM does.
func (s *Supervisor) Run(ctx context.Context, signals <-chan os.Signal) End {
	exited, stop := s.Command.exited, ctx.Done()
	for {
		select {
		case s.end.exitStatus = <-exited:
			exited, stop = nil, nil
			if !s.endRest() {
				return s.end
			}
		case <-s.checkNow:
			if !s.Command.signalGroup(0) {
				return s.end
			}
		case sig := <-signals:
			s.forward(sig)
		case <-stop:
			stop = nil
			if len(s.Lost) > 0 {
				continue
			}
			cause := context.Cause(ctx)
			if e, ok := errors.AsType[*endWithin](cause); ok {
				s.Grace = e.grace
			}
			if !s.Command.hasExited() { // or else it has ended by itself
				s.end.Cause = cause
				s.askToEnd(syscall.SIGTERM)
			}
		case cause := <-s.Lost:
			stop = nil
			if !s.exited && !s.Command.hasExited() {
				s.end.Cause = cause
			} else {
				s.end.Lost = cause
			}
			s.killGroup()
		case <-s.graceOver:
			s.killGroup()
		case <-s.giveUp:
			s.end.left = true
			if !s.exited {
				s.end.err = errUnkillable
			}
			return s.end
		}
	}
}

// forward passes a signal on. The second one that asks to end kills the group at once.
func (s *Supervisor) forward(sig os.Signal) {
	switch {
	case !AsksToEnd(sig):
		s.Command.Signal(sig)
	case sig == s.request.signal && time.Since(s.request.at) < s.Echo:
	case s.request.signal != nil || s.exited:
		if s.exited {
			s.end.Late = sig.(syscall.Signal)
		}
		s.killGroup()
	default:
		s.end.Told, s.request.signal, s.request.at = true, sig, time.Now()
		s.askToEnd(sig.(syscall.Signal))
	}
}

// askToEnd asks the command to end within the grace.
func (s *Supervisor) askToEnd(sig syscall.Signal) {
	s.Command.Signal(sig)
	if s.end.Asked == 0 {
		s.end.Asked = sig
		s.graceOver = time.After(s.Grace)
		if s.OnAsked != nil {
			s.OnAsked()
		}
	}
}

// endRest asks what is left of the group to end, and reports whether anything is.
func (s *Supervisor) endRest() bool {
	s.exited = true
	if !s.Command.signalGroup(syscall.SIGTERM) {
		return false
	}
	s.checkNow = time.Tick(groupCheck)
	switch {
	case s.end.Killed:
		s.giveUp = time.After(killLimit)
	case s.Rest > 0:
		s.graceOver = time.After(min(s.Rest, s.Grace))
	case s.graceOver == nil:
		s.graceOver = time.After(s.Grace)
	}
	return true
}

func (s *Supervisor) killGroup() {
	s.graceOver = nil
	s.Command.signalGroup(syscall.SIGKILL)
	if s.exited {
		s.end.restKilled = s.end.restKilled || s.giveUp == nil
	} else {
		s.end.Killed = true
	}
	if s.giveUp == nil {
		s.giveUp = time.After(killLimit)
	}
}

// reaper waits for all children of process 1: its commands, and the orphans that the kernel gives to it. One loop waits
// for all, because two would take each other's statuses.
type reaper struct {
	// starting is read-locked from before a command is started until its exit has a receiver: a child that the reaper
	// does not know is an orphan.
	starting sync.RWMutex
	mu       sync.Mutex
	exits    map[int]chan<- exitStatus // by process
	running  bool                      // the loop
	empty    chan struct{}             // of a reaper for one command: closed when there are no children any more
}

func newReaper() *reaper { return &reaper{exits: map[int]chan<- exitStatus{}} }

// run starts the process of c, says on started whether that succeeded, and returns when the process has ended, or with
// empty all children have.
func (r *reaper) run(c *Command, begin func() error, started chan<- error, end chan<- exitStatus) {
	exit := make(chan exitStatus, 1)
	err := r.begin(c, begin, exit)
	started <- err
	if err != nil {
		return
	}
	end <- <-exit
	if r.empty != nil {
		<-r.empty
	}
}

func (r *reaper) begin(c *Command, begin func() error, exit chan<- exitStatus) error {
	r.starting.RLock()
	defer r.starting.RUnlock()
	if err := begin(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exits[c.process.Pid] = exit
	if !r.running {
		r.running = true
		go r.reap()
	}
	return nil
}

// reap returns when there are no children.
func (r *reaper) reap() {
	for over := false; !over; {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		over = r.reaped(pid, status, err)
	}
	if r.empty != nil {
		close(r.empty)
	}
}

// reaped passes a status on. It reports whether there are no children.
func (r *reaper) reaped(pid int, status syscall.WaitStatus, err error) (over bool) {
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil { // a command may have been started since
		if pid, err = syscall.Wait4(-1, &status, syscall.WNOHANG, nil); err == nil && pid == 0 {
			return false
		}
	}
	if err != nil {
		for _, end := range r.exits {
			end <- exitStatus{err: err}
		}
		clear(r.exits)
		r.running = false
		return true
	}
	if end, ok := r.exits[pid]; ok {
		delete(r.exits, pid)
		end <- exitStatus{status: status}
	}
	return false
}

// Streams are the pipes of a command.
type Streams struct {
	In, Out, Err *os.File   // this process's ends; in is nil if the command gets no input
	Files        []*os.File // the command's
}

// OpenStreams makes pipes for a command. Without input it reads from null.
func OpenStreams(null *os.File, withInput bool) (*Streams, error) {
	s, failed := &Streams{Files: []*os.File{null, nil, nil}}, [3]error{}
	if withInput {
		s.Files[0], s.In, failed[0] = os.Pipe()
	}
	s.Out, s.Files[1], failed[1] = os.Pipe()
	s.Err, s.Files[2], failed[2] = os.Pipe()
	if err := errors.Join(failed[:]...); err != nil {
		s.Started()
		s.Close()
		return nil, err
	}
	return s, nil
}

// Started closes the ends that the command has now.
func (s *Streams) Started() {
	_, _ = s.Files[1].Close(), s.Files[2].Close()
	if s.In != nil {
		_ = s.Files[0].Close()
	}
}

// End ends every wait for the command's group, which has ended. A process outside of it may hold the pipes open.
func (s *Streams) End() {
	_ = s.In.Close() // also if it is nil
	_ = s.Out.SetReadDeadline(time.Now())
	_ = s.Err.SetReadDeadline(time.Now())
}

// Close closes this process's ends.
func (s *Streams) Close() {
	for _, f := range []*os.File{s.In, s.Out, s.Err} {
		_ = f.Close()
	}
}

// pourBuffer is how much of a pipe is read at once.
const pourBuffer = 8 << 10

// pipeSize bounds what a pipe may hold, so that a process that goes on writing is left alone.
const pipeSize = 1 << 20

// Reader is what a command writes. When the read deadline has passed, it ends with what is in the pipe.
type Reader struct {
	*os.File
	late int // bytes that were read after that
}

// Read implements io.Reader.
func (f *Reader) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	_ = f.SetReadDeadline(time.Time{})
	defer func() { _ = f.SetReadDeadline(time.Now()) }()
	if n = ReadNow(f.File, b); n <= 0 || f.late >= pipeSize {
		return 0, io.EOF
	}
	f.late += n
	return n, nil
}

// Pour calls each with what a command writes.
func Pour(f *os.File, each func([]byte)) {
	from, buf := &Reader{File: f}, make([]byte, pourBuffer)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			each(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// ReadNow reads what is there, without waiting. n is not positive if nothing is.
func ReadNow(f *os.File, buf []byte) (n int) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Read(func(fd uintptr) bool {
		for {
			var err error
			if n, err = syscall.Read(int(fd), buf); err != syscall.EINTR {
				return true
			}
		}
	})
	return n
}

// flushGrace is how long the output of a run that has ended is copied: a stream of this process may be blocked for
// ever.
const flushGrace = 2 * time.Second

// Output copies what a run writes to this process's streams, and keeps the end of both together.
type Output struct {
	*Streams
	copied sync.WaitGroup

	mu   sync.Mutex
	tail Tail
}

// OpenOutput makes the streams of a run. While a stream of this process is blocked, a run that writes waits; an error
// of that stream stops nothing.
func OpenOutput(null, out, err *os.File) (*Output, error) {
	s, failed := OpenStreams(null, false)
	if failed != nil {
		return nil, fmt.Errorf("a pipe for the output: %w", failed)
	}
	o := &Output{Streams: s}
	o.copied.Go(func() { o.copy(out, s.Out) })
	o.copied.Go(func() { o.copy(err, s.Err) })
	return o, nil
}

func (o *Output) copy(to, from *os.File) {
	Pour(from, func(b []byte) {
		o.mu.Lock()
		o.tail.Add(b)
		o.mu.Unlock()
		_, _ = to.Write(b)
	})
}

// Close is called when the run has ended. It returns the end of the output. What a blocked stream has not taken after
// flushGrace is left to it: what copy has read is written when the stream goes on, and the rest is dropped.
func (o *Output) Close() *Tail {
	o.Started()
	o.End()
	copied := make(chan struct{})
	go func() {
		o.copied.Wait()
		close(copied)
	}()
	select {
	case <-copied:
	case <-time.After(flushGrace):
	}
	o.Streams.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	return &Tail{slices.Clone(o.tail.buf)}
}

// TailSize is how much of what a command wrote is kept, in bytes.
const TailSize = 4 << 10

// Tail is the end of what a command wrote.
type Tail struct{ buf []byte }

// Add adds what the command wrote next.
func (t *Tail) Add(b []byte) {
	t.buf = append(t.buf, b...)
	if n := len(t.buf) - TailSize; n > TailSize {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
}

// Last is the end of it, at most so many bytes, as text.
func (t *Tail) Last(most int) []byte {
	b := t.buf
	if n := len(b) - most; n > 0 {
		b = b[n:]
		for len(b) > 0 && !utf8.RuneStart(b[0]) {
			b = b[1:]
		}
	}
	return bytes.ToValidUTF8(b, []byte("\uFFFD"))
}

// lineSize is how much of a line is kept for a reason.
const lineSize = 300

// LastLine is the last line that is not empty.
func (t *Tail) LastLine() string {
	said := strings.TrimSpace(string(t.Last(TailSize)))
	line := said[strings.LastIndexByte(said, '\n')+1:]
	return strings.TrimSpace(text.Shorten(line, lineSize))
}

// After is a reason and the last line: what the command said before it failed.
func (t *Tail) After(reason string) string {
	if line := t.LastLine(); line != "" {
		return reason + ": " + line
	}
	return reason
}
