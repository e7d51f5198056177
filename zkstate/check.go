package zkstate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"muster/job"
	"muster/plan"
)

// Check reads the job of r again and says whether r may be committed: nil, plan.ErrAlreadyDone, or plan.ErrMoved with
// what changed. It writes nothing.
//
// A delete or a replace needs every fact unchanged. An update touches only the Record, so workers may come and go.
func (s *Store) Check(ctx context.Context, row plan.Row) error {
	now, err := s.again(ctx, row.Path, row.Old)
	if err != nil {
		return err
	}
	switch row.Action() {
	case plan.Create:
		return s.checkCreate(row, now)
	case plan.Update:
		return checkUpdate(row, now)
	case plan.Delete:
		if now == nil {
			return fmt.Errorf("%w: the job is gone", plan.ErrAlreadyDone)
		}
	}
	if now == nil {
		return fmt.Errorf("%w: the job is gone", plan.ErrMoved)
	}
	if now.Equal(*row.Old) {
		return nil
	}
	s.nameLive(ctx, row.Path, now)
	return moved(row.Old, now)
}

// checkCreate: a job that exists exactly as declared, ready and ours, is what was wanted.
func (s *Store) checkCreate(row plan.Row, now *plan.Observed) error {
	switch {
	case now == nil:
		return nil
	case now.Status() == plan.Ready && now.Record != nil && now.Record.Stack == s.cfg.Stack && len(job.Changes(now.Record.Job, *row.New)) == 0:
		return fmt.Errorf("%w: the job exists, ready and as declared", plan.ErrAlreadyDone)
	}
	what := fmt.Sprintf("the job exists now (%s)", now.Status())
	if rec := now.Record; rec != nil {
		what += ", applied" + by(rec)
		if rec.Stack != s.cfg.Stack {
			what += " for stack " + rec.Stack
		}
	}
	return fmt.Errorf("%w: %s", plan.ErrMoved, what)
}

func checkUpdate(row plan.Row, now *plan.Observed) error {
	old := row.Old
	switch {
	case now == nil:
		return fmt.Errorf("%w: the job is gone", plan.ErrMoved)
	case now.Record == nil || now.Problem != "":
		return moved(old, now)
	case now.Record.Generation != old.Record.Generation, now.RecordVersion != old.RecordVersion:
		return moved(old, now)
	}
	return nil
}

// moved says what changed, and by whom if the record tells.
func moved(old, now *plan.Observed) error {
	var what []string
	add := func(format string, args ...any) { what = append(what, fmt.Sprintf(format, args...)) }
	switch {
	case now.Problem != "":
		add("%s", now.Problem)
	case now.Record != nil && old.Record == nil:
		add("the job was made anew%s", by(now.Record))
	case now.Record != nil && (now.Record.Generation != old.Record.Generation || now.RecordVersion != old.RecordVersion):
		add("%s", recordMoved(*old.Record, *now.Record))
	}
	switch {
	case now.Live > old.Live && len(now.Workers) > 0:
		add("a worker joined: %s", strings.Join(first(now.Workers, 3), ", "))
	case now.Live != old.Live:
		add("live %d -> %d", old.Live, now.Live)
	}
	if now.Joined != old.Joined {
		add("joined %d -> %d", old.Joined, now.Joined)
	}
	if now.Done != old.Done {
		add("completed %d -> %d", old.Done, now.Done)
	}
	if len(what) == 0 && now.Pzxid != old.Pzxid {
		add("a worker joined and left")
	}
	if len(what) == 0 {
		add("its znode was changed")
	}
	return fmt.Errorf("%w: %s", plan.ErrMoved, strings.Join(what, "; "))
}

// recordMoved says what became of a record. Only applies sign it: who edits it, asks workers to stop or completes a run leaves the
// name of the last apply there.
func recordMoved(old, now job.Record) string {
	var fields []string
	if now.Stack != old.Stack {
		fields = append(fields, "stack "+old.Stack+" -> "+now.Stack)
	}
	for _, c := range job.Changes(old.Job, now.Job) {
		fields = append(fields, fmt.Sprintf("%s %s -> %s", c.Name, orNone(c.Old), orNone(c.New)))
	}
	signed := now.By != old.By || now.Applied != old.Applied
	what := "its record was changed"
	switch {
	case now.Edited():
		what = "its record was edited, not by muster"
	case now.State == job.Terminating && old.State != now.State:
		what = "its workers were asked to stop"
	case now.Generation != old.Generation && !signed && now.Last != nil && now.Last.Generation == old.Generation:
		what = "a run was completed at " + now.Last.Completed
	case now.Generation != old.Generation:
		what = "the job was made anew" + by(&now)
	case signed || now.Op != old.Op && len(fields) > 0:
		what += by(&now)
	}
	if len(fields) > 0 {
		what += ": " + strings.Join(first(fields, 3), ", ")
	}
	return what
}

func orNone(value *string) string {
	if value == nil {
		return "none"
	}
	return *value
}

func by(rec *job.Record) string {
	if rec == nil || rec.By == "" {
		return ""
	}
	return fmt.Sprintf(" by %s at %s", rec.By, rec.Applied)
}

// nameLive names who is live for a message; without names the message counts.
func (r *Reader) nameLive(ctx context.Context, path string, o *plan.Observed) {
	if err := r.Name(ctx, path, o); err != nil && !errors.Is(err, context.Canceled) {
		o.Workers = nil
	}
}

// first is the first n names and how many more there are.
func first(names []string, n int) []string {
	if len(names) <= n {
		return names
	}
	return append(append([]string(nil), names[:n]...), fmt.Sprintf("%d more", len(names)-n))
}
