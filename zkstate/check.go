package zkstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/zkconn"
)

// Check reads the resource of the row again. It returns nil if the row can be committed, plan.ErrAlreadyDone, or
// plan.ErrMoved with what has changed. It writes nothing.
//
// For a delete or a replace, every fact must be unchanged. An update changes only the Record, and a repair creates only
// what is missing, so for these members may join and leave.
func (s *Store) Check(ctx context.Context, row plan.Row) error {
	_, _, err := s.check(ctx, row)
	return err
}

// check is Check; it also returns what was read, and operations which check in the transaction that nothing was saved
// since that it would delete, and that a run has neither begun nor completed.
func (s *Store) check(ctx context.Context, row plan.Row) (*resource.Observed, []zkconn.Op, error) {
	now, err := s.checkFacts(ctx, row)
	if err != nil {
		return now, nil, err
	}
	guards, err := s.checkSaved(ctx, row, now)
	if err != nil {
		return now, nil, err
	}
	run, err := s.guardRun(ctx, row, now)
	return now, append(guards, run...), err
}

// checkFacts checks everything but what members have saved.
func (s *Store) checkFacts(ctx context.Context, row plan.Row) (*resource.Observed, error) {
	now, err := s.observeAgain(ctx, row.Path, row.Old)
	if err != nil {
		return nil, err
	}
	switch row.Action() {
	case plan.Create:
		return now, s.checkCreate(row, now)
	case plan.Update:
		return now, checkUpdate(row, now)
	case plan.Delete:
		if now == nil {
			return nil, fmt.Errorf("%w: the %s is gone", plan.ErrAlreadyDone, row.Kind().Name)
		}
	}
	if now == nil {
		return nil, fmt.Errorf("%w: the %s is gone", plan.ErrMoved, row.Kind().Name)
	}
	if now.Equal(*row.Old) {
		return now, nil
	}
	s.fillMembers(ctx, row.Path, now)
	return now, moved(row, now)
}

// checkCreate returns plan.ErrAlreadyDone if the resource exists as declared, is ready, and belongs to this stack. One
// that is kept in place may have members: it would be left to them if it were there before.
func (s *Store) checkCreate(row plan.Row, now *resource.Observed) error {
	kind, class := row.Kind().Name, now.Class()
	unused := class == resource.Ready || class == resource.Idle ||
		class.IsLive() && row.New.Policy().InPlace && !now.Classic
	switch {
	case now == nil:
		return nil
	case unused && now.Record != nil && now.Record.Stack == s.cfg.Stack &&
		now.Record.Declaration.Kind().Name == kind && len(resource.Changes(now.Record.Declaration, row.New)) == 0:
		return fmt.Errorf("%w: the %s exists, %s and as declared", plan.ErrAlreadyDone, kind, now.Status())
	}
	if now.Record != nil {
		kind = now.Record.Declaration.Kind().Name
	}
	what := fmt.Sprintf("the %s exists now (%s)", kind, now.Status())
	if rec := now.Record; rec != nil {
		what += ", applied" + by(rec)
		if rec.Stack != s.cfg.Stack {
			what += " for stack " + rec.Stack
		}
	}
	return fmt.Errorf("%w: %s", plan.ErrMoved, what)
}

func checkUpdate(row plan.Row, now *resource.Observed) error {
	old := row.Old
	switch {
	case now == nil:
		return fmt.Errorf("%w: the %s is gone", plan.ErrMoved, row.Kind().Name)
	case row.Reason == plan.IsDamaged && !now.Repairable() && now.Record != nil &&
		now.Record.Generation == old.Record.Generation:
		return fmt.Errorf("%w: nothing is missing any more", plan.ErrAlreadyDone)
	case now.Record == nil || now.Problem != "" || !slices.Equal(now.Lost, old.Lost):
		return moved(row, now)
	case now.Record.Generation != old.Record.Generation, now.RecordVersion != old.RecordVersion:
		return moved(row, now)
	}
	return nil
}

