package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
	"muster/text"
	"muster/zkstate/znode"
)

type submitOptions struct {
	searchFlags
	id, results      string
	weight, attempts int
	taskTimeout      time.Duration
	null, files      bool
	wait, json       bool
	flags            *pflag.FlagSet // that these are in
}

func newSubmitCmd(p *process) *cobra.Command {
	var o submitOptions
	cmd := &cobra.Command{
		Use:   "submit QUEUE [FILE | -]",
		Short: "Put a batch of tasks into a queue, and maybe wait for the results",
		Long: `Puts a batch into a queue: each line of the file, or of standard input, is a
task. An empty line is an empty task. With --null each task ends with a zero
byte, so that it may hold newlines; with --files each file is one task. The id
of the batch is printed when all of its tasks can be executed.

The same --id again with the same tasks is the same batch: it goes on where it
was interrupted, and nothing is executed twice for it. Other tasks are refused.

With --wait the results are printed in the order of the tasks, each followed by
a newline, or with --null by a zero byte; a dead task is named on standard
error, and then the exit code is 3. The batch ends when all of them are printed.
Interrupted, or run again with the same --id, it waits for the same batch.`,
		Example: `  muster submit primes numbers.txt
  find . -name '*.png' -print0 | muster submit thumbs --null --id nightly-7
  muster submit primes numbers.txt --wait >results.txt`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.files {
				return argCount(2, 1<<30, "a queue and at least one file")(cmd, args)
			}
			return argCount(1, 2, "a queue, and maybe one file (--files takes more)")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runSubmit(cmd.Context(), p, o, args[0], args[1:])
		},
	}
	fs := cmd.Flags()
	o.flags = fs
	fs.StringVar(&o.id, "id", "", "the batch's `ID`; default one of its own, from the time")
	fs.IntVar(&o.weight, "weight", 1,
		fmt.Sprintf("its share `N` of the executors beside other batches, up to %d", queue.MaxWeight))
	fs.StringVar(&o.results, "results", "",
		"`WHO` gets the results: watcher, submitter, discard or keep:24h; default watcher, with --wait submitter")
	fs.IntVar(&o.attempts, "attempts", 0, "try each task `N` times; default: what the queue says")
	fs.DurationVar(&o.taskTimeout, "task-timeout", 0, "end an attempt after `DURATION`; default: what the queue says")
	fs.BoolVarP(&o.null, "null", "0", false, "tasks end with a zero byte, and so do printed results")
	fs.BoolVar(&o.files, "files", false, "each FILE is one task: QUEUE FILE...")
	fs.BoolVar(&o.wait, "wait", false, "wait until all tasks are done or dead, and print the results")
	fs.BoolVar(&o.json, "json", false, "with --wait: print a line of JSON for each task, dead ones too")
	completeWith(cmd, "results", "watcher", "submitter", "discard", "keep:24h")
	queueName := p.completePart(&o.searchFlags, queue.KindName)
	p.addSearch(cmd, &o.searchFlags, func(
		cmd *cobra.Command, args []string, typed string,
	) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return queueName(cmd, args, typed)
		}
		return nil, cobra.ShellCompDirectiveDefault // files
	})
	return cmd
}

func (o *submitOptions) check() error {
	switch {
	case o.null && o.files:
		return usagef("leave out one of them", "--files makes each file one task, and --null splits one into tasks")
	case o.json && !o.wait:
		return usagef("muster submit --wait --json", "--json is about the results, which only --wait prints")
	case o.json && o.null:
		return usagef("leave out one of them", "--json prints lines, and --null ends results with a zero byte")
	case o.flags.Changed("attempts") && (o.attempts < 1 || o.attempts > 100):
		return usagef("--attempts 3", "--attempts %d is not between 1 and 100", o.attempts)
	case o.flags.Changed("task-timeout") && o.taskTimeout <= 0:
		return usagef("--task-timeout 10m", "--task-timeout %s leaves a task no time", o.taskTimeout)
	case o.weight < 1 || o.weight > queue.MaxWeight:
		return usagef("--weight 1", "--weight %d is not between 1 and %d", o.weight, queue.MaxWeight)
	}
	if o.id != "" {
		if err := queue.CheckBatchID(o.id); err != nil {
			return usagef("--id nightly-7", "--id: %w", err)
		}
	}
	if o.results != "" {
		if err := queue.Results(o.results).Check(); err != nil {
			return usagef("--results keep:24h", "--results: %w", err)
		}
	}
	_, kept := queue.Results(o.results).Keep()
	if o.wait && o.results != "" && o.results != string(queue.ResultsSubmitter) && !kept {
		return usagef("leave out --results, or write --results keep:24h",
			"--wait prints the results, and with --results %s nobody else gets them", o.results)
	}
	if o.wait && o.results == "" {
		o.results = string(queue.ResultsSubmitter)
	}
	return nil
}

