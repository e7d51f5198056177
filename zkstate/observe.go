package zkstate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"muster/plan"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// secondLooks bounds how often a job that keeps changing under the reads is read again.
const secondLooks = 5

// observe reads one job; nil is missing. What a commit would act upon destructively, and what looks damaged, is read
// until it reads the same twice: a job read in the middle of somebody's transaction looks like either. One that changes under
// every look is given as last read; no commit can act on it, since its facts have moved again.
func (r *Reader) observe(ctx context.Context, jobPath string, companions []string) (*plan.Observed, error) {
	o, err := r.observeOnce(ctx, jobPath, companions)
	for range secondLooks {
		if err != nil || !doubtful(o) {
			return o, err
		}
		var next *plan.Observed
		if err = r.session.Sync(ctx, jobPath); err != nil {
			return nil, err
		}
		next, err = r.observeOnce(ctx, jobPath, companions)
		if err == nil && next != nil && next.Equal(*o) {
			return next, nil
		}
		o = next
	}
	return o, err
}

// doubtful reports whether o must be seen twice.
func doubtful(o *plan.Observed) bool {
	switch o.Status() {
	case plan.Stale, plan.Completed, plan.Unreadable, plan.Foreign:
		return true
	}
	return false
}

// observeOnce reads the facts of one job in the order of the design: the Record, its generation, who joined and who
// completed, and the job znode last, so that a worker that joins or completes in between can only make the job
// look more alive than it is counted.
func (r *Reader) observeOnce(ctx context.Context, jobPath string, companions []string) (*plan.Observed, error) {
	recordPath := znode.Record(split(jobPath))
	body, stat, err := r.session.Get(ctx, recordPath)
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return r.observeLoose(ctx, jobPath, companions)
	case errors.Is(err, zkconn.ErrNoAuth):
		return &plan.Observed{Companions: companions, Problem: "no permission to read " + recordPath}, nil
	case err != nil:
		return nil, err
	}
	rec, err := znode.DecodeRecordAt(jobPath, body)
	switch {
	case errors.Is(err, znode.ErrFormat):
		return &plan.Observed{Companions: companions, RecordVersion: stat.Version, Problem: fmt.Sprintf("%s: %v", recordPath, err)}, nil
	case err != nil:
		return &plan.Observed{Companions: companions, RecordVersion: stat.Version, Problem: fmt.Sprintf("%s is damaged: %v", recordPath, err)}, nil
	}
	o := &plan.Observed{Record: &rec, RecordVersion: stat.Version, Companions: companions}
	return o, r.count(ctx, jobPath, o)
}

// count fills in who joined, who completed and who is live.
func (r *Reader) count(ctx context.Context, jobPath string, o *plan.Observed) error {
	root, _ := split(jobPath)
	g := o.Record.Generation
	run, exists, err := r.session.Exists(ctx, znode.Run(root, g))
	if err != nil {
		return err
	}
	if err := r.countJoined(ctx, run, exists, o); err != nil {
		return err
	}
	stat, exists, err := r.session.Exists(ctx, jobPath)
	if err != nil {
		return err
	}
	if !exists {
		o.Problem = "there is a record but no job znode"
		return nil
	}
	o.Version, o.Pzxid, o.Live = stat.Version, stat.Pzxid, int(stat.NumChildren)
	return nil
}

// countJoined reads what the children of run/<g> tell. A generation starts with its gate alone; the first worker to join adds
// id, by, end and barrier in one transaction. Any other count means that somebody else was here.
func (r *Reader) countJoined(ctx context.Context, run zkconn.Stat, exists bool, o *plan.Observed) error {
	const justGate, joined = 1, 5
	root, g := o.Record.Job.Root, o.Record.Generation
	if exists && run.NumChildren == justGate {
		return nil
	}
	if exists && run.NumChildren != joined {
		var err error
		if _, exists, err = r.session.Exists(ctx, znode.Gate(root, g)); err != nil {
			return err
		}
	}
	if !exists {
		o.Problem = "the record names a generation whose gate is gone: " + znode.Gate(root, g)
		return nil
	}
	ids, _, err := r.session.Exists(ctx, znode.IDs(root, g))
	if err != nil {
		return err
	}
	end, _, err := r.session.Exists(ctx, znode.End(root, g))
	if err != nil {
		return err
	}
	o.Joined = min(o.Record.Job.Workers, int(ids.NumChildren))
	o.Done = min(o.Record.Job.Workers, int(end.NumChildren))
	return nil
}

// observeLoose reads a znode without a Record: classic, foreign or missing.
func (r *Reader) observeLoose(ctx context.Context, jobPath string, companions []string) (*plan.Observed, error) {
	body, _, err := r.session.Get(ctx, jobPath)
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return nil, nil
	case errors.Is(err, zkconn.ErrNoAuth):
		return &plan.Observed{Companions: companions, Problem: "no permission to read " + jobPath}, nil
	case err != nil:
		return nil, err
	}
	children, stat, err := r.session.Children(ctx, jobPath)
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return nil, nil
	case errors.Is(err, zkconn.ErrNoAuth):
		return &plan.Observed{Companions: companions, Problem: "no permission to list " + jobPath}, nil
	case err != nil:
		return nil, err
	}
	o := &plan.Observed{Companions: companions, Version: stat.Version, Pzxid: stat.Pzxid, Live: len(children)}
	_, joined, problems := znode.DecodeRoll(body)
	classic := znode.LooksClassic(body, children)
	if !classic && len(body) == 0 {
		if classic, err = r.hasCounter(ctx, companions); err != nil {
			return nil, err
		}
	}
	switch {
	case classic:
		o.Classic, o.Joined = true, len(joined)
	case znode.LooksClassic(nil, children):
		o.Problem = "its roll is damaged: " + strings.Join(problems, "; ")
	default:
		o.Foreign, o.Problem = true, "it has no record and holds no roll"
	}
	return o, nil
}

// hasCounter tells a classic job whose first worker is only about to join from any other empty znode: classic workers make
// their counter of ids, four bytes, before anything else.
func (r *Reader) hasCounter(ctx context.Context, companions []string) (bool, error) {
	for _, c := range companions {
		if !strings.HasSuffix(c, "-dai-for-worker-id") && !strings.HasSuffix(c, "-dai") {
			continue
		}
		_, stat, err := r.session.Get(ctx, c)
		switch {
		case errors.Is(err, zkconn.ErrNoNode), errors.Is(err, zkconn.ErrNoAuth):
		case err != nil:
			return false, err
		case stat.DataLength == 4:
			return true, nil
		}
	}
	return false, nil
}
