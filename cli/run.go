// Package cli is the command line: it parses arguments, calls the packages below it, prints the results and returns an
// exit code.
//
// One file holds one command, or the small commands of one noun: for each an options struct, a constructor of the cobra
// command, and a run function. Run takes the arguments, the environment and the streams of the process, so tests call
// it as a user would; nothing else reads the environment. The package decides nothing about jobs: package plan decides
// what differs, package zkstate what may be written, package report how it looks. One table, in exit.go, makes an exit
// code of an error.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"muster/apply"
	"muster/exitcode"
	"muster/report"
	"muster/text"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
)

// RepeatWindow is how long the same signal again counts as the first one repeated.
const RepeatWindow = command.Echo

// Stopped is the cause of a context that a signal canceled.
type Stopped struct{ Signal syscall.Signal }

func (s Stopped) Error() string { return "stopped by a signal: " + s.Signal.String() }

// ExitCode is 129 after a hang-up, 130 after an interrupt and 143 after a request to terminate.
func (s Stopped) ExitCode() int { return exitcode.Signal + int(s.Signal) }

// process is what a command uses besides ZooKeeper and files: the environment, the three streams, the global flags and
// the log.
type process struct {
	environ environ
	in      io.Reader
	out     *stream
	err     *stream
	flags   globalFlags
	log     *slog.Logger
	called  called
	job     string // the path of the worker's job

	operates bool // the command changes a group or a queue: the history does not say what it did
	*hints
	logins *sync.Map // by sasl.Config: one keeps its tickets for the next session

	redisHosts   []string    // of the queues that the applied plan declares
	reportErrors []error     // of reports that were not written
	applied      *report.Run // nil if nothing was applied
}

// hints are for who waits for what is not there: see waitingFor.
type hints struct {
	session atomic.Pointer[zkconn.Session] // that was opened last
	hint    atomic.Pointer[string]
}

// Run runs muster and returns the exit code. args is without the program's name, env is NAME=value. When ctx ends with
// the cause Stopped, the command finishes the writes in flight, reports what is left, and returns the signal's code.
func Run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &process{
		environ: env,
		in:      stdin,
		out:     &stream{w: stdout},
		err:     &stream{w: stderr},
		log:     slog.New(slog.DiscardHandler),
		hints:   new(hints),

		logins: new(sync.Map),
	}
	if wantsJSON(args) {
		p.err.makeRecords()
	}
	root := newRootCmd(p, args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		plainDescriptions(root)
	}
	root.SetArgs(append([]string{}, args...)) // nil would stand for those of this process
	return p.finish(ctx, root.ExecuteContext(ctx))
}

// finish prints err and the errors of writing, and returns the exit code. It does not print EPIPE of standard output:
// the reader closed the pipe because it needs no more.
func (p *process) finish(ctx context.Context, err error) int {
	if !errors.Is(err, errNotWritten) || !errors.Is(err, syscall.EPIPE) {
		p.printError(ctx, err)
	}
	for _, lost := range p.reportErrors {
		p.printError(ctx, lost)
	}
	if lost := p.stdoutError(); lost != nil && !errors.Is(lost, syscall.EPIPE) {
		p.printError(ctx, lost)
	}
	if p.err.records != nil {
		p.err.records.flush()
	}
	return exitCode(ctx, p.withWriteErrors(err))
}

func (p *process) withWriteErrors(err error) error {
	return errors.Join(append(p.writeErrors(), err)...)
}

func (p *process) writeErrors() []error {
	lost := slices.Clip(p.reportErrors)
	if err := p.stdoutError(); err != nil {
		lost = append(lost, err)
	}
	return lost
}

func (p *process) stdoutError() error {
	if p.out.err == nil {
		return nil
	}
	return p.notWritten(fmt.Errorf("standard output: %w", p.out.err))
}

// notWritten is the problem that output was lost. What an apply has changed stays changed, and its history names it.
func (p *process) notWritten(err error) error {
	made := 0
	if p.applied != nil {
		for _, o := range p.applied.Outcomes {
			if o.Result == apply.Applied {
				made++
			}
		}
	}
	switch {
	case made == 0 && p.operates:
		return &problem{errNotWritten, fmt.Errorf("%w; what was asked for may be done all the same", err),
			"muster status"}
	case made == 0:
		return &problem{kind: errNotWritten, err: err}
	}
	return &problem{errNotWritten,
		fmt.Errorf("%w; %s made all the same", err, text.Plural(made, "change was", "changes were")),
		"muster history --stack " + text.ShellWord(p.applied.Plan.Stack)}
}

// stream is standard output or standard error. It keeps the first error and drops everything after it: a lost reader
// must not change what a command does to ZooKeeper.
type stream struct {
	w io.Writer

	mu  sync.Mutex // two logs share standard error
	err error

	records *records // nil: text stays text
}

func (s *stream) Write(b []byte) (int, error) {
	if s.records != nil {
		return s.records.Write(b)
	}
	return s.write(b)
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return len(b), nil
	}
	if _, err := s.w.Write(b); err != nil {
		s.err = err
	}
	return len(b), nil
}

