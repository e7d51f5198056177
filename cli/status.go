package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/member"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/tasks"
	"muster/text"
	"muster/view"
	"muster/zkstate"
)

type statusOptions struct {
	searchFlags
	watch, json bool
}

const lookElsewhere = "--root PATH, or -f DIR with the configuration"

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
			return p.look(cmd.Context(), o.searchFlags, pattern, o.run)
		},
	}
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "show it again whenever it changes, until interrupted")
	cmd.Flags().BoolVar(&o.json, "json", false, "as JSON")
	p.addSearch(cmd, &o.searchFlags, p.completeJob(&o.searchFlags))
	return cmd
}

func (o statusOptions) run(ctx context.Context, p *process, scope *searchScope, pattern string) error {
	if strings.HasPrefix(pattern, "/") && !isGlob(pattern) {
		scope.roots, scope.paths = []string{path.Dir(pattern)}, []string{pattern}
	}
	return p.watch(ctx, scope, o.watch, o.json, func(to, notes io.Writer) error {
		return o.show(ctx, p, to, notes, scope, pattern)
	})
}

func (o statusOptions) show(
	ctx context.Context, p *process, to, notes io.Writer, scope *searchScope, pattern string,
) error {
	r := scope.reader()
	have, err := r.Read(ctx, scope.roots, scope.paths...)
	if err != nil {
		return err
	}
	jobs := selectJobs(have, pattern)
	if pattern != "" && len(jobs) == 0 {
		err := fmt.Errorf("no job, group or queue %q below %s", pattern, strings.Join(scope.roots, ", "))
		return scope.absent(ctx, err, "", pattern, "muster status shows all", scope.names("", have))
	}
	detail := pattern != "" && !isGlob(pattern) && len(jobs) == 1
	if err := o.fill(ctx, r, scope.session, jobs, detail); err != nil {
		return err
	}
	last, unread, err := scope.lastApplies(ctx, r, jobs)
	if err != nil {
		return err
	}
	opts := p.layout()
	if !o.watch || isTerminal(p.out) { // without ages a pipe gets a block only when something happens
		opts.Now = time.Now()
	}
	switch {
	case o.json:
		err = report.StatusJSON(to, jobs, last...)
	case detail:
		err = report.Detail(to, jobs[0], opts)
	case len(jobs) == 0:
		fmt.Fprintf(to, "No jobs or groups below %s.\n", strings.Join(scope.roots, ", "))
		if scope.cfg == nil && cmp.Or(o.root, p.environ.value("MUSTER_ROOT")) == "" { // no root is named
			fmt.Fprintf(notes, "  next: %s\n", lookElsewhere)
		}
	default:
		err = errors.Join(report.Status(to, jobs, opts), report.LastApplies(to, last, opts))
		held, unheld := scope.held(ctx, r, last)
		for _, line := range held {
			fmt.Fprintln(to, text.Escape(line))
		}
		err = errors.Join(err, unheld)
	}
	if err != nil {
		return err
	}
	for _, stack := range unread {
		fmt.Fprintf(notes, "no permission to read the history of stack %s\n", text.Escape(stack))
	}
	return reportUnread(notes, have.Unlisted, scope.unindexed, jobs)
}

// fill reads what a status shows besides what was observed: of the one job, group or queue that is shown in detail
// everything, else the restarts.
func (o statusOptions) fill(
	ctx context.Context, r *zkstate.Reader, s zkstate.Source, jobs []view.Resource, detail bool,
) error {
	if !detail {
		return r.FillRestarts(ctx, jobs)
	}
	one := &jobs[0]
	err := r.FillDetail(ctx, one, time.Now())
	if err != nil || one.Group == nil {
		return err
	}
	runs := 1 // of a cron
	if o.json {
		runs = member.AllRuns
	}
	return member.FillRuns(ctx, s, one.Observed.Record, one.Group.Duties, runs)
}