func runSubmit(ctx context.Context, p *process, o submitOptions, name string, files []string) error {
	if err := o.check(); err != nil {
		return err
	}
	source, closeSource, err := p.taskSource(ctx, o, files)
	if err != nil {
		return err
	}
	defer closeSource()
	return p.look(ctx, o.searchFlags, name, func(ctx context.Context, p *process, scope *searchScope, name string) error {
		root, queueName, err := scope.submitTo(ctx, name)
		if err != nil {
			return err
		}
		s := &submitting{p: p, o: o, scope: scope, source: source, again: o.again(name, files)}
		s.out = bufio.NewWriterSize(p.out, 1<<16)
		s.bar = &batchBar{bar: p.newBar(), told: time.Now()}
		s.c = tasks.SubmitConfig{
			Root: root, Queue: queueName, ID: o.id, Weight: o.weight, Results: queue.Results(o.results),
			Attempts: o.attempts, TaskTimeout: o.taskTimeout, By: p.user(), Redis: tasks.Access{Getenv: p.environ.value},
			Waiting: s.bar.waiting, Progress: s.bar.written,
		}
		return s.run(ctx)
	})
}

// submitTo finds the root and the name of a queue. One that does not exist yet may be created soon, if it is clear
// where.
func (scope *searchScope) submitTo(ctx context.Context, name string) (root, queueName string, err error) {
	f, err := scope.findQueue(ctx, name)
	switch {
	case err == nil:
		return path.Dir(f.path), path.Base(f.path), nil
	case !errors.Is(err, tasks.ErrNoQueue):
		return "", "", err
	}
	root, queueName = path.Dir(name), path.Base(name)
	if !strings.HasPrefix(name, "/") {
		if len(scope.roots) != 1 || strings.Contains(name, "/") {
			return "", "", err
		}
		root, queueName = scope.roots[0], name
	}
	if resource.CheckName(queue.KindName, queueName) != nil || resource.CheckRoot(root) != nil {
		return "", "", err
	}
	return root, queueName, nil
}

func (p *process) taskSource(ctx context.Context, o submitOptions, files []string) (tasks.Source, func(), error) {
	if o.files {
		for i, name := range files {
			files[i] = p.path(name)
			if err := readableTwice(files[i]); err != nil {
				return nil, nil, err
			}
		}
		return tasks.Files(files...), func() {}, nil
	}
	end := byte('\n')
	if o.null {
		end = 0
	}
	if len(files) == 0 || files[0] == "-" {
		if len(files) == 0 && isTerminal(p.in) {
			return nil, nil, usagef("muster submit QUEUE FILE; - is the terminal",
				"there is no file, and standard input is a terminal")
		}
		stream := tasks.NewStream(p.in, end)
		return stream.Tasks, func() { _ = stream.Close() }, nil
	}
	f, err := interruptible(ctx, func() (*os.File, error) { // a named pipe is open only when somebody writes to it
		return os.Open(p.path(files[0]))
	})
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, errors.Join(err, f.Close())
	case info.IsDir():
		return nil, nil, errors.Join(usagef("muster submit QUEUE --files "+text.ShellWord(files[0])+"/*",
			"%s is a directory", files[0]), f.Close())
	case !info.Mode().IsRegular():
		stream := tasks.NewStream(f, end)
		return stream.Tasks, func() { _ = errors.Join(stream.Close(), f.Close()) }, nil
	}
	return tasks.Lines(f, end), func() { _ = f.Close() }, nil
}

// again is the command that goes on with a batch, without its id.
func (o submitOptions) again(name string, files []string) []string {
	words := append([]string{"muster", "submit", name}, files...)
	words = append(words, given(o.flags, "root", "null", "files", "wait", "json", "results", "weight", "attempts",
		"task-timeout")...)
	return text.Each(words, text.ShellWord)
}

// submitting is a submit under way, also over several sessions.
type submitting struct {
	p      *process
	o      submitOptions
	c      tasks.SubmitConfig
	scope  *searchScope
	source tasks.Source
	again  []string
	bar    *batchBar

	// Of --wait. What an attempt has printed is not printed again by the next one.
	out     *bufio.Writer
	printed int64            // so many tasks, from the first one on; dead ones count
	dead    int64            // of these
	all     *tasks.Submitted // the batch, once all are printed: what is left is to end it
}

