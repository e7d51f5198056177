package wrap

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

	"muster/text"
	"muster/worker"
)

// launch is what a command is started with.
type launch struct {
	path    string
	argv    []string
	environ []string
	dir     string
	files   []*os.File // its standard streams
	adopts  bool       // this process gets the orphans that the command leaves behind, and reaps them
}

// command is a process that leads a process group of its own. On Linux it is killed if this process dies. The rest of
// its group goes on then, because nobody is left to kill it, unless this process was the first of a container.
type command struct {
	process *os.Process
	exited  <-chan exitStatus // one value, when the process itself has ended
	reaped  <-chan struct{}   // closed when it and, if this process adopts orphans, all of those have ended
}

// exitStatus is how a process ended.
type exitStatus struct {
	status syscall.WaitStatus
	err    error // why the status is not known
}

// code is the exit code that a shell would show: 128 and the number of the signal that killed the process.
func (e exitStatus) code() int {
	switch {
	case e.err != nil:
		return 1
	case e.status.Signaled():
		return 128 + int(e.status.Signal())
	}
	return e.status.ExitStatus()
}

// start starts the process. A thread of its own starts it and waits for it: the kernel sends the parent-death signal
// when the thread that started the process ends, not when this process ends.
func start(l launch) (*command, error) { return startReaped(l, nil) }

// startReaped is start. The reaper, unless nil, waits for the process; it is needed where orphans are to be reaped.
func startReaped(l launch, by *reaper) (*command, error) {
	if by == nil && (l.adopts || os.Getpid() == 1) {
		by = newReaper()
		by.empty = make(chan struct{})
	}
	how := attributes()
	giveTerminal(how, l.files)
	started, end, reaped := make(chan error), make(chan exitStatus, 1), make(chan struct{})
	c := &command{exited: end, reaped: reaped}
	go func() {
		defer close(reaped)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		begin := func() (err error) {
			attr := &os.ProcAttr{Dir: l.dir, Env: l.environ, Files: l.files, Sys: how}
			c.process, err = os.StartProcess(l.path, l.argv, attr)
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
func (c *command) wait(end chan<- exitStatus) {
	state, err := c.process.Wait()
	if err != nil {
		end <- exitStatus{err: err}
		return
	}
	end <- exitStatus{status: state.Sys().(syscall.WaitStatus)}
}

// signal signals the process alone: some signals end a process that does not expect them, and a shell decides itself
// what becomes of its children.
func (c *command) signal(sig os.Signal) { _ = c.process.Signal(sig) } // it may have ended by now

// signalGroup signals every process of the group, and reports whether there is one.
func (c *command) signalGroup(sig syscall.Signal) bool {
	return !errors.Is(syscall.Kill(-c.process.Pid, sig), syscall.ESRCH)
}

// The exit codes of a command that cannot be started, as shells have them.
const (
	cannotRun = 126
	notFound  = 127
)

// lookUp finds the file to execute as a shell would.
func lookUp(name string) (string, error) {
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
		"MUSTER_ZK_AUTH", "MUSTER_ZK_AUTH_FILE", "MUSTER_TLS_CERT", "MUSTER_TLS_KEY", "MUSTER_REDIS_", "MUSTER_SENTINEL_",
	}
	return slices.DeleteFunc(slices.Clone(environ), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return slices.ContainsFunc(credentials, func(one string) bool {
			return name == one || strings.HasSuffix(one, "_") && strings.HasPrefix(name, one)
		})
	})
}

// setVariables returns the environment with these variables set. An empty value removes the variable.
func setVariables(environ []string, variables [][2]string) []string {
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
		return &startError{err, notFound}
	}
	return &startError{err, cannotRun}
}

func (e *startError) Unwrap() error { return e.error }