// moved is plan.ErrMoved with what has changed, and by whom if the Record shows it.
func moved(row plan.Row, now *resource.Observed) error {
	old, kind := row.Old, row.Kind()
	var what []string
	add := func(format string, args ...any) { what = append(what, fmt.Sprintf(format, args...)) }
	switch {
	case now.Problem != "":
		add("%s", now.Problem)
	case now.Record != nil && old.Record == nil:
		add("the %s was made anew%s", kind.Name, by(now.Record))
	case !slices.Equal(now.Lost, old.Lost):
		add("parts of it were deleted by hand, or put back")
	case now.Record != nil &&
		(now.Record.Generation != old.Record.Generation || now.RecordVersion != old.RecordVersion):
		add("%s", recordMoved(*old.Record, *now.Record))
	}
	switch {
	case now.Live > old.Live && len(now.Members) > 0:
		add("a %s joined: %s", kind.Member, strings.Join(firstNames(now.Members, 3), ", "))
	case now.Live != old.Live:
		add("live %d -> %d", old.Live, now.Live)
	}
	for _, c := range kind.Counts {
		if now.Count(c.Name) != old.Count(c.Name) {
			add("%s %d -> %d", c.Word, old.Count(c.Name), now.Count(c.Name))
		}
	}
	if len(what) == 0 && now.Pzxid != old.Pzxid {
		add("a %s joined and left", kind.Member)
	}
	if len(what) == 0 {
		add("its znode was changed")
	}
	return fmt.Errorf("%w: %s", plan.ErrMoved, strings.Join(what, "; "))
}

// recordMoved says how a Record was changed. Only an apply writes By and Applied: an edit, a request to stop and the
// end of a run keep those of the last apply.
func recordMoved(old, now resource.Record) string {
	var fields []string
	if now.Stack != old.Stack {
		fields = append(fields, "stack "+old.Stack+" -> "+now.Stack)
	}
	for _, c := range resource.Changes(old.Declaration, now.Declaration) {
		fields = append(fields, fmt.Sprintf("%s %s -> %s", c.Name, orNone(c.Old), orNone(c.New)))
	}
	applied := now.By != old.By || now.Applied != old.Applied
	what := "its record was changed"
	lastRun := job.LastRun(&now)
	switch {
	case now.Edited():
		what = "its record was edited, not by muster"
	case now.State == resource.StateTerminating && old.State != now.State:
		what = "its " + now.Declaration.Kind().Member + "s were asked to stop"
	case now.Generation != old.Generation && !applied && lastRun != nil && lastRun.Generation == old.Generation:
		what = "a run was completed at " + lastRun.Completed
	case now.Generation != old.Generation:
		what = "the " + now.Declaration.Kind().Name + " was made anew" + by(&now)
	case applied || now.Op != old.Op && len(fields) > 0:
		what += by(&now)
	}
	if len(fields) > 0 {
		what += ": " + strings.Join(firstNames(fields, 3), ", ")
	}
	return what
}

func orNone(value *string) string {
	if value == nil {
		return "none"
	}
	return *value
}

func by(rec *resource.Record) string {
	if rec == nil || rec.By == "" {
		return ""
	}
	return fmt.Sprintf(" by %s at %s", rec.By, rec.Applied)
}

// fillMembers fills o.Members for a message. After an error they are empty, and the message has only the count.
func (r *Reader) fillMembers(ctx context.Context, path string, o *resource.Observed) {
	if err := r.FillMembers(ctx, path, o); err != nil && !errors.Is(err, context.Canceled) {
		o.Members = nil
	}
}

// firstNames is the first n names, and how many more there are.
func firstNames(names []string, n int) []string {
	if len(names) <= n {
		return names
	}
	return append(append([]string(nil), names[:n]...), fmt.Sprintf("%d more", len(names)-n))
}