// run submits the batch, and with --wait prints its results. A session that is lost is replaced: the batch has an id.
func (s *submitting) run(ctx context.Context) error {
	for tries := 0; ; tries++ {
		err := s.attempt(ctx)
		switch {
		case err == nil, ctx.Err() != nil:
		case errors.Is(err, tasks.ErrLost):
			s.bar.waiting("the batch to be written again: " + err.Error())
			continue
		case noAnswer(err):
			s.bar.waiting("ZooKeeper: " + err.Error())
			if rest := s.p.reconnectSoon(ctx, s.scope, tries); rest == nil {
				continue
			}
		}
		s.bar.clear()
		return s.problem(ctx, err)
	}
}

// attempt submits, and waits, in the session that there is. Once all is printed it only ends the batch.
func (s *submitting) attempt(ctx context.Context) error {
	if s.all != nil {
		return s.await(ctx, *s.all)
	}
	got, err := tasks.Submit(ctx, s.scope.session, s.c, s.source)
	if got.Manifest.Life != "" || errors.Is(err, tasks.ErrUnknown) || err == nil {
		s.c.ID = got.ID // from here on it is this batch
	}
	if err != nil {
		return err
	}
	if s.o.wait {
		return s.await(ctx, got)
	}
	s.bar.clear()
	if e := got.Ended; e != nil && (e.How == znode.EndCancelled || e.How == znode.EndUnattended) {
		return s.gone(fmt.Errorf("batch %s was submitted before, and has ended %s: %s, %s", got.ID,
			e.Ended.Format(time.RFC3339), e.How, doneAndDead(e.Done, e.Dead)))
	}
	fmt.Fprintln(s.p.out, got.ID)
	s.tell(got)
	return nil
}

func (s *submitting) tell(got tasks.Submitted) {
	if s.p.flags.quiet {
		return
	}
	at := text.Escape(resource.Join(s.c.Root, s.c.Queue))
	switch m := got.Manifest; {
	case got.Ended != nil:
		fmt.Fprintf(s.p.err, "%s: batch %s was submitted before, and has ended %s: %s, %s\n", at, got.ID,
			got.Ended.Ended.Format(time.RFC3339), got.Ended.How, doneAndDead(got.Ended.Done, got.Ended.Dead))
	case got.Found:
		fmt.Fprintf(s.p.err, "%s: batch %s was submitted before, and is %s: %s\n", at, got.ID, m.State,
			countTasks(m.Tasks))
	default:
		fmt.Fprintf(s.p.err, "%s: batch %s has %s, %s\n", at, got.ID, countTasks(m.Tasks), text.Size(m.Bytes))
	}
}

func countTasks(n int64) string { return text.Count(int(n), "task") }

func doneAndDead(done, dead int64) string {
	if dead == 0 {
		return fmt.Sprintf("%d done", done)
	}
	return fmt.Sprintf("%d done, %d dead", done, dead)
}

// problem adds to why a submit has ended what the user should do.
func (s *submitting) problem(ctx context.Context, err error) error {
	at := foundQueue{path: resource.Join(s.c.Root, s.c.Queue), id: cmp.Or(s.c.ID, "ID")}
	next := strings.Join(append(slices.Clone(s.again), "--id", s.c.ID), " ")
	var large *tasks.LargeTask
	switch begun := s.c.ID != ""; {
	case err == nil || errors.As(err, new(finding)):
		return err
	case begun && ctx.Err() != nil: // the reason is the signal, which printError tells
		fmt.Fprintf(s.p.err, "muster: batch %s is not finished; to go on, with the same tasks: %s\n", s.c.ID, next)
		return context.Cause(ctx) // err may be that of Redis, which it waited for
	case begun && errors.Is(err, tasks.ErrRedis):
		return &problem{errNoRedis, err, "to go on, with the same tasks: " + next}
	case begun && (errors.Is(err, tasks.ErrNotOpen) || unreachable(err)):
		return &problem{nil, err, "to go on, with the same tasks: " + next}
	case errors.As(err, &large) && !s.o.files && !s.o.null:
		err = fmt.Errorf("line %d: %w", large.Index+1, err)
	}
	return s.p.withHint(queueError(withRemedy(err, []remedy{
		{nil, "put such data elsewhere and submit where it is, or raise max_task of the queue",
			errorSet{new(*tasks.LargeTask)}},
		{nil, "submit it as several batches", errorSet{tasks.ErrTooLarge}},
		{nil, "wait until some have ended: muster queue batches {queue}", errorSet{tasks.ErrManyBatches}},
		{nil, "submit a copy that nobody writes to", errorSet{tasks.ErrChanged}},
		{nil, "muster queue batches {batch} shows it; give these tasks another --id", errorSet{tasks.ErrOtherBatch}},
		{errUsage, "write each task on a line of its own; an empty line is a task, too", errorSet{tasks.ErrNoTasks}},
	}, "{queue}", text.ShellWord(at.path), "{batch}", at.words()), at))
}