// startCode is the exit code for err, if it is a startError, and 0 otherwise.
func startCode(err error) int {
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

// commandEnd is how a command, and then the rest of its group, ended.
type commandEnd struct {
	exitStatus
	asked      syscall.Signal // the first signal that asked it to end; 0 if it ended by itself
	cause      error          // why it was stopped, if the context or the membership ended first
	killed     bool           // the grace was over, somebody asked twice, or the membership was lost
	restKilled bool           // it left processes behind that had to be killed
	left       bool           // not even SIGKILL ended all of its group in time
}

// completes reports whether the command has ended well by itself.
func (e *commandEnd) completes() bool { return e.asked == 0 && e.code() == 0 }

// record is what the claim is to say of the command.
func (e *commandEnd) record() worker.End {
	if e.err == nil && e.status.Signaled() {
		return bySignal(e.status.Signal())
	}
	return worker.End{Exit: e.exit()}
}

// exit is the exit code; nil: a signal ended it, or it is not known how it ended.
func (e *commandEnd) exit() *int {
	if e.err != nil || e.status.Signaled() {
		return nil
	}
	code := e.status.ExitStatus()
	return &code
}

// String is how the command ended, for people.
func (e *commandEnd) String() string {
	s := "the command "
	switch {
	case e.err != nil:
		return s + "cannot be waited for: " + e.err.Error()
	case e.killed && e.asked == 0:
		s += "was killed at once"
	case e.killed:
		s += "did not end when it was asked to, and was killed"
	case e.status.Signaled():
		s += "was ended by " + signalName(e.status.Signal())
	default:
		s += fmt.Sprintf("exited with %d", e.status.ExitStatus())
	}
	if e.asked != 0 && !(e.status.Signaled() && e.asked == e.status.Signal()) {
		s += " after " + signalName(e.asked)
	}
	if e.restKilled {
		s += ", and what it had left behind was killed"
	}
	return s
}

// bySignal is the end of a command that a signal ended.
func bySignal(sig syscall.Signal) worker.End {
	return worker.End{Signal: strings.TrimPrefix(signalName(sig), "SIG")}
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

// supervisor passes signals on to a running command. When the command has ended it ends the rest of the group: what a
// member has started must not outlive the membership.
type supervisor struct {
	command *command
	grace   time.Duration // between being asked to end and SIGKILL
	rest    time.Duration // likewise for what the command leaves behind, if it is not 0
	echo    time.Duration // in which the same signal is the same request
	onAsked func()        // unless nil, called when the command is asked to end
	lost    <-chan error  // why to kill the whole group at once; the context may end as well, but not before

	end     commandEnd
	exited  bool     // the command has ended; its group may have not
	request struct { // the last signal passed on that asks to end, if there was one
		signal os.Signal
		at     time.Time
	}

	graceOver <-chan time.Time
	checkNow  <-chan time.Time // time to look whether the group is empty
	giveUp    <-chan time.Time // time to leave the group to the kernel
}

// run returns when the group has ended. The end of ctx asks the command to end, as SIGTERM does.
func (s *supervisor) run(ctx context.Context, signals <-chan os.Signal) commandEnd {
	exited, stop := s.command.exited, ctx.Done()
	for {
		select {
		case s.end.exitStatus = <-exited:
			exited, stop = nil, nil
			if !s.endRest() {
				return s.end
			}
		case <-s.checkNow:
			if !s.command.signalGroup(0) {
				return s.end
			}
		case sig := <-signals:
			s.forward(sig)
		case <-stop:
			stop = nil
			if len(s.lost) > 0 {
				continue
			}
			cause := context.Cause(ctx)
			if e, ok := errors.AsType[*endWithin](cause); ok {
				s.grace = e.grace
			}
			if !s.command.hasExited() { // or else it has ended by itself
				s.end.cause = cause
				s.askToEnd(syscall.SIGTERM)
			}
		case cause := <-s.lost:
			stop = nil
			if !s.exited && !s.command.hasExited() {
				s.end.cause = cause
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
func (s *supervisor) forward(sig os.Signal) {
	switch {
	case !asksToEnd(sig):
		s.command.signal(sig)
	case sig == s.request.signal && time.Since(s.request.at) < s.echo:
	case s.request.signal != nil || s.exited:
		s.killGroup()
	default:
		s.request.signal, s.request.at = sig, time.Now()
		s.askToEnd(sig.(syscall.Signal))
	}
}

// askToEnd asks the command to end within the grace.
func (s *supervisor) askToEnd(sig syscall.Signal) {
	s.command.signal(sig)
	if s.end.asked == 0 {
		s.end.asked = sig
		s.graceOver = time.After(s.grace)
		if s.onAsked != nil {
			s.onAsked()
		}
	}
}

// endRest asks what is left of the group to end, and reports whether anything is.
func (s *supervisor) endRest() bool {
	s.exited = true
	if !s.command.signalGroup(syscall.SIGTERM) {
		return false
	}
	s.checkNow = time.Tick(groupCheck)
	switch {
	case s.end.killed:
		s.giveUp = time.After(killLimit)
	case s.rest > 0:
		s.graceOver = time.After(min(s.rest, s.grace))
	case s.graceOver == nil:
		s.graceOver = time.After(s.grace)
	}
	return true
}

func (s *supervisor) killGroup() {
	s.graceOver = nil
	s.command.signalGroup(syscall.SIGKILL)
	if s.exited {
		s.end.restKilled = s.end.restKilled || s.giveUp == nil
	} else {
		s.end.killed = true
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
func (r *reaper) run(c *command, begin func() error, started chan<- error, end chan<- exitStatus) {
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

func (r *reaper) begin(c *command, begin func() error, exit chan<- exitStatus) error {
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

// streams are the pipes of a command.
type streams struct {
	in, out, err *os.File   // this process's ends; in is nil if the command gets no input
	files        []*os.File // the command's
}

// openStreams makes pipes for a command. Without input it reads from null.
func openStreams(null *os.File, withInput bool) (*streams, error) {
	s, failed := &streams{files: []*os.File{null, nil, nil}}, [3]error{}
	if withInput {
		s.files[0], s.in, failed[0] = os.Pipe()
	}
	s.out, s.files[1], failed[1] = os.Pipe()
	s.err, s.files[2], failed[2] = os.Pipe()
	if err := errors.Join(failed[:]...); err != nil {
		s.started()
		s.close()
		return nil, err
	}
	return s, nil
}

// started closes the ends that the command has now.
func (s *streams) started() {
	_, _ = s.files[1].Close(), s.files[2].Close()
	if s.in != nil {
		_ = s.files[0].Close()
	}
}

// end ends every wait for the command's group, which has ended. A process outside of it may hold the pipes open.
func (s *streams) end() {
	_ = s.in.Close() // also if it is nil
	_ = s.out.SetReadDeadline(time.Now())
	_ = s.err.SetReadDeadline(time.Now())
}

func (s *streams) close() {
	for _, f := range []*os.File{s.in, s.out, s.err} {
		_ = f.Close()
	}
}

// pourBuffer is how much of a pipe is read at once.
const pourBuffer = 8 << 10

// pipeSize bounds what a pipe may hold, so that a process that goes on writing is left alone.
const pipeSize = 1 << 20

// fromCommand is what a command writes. When the read deadline has passed, it ends with what is in the pipe.
type fromCommand struct {
	*os.File
	late int // bytes that were read after that
}

// Read implements io.Reader.
func (f *fromCommand) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	_ = f.SetReadDeadline(time.Time{})
	defer func() { _ = f.SetReadDeadline(time.Now()) }()
	if n = readNow(f.File, b); n <= 0 || f.late >= pipeSize {
		return 0, io.EOF
	}
	f.late += n
	return n, nil
}

// pour calls each with what a command writes.
func pour(f *os.File, each func([]byte)) {
	from, buf := &fromCommand{File: f}, make([]byte, pourBuffer)
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

// readNow reads what is there, without waiting. n is not positive if nothing is.
func readNow(f *os.File, buf []byte) (n int) {
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

// output copies what a run writes to this process's streams, and keeps the end of both together.
type output struct {
	*streams
	copied sync.WaitGroup

	mu   sync.Mutex
	tail tail
}

// openOutput makes the streams of a run. While a stream of this process is blocked, a run that writes waits; an error
// of that stream stops nothing.
func openOutput(null, out, err *os.File) (*output, error) {
	s, failed := openStreams(null, false)
	if failed != nil {
		return nil, fmt.Errorf("a pipe for the output: %w", failed)
	}
	o := &output{streams: s}
	o.copied.Go(func() { o.copy(out, s.out) })
	o.copied.Go(func() { o.copy(err, s.err) })
	return o, nil
}

func (o *output) copy(to, from *os.File) {
	pour(from, func(b []byte) {
		o.mu.Lock()
		o.tail.add(b)
		o.mu.Unlock()
		_, _ = to.Write(b)
	})
}

// close is called when the run has ended. It returns the end of the output. What a blocked stream has not taken after
// flushGrace is left to it: what copy has read is written when the stream goes on, and the rest is dropped.
func (o *output) close() *tail {
	o.started()
	o.end()
	copied := make(chan struct{})
	go func() {
		o.copied.Wait()
		close(copied)
	}()
	select {
	case <-copied:
	case <-time.After(flushGrace):
	}
	o.streams.close()
	o.mu.Lock()
	defer o.mu.Unlock()
	return &tail{slices.Clone(o.tail.buf)}
}

// tailSize is how much of what a command wrote is kept, in bytes.
const tailSize = 4 << 10

// tail is the end of what a command wrote.
type tail struct{ buf []byte }

func (t *tail) add(b []byte) {
	t.buf = append(t.buf, b...)
	if n := len(t.buf) - tailSize; n > tailSize {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
}

// last is the end of it, at most so many bytes, as text.
func (t *tail) last(most int) []byte {
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

// lastLine is the last line that is not empty.
func (t *tail) lastLine() string {
	said := strings.TrimSpace(string(t.last(tailSize)))
	line := said[strings.LastIndexByte(said, '\n')+1:]
	return strings.TrimSpace(text.Shorten(line, lineSize))
}

// after is a reason and the last line: what the command said before it failed.
func (t *tail) after(reason string) string {
	if line := t.lastLine(); line != "" {
		return reason + ": " + line
	}
	return reason
}
