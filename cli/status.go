package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/job"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// statusOptions of "muster status".
type statusOptions struct {
	searchFlags
	watch, json bool
}

// lookElsewhere says how to look below other roots.
const lookElsewhere = "--root PATH, or -f DIR with the configuration"

// maxCountedWorkers limits the counting of restarts, which takes three reads a worker. A table of more workers has
// none.
const maxCountedWorkers = 1000

func newStatusCmd(p *process) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [GLOB | JOB | GROUP | QUEUE | DIR/]",
		Short: "Show jobs, groups and queues, and who of them is live",
		Long: `Shows the jobs, groups and queues below a root, declared or not; of a single job
that is named, its workers too, and which are missing; of a single group its
members, who holds its duties, and what waits and why; of a single queue its
executors and watchers, and its unfinished batches. It looks where the
configuration here does, or the one that -f names, or DIR/, or a file.`,
		Example: `  muster status
  muster status 'ingest-*' --watch
  muster status shop
  muster status nightly --root /jobs/prod
  muster status prod/`,
		Args: argCount(0, 1, "one name or pattern"),
		RunE: func(cmd *cobra.Command, args []string) error {
			pattern, err := p.takeConfig(&o.searchFlags, firstArg(args))
			if err != nil {
				return err
			}
			return runStatus(cmd.Context(), p, o, pattern)
		},
	}
	o.searchFlags.addTo(cmd.Flags())
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "show it again whenever it changes, until interrupted")
	cmd.Flags().BoolVar(&o.json, "json", false, "as JSON")
	p.completeSearch(cmd, &o.searchFlags)
	cmd.ValidArgsFunction = p.completeJob(&o.searchFlags)
	return cmd
}

func runStatus(ctx context.Context, p *process, o statusOptions, pattern string) error {
	o.named = strings.HasPrefix(pattern, "/")
	scope, err := p.search(ctx, o.searchFlags)
	if err != nil {
		return err
	}
	defer func() { scope.session.Close() }() // --watch may have replaced the session
	if strings.HasPrefix(pattern, "/") && !isGlob(pattern) {
		scope.roots, scope.paths = []string{path.Dir(pattern)}, []string{pattern}
	}
	if !o.watch {
		return p.status(ctx, p.out, scope, o, pattern)
	}
	return p.watch(ctx, &scope, func(to io.Writer) io.Writer { return o.noteWriter(p, to) },
		func(to io.Writer) error { return p.status(ctx, to, scope, o, pattern) })
}

// status reads ZooKeeper and prints the jobs once.
func (p *process) status(ctx context.Context, to io.Writer, scope searchScope, o statusOptions, pattern string) error {
	r := zkstate.NewReader(scope.session, scope.home, kinds()...)
	have, err := r.Read(ctx, scope.roots, scope.paths...)
	if err != nil {
		return err
	}
	jobs := selectJobs(have, pattern)
	if pattern != "" && len(jobs) == 0 {
		err := fmt.Errorf("no job or group %q below %s", pattern, strings.Join(scope.roots, ", "))
		return &problem{err: err, next: "muster status shows all; to look elsewhere: " + lookElsewhere}
	}
	detail := pattern != "" && !isGlob(pattern) && len(jobs) == 1
	workers := map[string][]report.Worker{}
	if workerCount(jobs) <= maxCountedWorkers || detail {
		if workers, err = readWorkers(ctx, r, jobs); err != nil {
			return err
		}
	}
	ages := !o.watch || isTerminal(p.out) // without them a pipe gets a block only when something happens
	if detail && isGroup(&jobs[0].Observed) {
		if jobs[0].Group, err = readGroup(ctx, r, &jobs[0].Observed, ages); err != nil {
			return err
		}
		shown := 1 // runs of a cron
		if o.json {
			shown = 5
		}
		if err := readRuns(ctx, scope.session, &jobs[0].Observed, jobs[0].Group.Duties, shown); err != nil {
			return err
		}
	}
	if detail && isQueue(&jobs[0].Observed) {
		if jobs[0].Queue, err = readQueue(ctx, r, &jobs[0].Observed, ages); err != nil {
			return err
		}
	}
	if detail && jobs[0].Group == nil && jobs[0].Queue == nil {
		if jobs[0].Barriers, err = readBarriers(ctx, r, &jobs[0].Observed); err != nil {
			return err
		}
	}
	opts := p.layout()
	if ages {
		opts.Now = time.Now()
	}
	switch {
	case o.json && detail:
		err = report.StatusJSON(to, jobs, workers)
	case o.json:
		err = report.StatusJSON(to, jobs, nil)
	case detail && jobs[0].Group != nil:
		err = report.Group(to, jobs[0], opts)
	case detail && jobs[0].Queue != nil:
		err = report.Queue(to, jobs[0], opts)
	case detail:
		err = report.Workers(to, jobs[0], workers[jobs[0].Path], opts)
	case len(jobs) == 0:
		fmt.Fprintf(to, "No jobs or groups below %s.\n", strings.Join(scope.roots, ", "))
		if scope.cfg == nil && cmp.Or(o.root, p.environ.value("MUSTER_ROOT")) == "" { // no root is named
			fmt.Fprintf(o.noteWriter(p, to), "  next: %s\n", lookElsewhere)
		}
	default:
		err = report.Status(to, jobs, opts)
	}
	if err != nil {
		return err
	}
	return reportUnread(o.noteWriter(p, to), have.Unlisted, scope.unindexed, jobs)
}