// readableTwice refuses what is no file: a pipe yields nothing when it is read again.
func readableTwice(name string) error {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return usagef("muster submit QUEUE --files "+text.ShellWord(name)+"/*", "%s is a directory", name)
	case !info.Mode().IsRegular():
		return usagef("write it into a file first", "%s is not a file, and --files reads each one twice", name)
	}
	return nil
}

const maxNamedDead = 10

func (s *submitting) await(ctx context.Context, got tasks.Submitted) error {
	if got.Ended != nil {
		s.bar.clear()
		s.tell(got)
		return s.gone(fmt.Errorf("batch %s has ended %s (%s, by %s): its results are gone", got.ID,
			got.Ended.Ended.Format(time.RFC3339), got.Ended.How, got.Ended.EndedBy))
	}
	f, err := s.scope.findQueue(ctx, resource.Join(s.c.Root, s.c.Queue))
	if err != nil {
		return err
	}
	op, err := s.p.operator(ctx, s.scope.session, f)
	if err != nil {
		return err
	}
	defer op.Close()
	if s.all == nil {
		if err := s.awaitResults(ctx, f, op, got); err != nil {
			return err
		}
		s.all = &got
	}
	if _, kept := got.Manifest.Results.Keep(); !kept {
		if err := op.Collected(ctx, got.ID, got.Manifest); err != nil {
			return err
		}
	}
	if s.dead > 0 {
		return foundAttention
	}
	return nil
}

// awaitResults waits until all tasks are done or dead, and prints the results.
func (s *submitting) awaitResults(ctx context.Context, f foundQueue, op *tasks.Operator, got tasks.Submitted) error {
	s.bar.begin(got.ID, got.Manifest.Tasks)
	if queue.FoundOf(f.queue).Executors == 0 && !s.p.flags.quiet {
		s.bar.clear()
		fmt.Fprintf(s.p.err, "no executor is live now; one is started by: muster executor %s --root %s -- COMMAND\n",
			text.ShellWord(s.c.Queue), text.ShellWord(s.c.Root))
	}
	b, end, err := op.Await(ctx, got.ID, got.Manifest, s.bar.books)
	s.bar.clear()
	switch {
	case err != nil:
		return err
	case end != nil:
		return s.gone(fmt.Errorf("batch %s has ended %s (%s, by %s) before its results were printed", got.ID,
			end.Ended.Format(time.RFC3339), end.How, end.EndedBy))
	}
	if err := s.print(ctx, op, got); err != nil {
		return err
	}
	s.bar.end(b)
	return nil
}

func (s *submitting) gone(err error) error {
	return &problem{kind: errIncomplete, err: err, next: "submit it with another --id"}
}

// print prints the results in the order of the tasks, and names dead ones. It leaves out what is printed already: Redis
// may have lost the batch meanwhile. Unless all was written, it returns an error.
func (s *submitting) print(ctx context.Context, op *tasks.Operator, got tasks.Submitted) error {
	st, err := op.Store(ctx)
	if err != nil {
		return err
	}
	for r, err := range tasks.InOrder(tasks.Records(ctx, st, got.ID, op.Away(ctx)), got.Manifest.Tasks) {
		switch {
		case errors.Is(err, store.ErrNoBatch):
			return fmt.Errorf("%w: %w", tasks.ErrLost, err)
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.Index < s.printed:
			continue
		case r.Dead:
			if s.dead++; s.dead <= maxNamedDead {
				fmt.Fprintf(s.p.err, "task %d is dead: %s\n", r.Index, text.Escape(cmp.Or(r.Error, noReason)))
			}
		}
		if err := cmp.Or(s.printOne(s.out, r), s.p.stdoutError()); err != nil {
			return err
		}
		s.printed++
	}
	if err := cmp.Or(s.out.Flush(), s.p.stdoutError()); err != nil {
		return err
	}
	if s.dead > maxNamedDead {
		fmt.Fprintf(s.p.err, "and %d more dead tasks: muster queue batches %s --dead\n", s.dead-maxNamedDead,
			text.ShellWord(s.c.Root+"/"+s.c.Queue+"/"+got.ID))
	}
	return nil
}

func (s *submitting) printOne(out io.Writer, r tasks.Record) error {
	if s.o.json {
		return json.NewEncoder(out).Encode(r)
	}
	if r.Dead {
		return nil
	}
	end := "\n"
	if s.o.null {
		end = "\x00"
	}
	_, err := out.Write(r.Result)
	if err == nil && (s.o.null || !strings.HasSuffix(string(r.Result), end)) {
		_, err = io.WriteString(out, end)
	}
	return err
}

const noReason = "its executor gave no reason"
