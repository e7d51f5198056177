package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/text"
	"muster/wrap"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

func newWaitCmd(p *process) *cobra.Command {
	var o waitOptions
	cmd := &cobra.Command{
		Use:   "wait [JOB | GROUP | QUEUE --for STATE]",
		Short: "Wait until a job is running or completed; inside a worker: for all",
		Long: `Waits until a job, a group or a queue is in one of these states:

  ready      nobody has joined the job, or is live in the group or queue
  running    all workers have joined and none is missing; every duty of a group
             is held or paused, its crons failing or not; nothing is amiss in a
             queue
  degraded   workers, holders of duties, or processes of a queue are missing
  failing    the last runs of a cron of the group have failed
  completed  all workers have completed: now, or in a run that ends from now on
  stale      no worker is live, and the run is not done
  empty      the queue has no unfinished batches
  missing    it does not exist

Ends with 4 when the time is up, or when it is deleted and is not waited for as
missing; with 74 when it never was there, after --timeout or 1m40s.

Inside a worker's command, without a name: returns when all workers of the job
have joined, whether or not they are still live; with exit code 70 when they
have not in time, naming who is missing.`,
		Example: `  muster wait nightly --for completed --run 2026-11-21 --timeout 2h
  muster wait nightly --for completed,stale --json
  muster wait primes --for empty
  muster wait --timeout 2m && compute        inside a worker's command`,
		Args: argCount(0, 1, "the name, address or path of one job, group or queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && len(o.states) == 0 {
				return p.askWorker("wait", func(c *wrap.Client) error {
					return c.Wait(cmd.Context(), wrap.Wait{Timeout: socketTimeout(o.timeout)})
				})
			}
			if err := o.check(firstArg(args)); err != nil {
				return err
			}
			return p.look(cmd.Context(), o.searchFlags, args[0], o.await)
		},
	}
	cmd.Flags().StringSliceVar(&o.states, "for", nil, "wait until it is in one of these states, a `LIST` with commas")
	cmd.Flags().StringVar(&o.run, "run", "", "completed means the run of this `NAME`: what its workers gave as --run")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0,
		"wait `DURATION`; default for ever; inside a worker's command the job's join timeout, which is the maximum there")
	cmd.Flags().BoolVar(&o.json, "json", false, "print as JSON what was reached, and what it is now")
	completeList(cmd, "for", awaitable())
	p.addSearch(cmd, &o.searchFlags, p.completeJob(&o.searchFlags))
	return cmd
}