// reportUnread prints which roots could not be listed. What could not be read needs attention.
func reportUnread(to io.Writer, roots []string, unindexed string, jobs []view.Resource) error {
	for _, root := range roots {
		fmt.Fprintf(to, "%s could not be listed: check the credentials in MUSTER_ZK_AUTH\n", root)
	}
	if unindexed != "" {
		fmt.Fprintf(to, "%s: jobs below a root that nothing here names are not shown\n", text.Escape(unindexed))
	}
	unreadable := func(j view.Resource) bool {
		return j.Observed.Class() == resource.Unreadable || j.Observed.Class() == resource.Damaged
	}
	if len(roots) > 0 || unindexed != "" || slices.ContainsFunc(jobs, unreadable) {
		return foundAttention
	}
	return nil
}

func isGlob(pattern string) bool { return strings.ContainsAny(pattern, "*?") }

// selectJobs returns the jobs whose path, name or recorded address matches the pattern. An empty pattern matches all.
func selectJobs(have plan.State, pattern string) []view.Resource {
	var jobs []view.Resource
	fits := newGlobs([]string{cmp.Or(pattern, "*")})
	for _, at := range slices.Sorted(maps.Keys(have.Found)) {
		o := have.Found[at]
		names := []string{at, path.Base(at)}
		if o.Record != nil {
			names = append(names, o.Record.Declaration.ID().Address)
		}
		if fits.match(names...) {
			jobs = append(jobs, view.Resource{Path: at, Observed: o})
		}
	}
	return jobs
}

// watchEvery is how often status --watch reads ZooKeeper.
const watchEvery = time.Second

// watch calls show once or, with again, whenever what it writes changes: a terminal is redrawn, a pipe gets one block
// after the other. While no server of ZooKeeper answers, it prints when it was last read. It ends with ctx or when the
// reader closes its end. Notes go to standard error or, with again, to the same place; no notes go into JSON.
func (p *process) watch(
	ctx context.Context, scope *searchScope, again, asJSON bool, show func(to, notes io.Writer) error,
) error {
	if !again {
		return show(p.out, p.err)
	}
	notes := func(to io.Writer) io.Writer {
		if asJSON {
			return io.Discard
		}
		return to
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var last, shown []byte
	var at time.Time // of last
	for p.out.err == nil {
		var now bytes.Buffer
		var found finding
		err := p.reconnect(ctx, scope)
		if err == nil {
			err = show(&now, notes(&now))
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case noAnswer(err) && last != nil:
			now.Reset()
			now.Write(last)
			fmt.Fprintf(notes(&now), "ZooKeeper does not answer. This is how it was at %s.\n",
				at.Format(time.TimeOnly))
		case err != nil && !errors.As(err, &found):
			return err
		default:
			last, at = bytes.Clone(now.Bytes()), time.Now()
		}
		if !bytes.Equal(shown, now.Bytes()) {
			p.draw(now.Bytes(), shown == nil)
			shown = now.Bytes()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// reconnect opens another session if the old one is lost.
func (p *process) reconnect(ctx context.Context, scope *searchScope) error {
	if scope.session.Context().Err() == nil {
		return nil
	}
	s, err := p.connect(ctx, scope.target)
	if err == nil {
		scope.session = s
	}
	return err
}

// reconnectSoon opens another session, however long that takes, and rests before each try. The error is why it stopped.
func (p *process) reconnectSoon(ctx context.Context, scope *searchScope, tries int) error {
	for ; ; tries++ {
		if err := tasks.Rest(ctx, tries); err != nil {
			return err
		}
		if err := p.reconnect(ctx, scope); !noAnswer(err) {
			return err
		}
	}
}

func (p *process) draw(status []byte, first bool) {
	switch {
	case isTerminal(p.out):
		fmt.Fprint(p.out, "\x1b[H\x1b[2J")
	case !first:
		fmt.Fprintln(p.out)
	}
	_, _ = p.out.Write(status)
}
