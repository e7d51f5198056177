package status

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/member"
	"muster/report"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/group/schedule"
	"muster/zkstate"
)

// IsGroup reports whether o has the Record of a group.
func IsGroup(o *resource.Observed) bool {
	return o != nil && o.Record != nil && o.Record.Declaration.Kind().Name == group.KindName
}

// Group reads the members and duties of a group for its report, without the runs of crons. With ages the report
// changes as time passes.
func Group(ctx context.Context, r *zkstate.Reader, o *resource.Observed, ages bool) (*report.GroupDetail, error) {
	s, err := r.GroupState(ctx, o)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	d := &report.GroupDetail{Assigner: s.Assigner, Waiting: s.Waiting, Unread: s.Unread}
	d.Passed = s.Passed
	// The next member takes the office within two session timeouts.
	if limit := 3 * time.Duration(group.Of(o.Record).Timeouts.Session); !s.Undecided.IsZero() &&
		now.Sub(s.Undecided) > limit {
		d.Silent = &s.Undecided
	}
	if ages {
		d.Now = now
	}
	for _, m := range s.Members {
		d.Members = append(d.Members, report.Member{
			Identity: m.Identity, Version: m.Version, Address: m.Address, Since: m.Since, Ready: m.Ready, Seat: m.Seat,
			Duties: m.Duties, Can: m.Can,
		})
	}
	d.Duties = []report.Duty{}
	for _, duty := range s.Duties {
		d.Duties = append(d.Duties, reportDuty(duty, now))
	}
	for _, q := range s.Requests {
		shown := report.GroupRequest{Duty: q.Duty, Since: q.Since}
		switch {
		case q.Ask != nil:
			shown.What, shown.To, shown.By = string(q.Ask.Do), q.Ask.To, q.Ask.By
		case q.Resignation != nil:
			shown.What, shown.By, shown.Because = "resigned", q.Resignation.Identity, q.Resignation.Because
		}
		d.Requests = append(d.Requests, shown)
	}
	return d, nil
}

// reportDuty is a duty as reports show it; now is for the next tick of a cron.
func reportDuty(d zkstate.DutyState, now time.Time) report.Duty {
	shown := report.Duty{
		Declared: d.Duty, Name: d.Name, Type: d.Type, Given: d.Given, Why: d.Why, PausedBy: d.PausedBy,
		Pinned: d.Pinned, Leaving: d.Leaving, Epoch: d.Epoch,
	}
	if h := d.Holder; h != nil {
		shown.Holder, shown.Version, shown.Address, shown.Since = h.Identity, h.Version, h.Address, &d.Since
		if shown.Holder == "" {
			shown.Holder = "?" // its znode cannot be decoded
		}
	}
	for _, f := range d.Failures {
		shown.Failures = append(shown.Failures, report.DutyFailure(f))
	}
	if s, err := schedule.Parse(d.Schedule, d.Timezone); d.Type == group.Cron && err == nil && d.PausedBy == "" {
		if next, ok := s.Next(now); ok {
			shown.NextTick = &next
		}
	}
	return shown
}

// Runs adds the last runs of the crons among these duties, at most n of each.
func Runs(ctx context.Context, s zkstate.Source, o *resource.Observed, duties []report.Duty, n int) error {
	const atOnce = 64
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(atOnce)
	for i := range duties {
		if duties[i].Type != group.Cron {
			continue
		}
		reading.Go(func() error {
			runs, err := member.Runs(ctx, s, o.Record.Declaration.ID().Root, o.Record.Generation, duties[i].Name, n)
			for _, r := range runs {
				duties[i].Runs = append(duties[i].Runs, reportRun(r))
			}
			return err
		})
	}
	return reading.Wait()
}

// reportRun is a run as reports show it.
func reportRun(r member.RunRecord) report.DutyRun {
	given := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return report.DutyRun{
		Tick: given(r.Tick), Asked: r.Asked, State: string(r.State), By: r.By, Started: given(r.Started),
		Ended: given(r.Ended), Exit: r.Exit, Attempt: r.Attempt, AskedBy: r.AskedBy, Because: r.Because, Count: r.Count,
		More: r.More,
	}
}