// socketTimeout formats a duration for the worker's socket. 0 is empty: the worker chooses.
func socketTimeout(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// waitOptions of "muster wait". Inside a worker's command only timeout is used.
type waitOptions struct {
	searchFlags
	states  []string
	run     string
	timeout time.Duration
	json    bool
}

// stateEmpty is what a queue without unfinished batches can be waited for as. It is no status.
const stateEmpty = "empty"

// awaitable lists the states that can be waited for, of any kind.
func awaitable() []string {
	var all []string
	for _, k := range declarable() {
		all = append(all, awaitableOf(k)...)
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// awaitableOf lists the states of a kind that can be waited for. In the others something is wrong, or about to change.
func awaitableOf(k resource.Kind) []string {
	never := []resource.Status{
		resource.StatusUnreadable, resource.StatusForeign, resource.StatusDamaged, resource.StatusTerminating, job.Forming,
	}
	var words []string
	for _, s := range k.Statuses {
		if !slices.Contains(never, s) {
			words = append(words, string(s))
		}
	}
	if k.Name == queue.KindName {
		words = append(words, stateEmpty)
	}
	return words
}

func (o waitOptions) check(name string) error {
	all := awaitable()
	switch {
	case name == "":
		return usagef("muster wait JOB --for "+strings.Join(o.states, ","), "--for needs the name of a job, group or queue")
	case len(o.states) == 0:
		return usagef("muster wait "+text.ShellWord(name)+" --for completed",
			"say what to wait for: --for %s", strings.Join(all, ", "))
	case o.timeout < 0:
		return usagef("muster wait --timeout 2m", "--timeout %s: a duration is not negative", o.timeout)
	case o.run != "" && !slices.Contains(o.states, string(job.Completed)):
		return usagef("muster wait "+text.ShellWord(name)+" --for completed --run "+text.ShellWord(o.run),
			"--run is for --for completed")
	}
	for _, s := range o.states {
		if !slices.Contains(all, s) {
			return usagef("muster wait --help", "--for %q is no state: %s", s, strings.Join(all, ", "))
		}
	}
	return nil
}

func (o waitOptions) await(ctx context.Context, p *process, scope *searchScope, name string) error {
	at, err := scope.find(ctx, name, "")
	if err != nil {
		return err
	}
	w := &awaited{p: p, o: o, at: at, started: time.Now()}
	return w.end(w.wait(ctx, scope))
}

// errTimeUp is the cause of a context that --timeout ended.
var errTimeUp = errors.New("the time is up")

// errReached ends the looking for something.
var errReached = errors.New("reached")

type awaited struct {
	p       *process
	o       waitOptions
	at      string
	started time.Time

	early   bool               // it was not there at first: any run that completes does it since
	first   *job.Run           // else the last run when it was first seen
	seen    *resource.Observed // as it was last there; nil: never
	runName string             // of the run in seen, if o.run is set
	now     *resource.Observed // nil: missing
	gap     bool               // a session was lost, which was said
	ended   func() bool        // of a job that its last worker removes: whether the run in seen has completed
	where   string             // elsewhere, if it was not there at first
	reached string             // one of o.states
	shown   resource.Status    // what was last said on standard error
}

// wait looks once, and then until a state is reached or the time is up.
func (w *awaited) wait(ctx context.Context, scope *searchScope) error {
	r := zkstate.NewFollower(scope.session, scope.home, kinds()...)
	o, err := r.Look(ctx, w.at)
	if err == nil {
		if w.early = o == nil; w.early {
			w.where = scope.elsewhere(ctx, "", w.at)
		}
		err = w.look(ctx, r, o)
	}
	if err != nil {
		return err
	}
	if w.o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.o.timeout, errTimeUp)
		defer cancel()
	}
	return w.follow(ctx, scope)
}

// follow looks until a state is reached, in one session after the other.
func (w *awaited) follow(ctx context.Context, scope *searchScope) error {
	for {
		r := zkstate.NewFollower(scope.session, scope.home, kinds()...)
		err := r.Follow(ctx, w.at, watchEvery, func(o *resource.Observed) error { return w.look(ctx, r, o) })
		if noAnswer(err) {
			if !w.gap {
				w.note("", "no server of ZooKeeper answers")
			}
			w.gap = true
			err = w.p.reconnectSoon(ctx, scope, 0)
		}
		switch {
		case err == nil: // connected again
		case errors.Is(context.Cause(ctx), errTimeUp) && !scope.session.Connected():
			return fmt.Errorf("%w: %w after %s", zkconn.ErrUnreachable, errTimeUp, w.o.timeout)
		default:
			return err
		}
	}
}

// look decides whether o is what is waited for: then, or if it never will be, it returns an error.
func (w *awaited) look(ctx context.Context, r *zkstate.Follower, o *resource.Observed) error {
	w.now = o
	if o == nil {
		return w.absent()
	}
	if c := o.Class(); c == resource.Foreign || c == resource.Unreadable {
		fmt.Fprintf(w.p.err, "%s is %s: %s\n  next: %s\n", text.Escape(w.at), o.Status(),
			text.Escape(o.Problem), w.p.paste("muster explain "+text.ShellWord(w.at)))
		return foundAttention
	}
	if w.seen == nil {
		if err := w.checkKind(o); err != nil {
			return err
		}
		if !w.early {
			w.first = job.LastRun(o.Record)
		}
	}
	if w.o.run != "" && o.Record != nil {
		var err error
		if w.runName, err = r.RunName(ctx, o.Record); err != nil {
			return err
		}
	}
	if err := w.watchEnd(ctx, r, o); err != nil {
		return err
	}
	w.seen, w.gap = o, false
	for _, state := range w.o.states {
		if w.is(o, state) {
			w.reached = state
			return errReached
		}
	}
	w.note(o.Status(), healthOf(o))
	return nil
}

// is reports whether o has reached a state. A run that has completed was running, even if nobody saw it.
func (w *awaited) is(o *resource.Observed, state string) bool {
	switch state {
	case string(job.Completed):
		return w.completed(o)
	case string(job.Running):
		return string(o.Status()) == state || o.Status() == group.Failing || w.o.run == "" && w.completed(o)
	case stateEmpty:
		return o.Class() != resource.Damaged && queue.FoundOf(o).Batches == 0
	}
	return string(o.Status()) == state
}

// completed reports whether the run that is waited for has completed: o is completed, or its record tells of a run that
// did it since it was first seen. With --run it is the run of that name, whenever it was.
func (w *awaited) completed(o *resource.Observed) bool {
	last, done := job.LastRun(o.Record), o.Status() == job.Completed
	if w.o.run != "" {
		return done && w.runName == w.o.run || last != nil && last.ID == w.o.run
	}
	return done || last != nil && (w.first == nil || *last != *w.first)
}

// watchEnd keeps a watch on the completion of a job that its last worker removes: afterwards nothing tells of it. That
// somebody terminated it may be missed.
func (w *awaited) watchEnd(ctx context.Context, r *zkstate.Follower, o *resource.Observed) (err error) {
	if o.Record == nil || o.Record.Declaration.Kind().Name != job.KindName ||
		job.Of(o.Record).Lifecycle.OnComplete != job.Remove {
		w.ended = nil
		return nil
	}
	if w.ended != nil && w.seen.Record.Generation == o.Record.Generation && w.ended() {
		return nil
	}
	w.ended, err = r.CompletedW(ctx, o.Record)
	return err
}

func (w *awaited) absent() error {
	wants := func(state string) bool { return slices.Contains(w.o.states, state) }
	switch {
	case wants(string(resource.StatusMissing)):
		w.reached = string(resource.StatusMissing)
		return errReached
	case w.seen == nil && w.o.timeout == 0 && time.Since(w.started) > time.Duration(job.Default().Timeouts.Join):
		return errTimeUp
	case w.seen == nil:
		w.note(resource.StatusMissing, strings.TrimSuffix("nothing is there; "+w.where, "; "))
		return nil
	case wants(string(job.Completed)) && w.removed():
		w.reached = string(job.Completed)
		return errReached
	}
	err := fmt.Errorf("%s is gone: somebody deleted it while it was waited for", w.at)
	return &problem{errIncomplete, err, "muster status shows what is there; to wait until it is gone: --for missing"}
}

// removed reports whether the run that is waited for has completed, and its last worker has removed the job.
func (w *awaited) removed() bool {
	return w.ended != nil && w.ended() && (w.o.run == "" || w.runName == w.o.run)
}

// checkKind refuses a state that this kind never has.
func (w *awaited) checkKind(o *resource.Observed) error {
	if o.Record == nil {
		return nil
	}
	kind := o.Record.Declaration.Kind()
	words := awaitableOf(kind)
	for _, s := range w.o.states {
		if !slices.Contains(words, s) {
			return usagef("muster wait "+text.ShellWord(w.at)+" --for "+words[len(words)-1],
				"%s is a %s, which is never %s: %s", w.at, kind.Name, s, strings.Join(words, ", "))
		}
	}
	return nil
}

// note says on standard error what is still waited for, whenever the status is another one; empty is an outage.
func (w *awaited) note(status resource.Status, what string) {
	if w.shown != status && !w.p.flags.quiet {
		fmt.Fprintf(w.p.err, "waiting for %s to be %s: %s\n", text.Escape(w.at), strings.Join(w.o.states, " or "),
			text.Escape(what))
	}
	w.shown = status
}

func healthOf(o *resource.Observed) string {
	if o.Record == nil {
		return string(o.Status())
	}
	return string(o.Status()) + " (" + o.Record.Declaration.Health(o) + ")"
}

// waitResult is what "wait --json" prints.
type waitResult struct {
	FormatVersion string          `json:"format_version"`
	Path          string          `json:"path"`
	Reached       string          `json:"reached,omitempty"` // the state of --for; absent: none
	Status        resource.Status `json:"status"`            // now; a completed job is ready for its next run
	Health        string          `json:"health,omitempty"`
}

// end prints the outcome, and returns what sets the exit code.
func (w *awaited) end(err error) error {
	if w.o.json {
		result := waitResult{FormatVersion: "1.0", Path: w.at, Reached: w.reached, Status: w.now.Status()}
		if w.now != nil && w.now.Record != nil {
			result.Health = w.now.Record.Declaration.Health(w.now)
		}
		if printErr := w.p.printJSON(result); printErr != nil {
			return printErr
		}
	}
	switch {
	case errors.Is(err, errReached):
		if !w.o.json && !w.p.flags.quiet {
			fmt.Fprintf(w.p.out, "%s is %s.\n", text.Escape(w.at), w.reached)
		}
		return nil
	case !errors.Is(err, errTimeUp) || errors.Is(err, zkconn.ErrUnreachable):
		return err
	case w.seen == nil:
		err := fmt.Errorf("there is no job, group or queue at %s", w.at)
		return &problem{errAbsent, err,
			cmp.Or(w.where, "muster status shows what is there; muster apply creates what is declared")}
	}
	err = fmt.Errorf("%s is not %s after %s: %s", w.at, strings.Join(w.o.states, " or "), w.o.timeout, healthOf(w.seen))
	return &problem{errIncomplete, err, w.afterTimeUp()}
}

// afterTimeUp is the next step when the time is up. Who waited for a run that had completed before is told its name.
func (w *awaited) afterTimeUp() string {
	at := text.ShellWord(w.at)
	if w.o.run == "" && slices.Contains(w.o.states, string(job.Completed)) && w.seen.Status() == resource.StatusReady {
		switch last := job.LastRun(w.seen.Record); {
		case last != nil && last.ID != "":
			return "muster wait " + at + " --for completed --run " + text.ShellWord(last.ID) + " finds the run before"
		case last != nil:
			return "muster status " + at + " shows the run before; to wait for a run that may have ended, give it a name: " +
				"muster worker --run, and here --run"
		}
	}
	return "muster status " + at + " shows who is missing"
}