// noteWriter returns where notes go: standard error, or with --watch into the table, which is drawn as a whole.
func (o statusOptions) noteWriter(p *process, to io.Writer) io.Writer {
	switch {
	case !o.watch:
		return p.err
	case o.json:
		return io.Discard
	}
	return to
}

// reportUnread prints which roots could not be listed. What could not be read needs attention.
func reportUnread(to io.Writer, roots []string, unindexed string, jobs []report.JobStatus) error {
	for _, root := range roots {
		fmt.Fprintf(to, "%s could not be listed: check the credentials in MUSTER_ZK_AUTH\n", root)
	}
	if unindexed != "" {
		fmt.Fprintf(to, "%s: jobs below a root that nothing here names are not shown\n", text.Escape(unindexed))
	}
	unreadable := func(j report.JobStatus) bool {
		return j.Observed.Class() == resource.Unreadable || j.Observed.Class() == resource.Damaged
	}
	if len(roots) > 0 || unindexed != "" || slices.ContainsFunc(jobs, unreadable) {
		return foundAttention
	}
	return nil
}

// isGlob reports whether a pattern may match more than one name.
func isGlob(pattern string) bool { return strings.ContainsAny(pattern, "*?") }

// selectJobs returns the jobs whose path, name or recorded address matches the pattern. An empty pattern matches all.
func selectJobs(have plan.State, pattern string) []report.JobStatus {
	var jobs []report.JobStatus
	if pattern == "" {
		pattern = "*"
	}
	fits := newGlobs([]string{pattern})
	for _, at := range slices.Sorted(maps.Keys(have.Found)) {
		o := have.Found[at]
		names := []string{at, path.Base(at)}
		if o.Record != nil {
			names = append(names, o.Record.Declaration.ID().Address)
		}
		if fits.match(names...) {
			jobs = append(jobs, report.JobStatus{Path: at, Observed: o})
		}
	}
	return jobs
}

func workerCount(jobs []report.JobStatus) int {
	n := 0
	for _, j := range jobs {
		n += max(job.Joined(&j.Observed), j.Observed.Live)
	}
	return n
}

// readWorkers returns the workers of jobs by path, and adds the restarts to jobs.
func readWorkers(ctx context.Context, r *zkstate.Reader, jobs []report.JobStatus) (map[string][]report.Worker, error) {
	all := map[string][]report.Worker{}
	for i, j := range jobs {
		o := &j.Observed
		if o.Class() == resource.Unreadable || o.Foreign || job.Joined(o)+o.Live == 0 {
			continue
		}
		if isGroup(o) || isQueue(o) {
			if err := leaveOutStrangers(ctx, r, j.Path, &jobs[i].Observed, nil); err != nil {
				return nil, err
			}
			continue
		}
		ws, err := r.Workers(ctx, j.Path)
		if err != nil {
			return nil, err
		}
		if err := leaveOutStrangers(ctx, r, j.Path, &jobs[i].Observed, ws); err != nil {
			return nil, err
		}
		restarts := 0
		for _, w := range ws {
			all[j.Path] = append(all[j.Path], reportWorker(w))
			restarts += max(0, w.Claim.Lives-1)
		}
		if !j.Observed.Classic {
			jobs[i].Restarts = &restarts
		}
	}
	return all, nil
}

// leaveOutStrangers finds the children of a job znode that are no workers, and subtracts them from those that are live.
func leaveOutStrangers(
	ctx context.Context, r *zkstate.Reader, at string, o *resource.Observed, ws []zkstate.Worker,
) error {
	live := 0
	for _, w := range ws {
		if w.Live {
			live++
		}
	}
	if live >= o.Live {
		return nil
	}
	if err := r.FillMembers(ctx, at, o); err != nil {
		return err
	}
	o.Live = max(0, o.Live-len(o.Strangers))
	return nil
}

func reportWorker(w zkstate.Worker) report.Worker {
	shown := report.Worker{ID: w.ID, Identity: w.Identity, State: workerState(w), Joined: w.Joined}
	if shown.State != report.Lost { // nothing in ZooKeeper says when a worker was lost
		shown.Since = w.Since
	}
	if w.Claim.Lives > 0 {
		restarts := w.Claim.Lives - 1
		shown.Restarts = &restarts
	}
	if w.Info.IP != "" {
		shown.Address = w.Info.Address()
	}
	switch {
	case w.Claim.Signal != "":
		shown.LastExit = w.Claim.Signal
	case w.Claim.Exit != nil:
		shown.LastExit = strconv.Itoa(*w.Claim.Exit)
	}
	return shown
}

// readBarriers returns the barriers that are under way in a job. In a job that is not being worked for none is.
func readBarriers(ctx context.Context, r *zkstate.Reader, o *resource.Observed) ([]report.Barrier, error) {
	if o.Live == 0 || o.Class() == resource.Unreadable || o.Foreign {
		return nil, nil
	}
	rounds, err := r.Rounds(ctx, o)
	var all []report.Barrier
	for _, b := range rounds {
		all = append(all, report.Barrier{
			Name: b.Name, Start: b.Name == znode.StartBarrier, Round: b.Round, Attempt: b.Attempt, Mode: string(b.Mode),
			Workers: b.Workers, Since: b.Since, Arrived: b.Arrived, Missing: b.Missing,
		})
	}
	return all, err
}

// workerState returns a worker's state. The claim of a worker that was killed still says "in".
func workerState(w zkstate.Worker) report.WorkerState {
	switch {
	case w.Live:
		return report.Live
	case w.Claim.State == znode.Done:
		return report.Completed
	case w.Claim.State == znode.In:
		return report.Lost
	}
	return report.Left
}