// isTerminal reports whether f, one of the streams given to Run, is a terminal.
func isTerminal(f any) bool {
	if s, ok := f.(*stream); ok {
		if s.records != nil {
			return false
		}
		f = s.w
	}
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// width returns the columns of a terminal; 0 if s is none, or its size is not known.
func width(s *stream) int {
	file, ok := s.w.(*os.File)
	if !ok || s.records != nil {
		return 0
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// say prints one line on standard error, where it does not mix with a result, unless --quiet is given.
func (p *process) say(format string, args ...any) {
	if !p.flags.quiet {
		fmt.Fprintln(p.err, text.Escape(fmt.Sprintf(format, args...)))
	}
}

// announce prints what was done to name, as the end of a sentence, unless --quiet is given.
func (p *process) announce(name, format string, args ...any) {
	if !p.flags.quiet {
		fmt.Fprintf(p.out, "%s: %s.\n", text.Escape(name), text.Escape(fmt.Sprintf(format, args...)))
	}
}

// waiting says for what a command waits, unless --quiet is given.
func (p *process) waiting(what string) {
	if !p.flags.quiet {
		p.waitingFor(what)
	}
}

func (p *process) printJSON(v any) error {
	enc := json.NewEncoder(p.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func (p *process) printJSONLine(v any) error { return json.NewEncoder(p.out).Encode(v) }

// environ is the environment, as NAME=value.
type environ []string

// value returns the value of the last NAME=value, as a shell does; empty if there is none.
func (e environ) value(name string) string {
	for i := len(e) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(e[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// Commands returns muster's commands for those who describe them, such as manual pages. They are not to be run.
func Commands() *cobra.Command {
	return newRootCmd(&process{out: &stream{w: io.Discard}, err: &stream{w: io.Discard}}, nil)
}

func newRootCmd(p *process, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "muster",
		Short: "Distributed jobs in ZooKeeper: declare, plan, apply, join",
		Long: `muster keeps distributed jobs, groups and queues in ZooKeeper. To begin:
muster dev, muster init, muster plan, muster apply, muster status.`,
		Version:           version().Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE:              runRoot,
		PersistentPreRunE: p.start,
	}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { help(p.out, cmd) })
	root.SetHelpCommand(newHelpCmd(p))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, args, err) })
	p.flags.addTo(root)
	addCommands(root, "Declare and change:", newInitCmd(p), newValidateCmd(p), newTestCmd(p), newFmtCmd(p), newPlanCmd(p),
		newShowCmd(p), newApplyCmd(p), newDriftCmd(p), newExportCmd(p), newTerminateCmd(p),
		newReconcileCmd(p), newPauseReconcilerCmd(p), newResumeReconcilerCmd(p))
	addCommands(root, "Look:", newStatusCmd(p), newExplainCmd(p), newHistoryCmd(p), newWaitCmd(p), newFollowCmd(p),
		newServeCmd(p))
	addCommands(root, "Take part, and operate:", newWorkerCmd(p), newMemberCmd(p), newGroupCmd(p), newExecutorCmd(p),
		newSubmitCmd(p), newWatcherCmd(p), newQueueCmd(p))
	addCommands(root, "This machine:", newDevCmd(p), newCompletionCmd(p), newSchemaCmd(p), newVersionCmd(p))
	addCommands(root, insideGroup, newMembersCmd(p), newBarrierCmd(p), newPublishCmd(p), newGetCmd(p),
		newAdvertiseCmd(p), newReadyCmd(p), newDutyCmd(p), newStateCmd(p), newOpCmd(p), newStepCmd(p))
	root.AddCommand(newGuardCmd(p), newGuardGroupsCmd(p))
	return root
}

// runRoot answers "muster" without a command, or with one that does not exist.
func runRoot(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	help(cmd.ErrOrStderr(), cmd)
	return usagef("muster --help", "no command given")
}

// With --log-format json every line that muster writes on standard error is a JSON object with time, level and msg: the
// log, and what is for people otherwise. The lines of a command that muster runs are its own.

// records makes such objects. Its Write takes text.
type records struct {
	all *slog.Logger // of every level

	mu   sync.Mutex
	rest []byte // of a line that is not complete
}

// recordWriter is where records go: to a stream, as they are. A log writes each line at once.
type recordWriter struct{ to *stream }

func (w recordWriter) Write(line []byte) (int, error) { return w.to.write(line) }

// wantsJSON reports whether the arguments ask for JSON on standard error. It looks before they are parsed, because what
// is wrong with them is to be JSON too.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch {
		case arg == "--":
			return false
		case arg == "--log-format=json", arg == "--log-format" && i+1 < len(args) && args[i+1] == "json":
			return true
		}
	}
	return false
}

// makeRecords turns all that is written to the stream from now on into records.
func (s *stream) makeRecords() {
	everything := &slog.HandlerOptions{Level: slog.LevelDebug}
	s.records = &records{all: slog.New(slog.NewJSONHandler(recordWriter{s}, everything))}
}

func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, b...)
	for {
		line, after, complete := bytes.Cut(r.rest, []byte("\n"))
		if !complete {
			return len(b), nil
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			r.all.Info(text)
		}
		r.rest = bytes.Clone(after)
	}
}

// flush makes a record of what is left of a line, such as a prompt.
func (r *records) flush() {
	if len(r.rest) > 0 {
		_, _ = r.Write([]byte("\n"))
	}
}

func (p *process) logHandler(level slog.Level) slog.Handler {
	opts := &slog.HandlerOptions{Level: level}
	if p.err.records != nil {
		opts.ReplaceAttr = durationAsText
		return slog.NewJSONHandler(recordWriter{p.err}, opts)
	}
	return slog.NewTextHandler(p.err, opts)
}

// durationAsText makes a duration of a record "10s", as in text, where slog would write nanoseconds.
func durationAsText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// record writes one record with attributes, and reports whether standard error takes records.
func (p *process) record(ctx context.Context, level slog.Level, msg string, attrs ...any) bool {
	if p.err.records == nil {
		return false
	}
	p.err.records.all.Log(ctx, level, msg, attrs...)
	return true
}
