// Package status turns what zkstate reads into the structs that package report shows: what status, explain and the page
// say of jobs, groups and queues. It only reads, and it does not decide what is shown or how.
package status

import (
	"context"
	"errors"
	"strconv"

	"muster/report"
	"muster/resource"
	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// MaxCounted limits the counting of restarts, which takes three reads a worker. A table of more workers has none.
const MaxCounted = 1000

// RunsInJSON is how many runs of each cron the JSON of a group has.
const RunsInJSON = 5

// Members counts those who are or were in these jobs, groups and queues. It is what MaxCounted limits.
func Members(all []report.JobStatus) int {
	n := 0
	for _, j := range all {
		n += max(job.Joined(&j.Observed), j.Observed.Live)
	}
	return n
}

// Restarts adds the restarts to jobs, and takes strangers out of those who are live, unless there are too many. A job
// whose workers may not be read, or do not fit into a reply, is unreadable; the others are as they are.
func Restarts(ctx context.Context, r *zkstate.Reader, all []report.JobStatus) error {
	if Members(all) > MaxCounted {
		return nil
	}
	for i := range all {
		_, err := Workers(ctx, r, &all[i])
		switch {
		case errors.Is(err, zkconn.ErrNoAuth), errors.Is(err, zkconn.ErrTooLarge):
			all[i].Observed.Problem = err.Error()
		case err != nil:
			return err
		}
	}
	return nil
}

// Workers returns the workers of a job, and adds the restarts to it. A group or a queue has none. What is counted as
// live, but is no member, is subtracted.
func Workers(ctx context.Context, r *zkstate.Reader, j *report.JobStatus) ([]report.Worker, error) {
	o := &j.Observed
	if o.Class() == resource.Unreadable || o.Foreign || job.Joined(o)+o.Live == 0 {
		return nil, nil
	}
	if IsGroup(o) || IsQueue(o) {
		return nil, leaveOutStrangers(ctx, r, j.Path, o, nil)
	}
	found, more, err := r.MostWorkers(ctx, j.Path)
	if err != nil {
		return nil, err
	}
	j.MoreWorkers = more
	if err := leaveOutStrangers(ctx, r, j.Path, o, found); err != nil {
		return nil, err
	}
	var all []report.Worker
	restarts := 0
	for _, w := range found {
		all = append(all, Worker(w))
		restarts += max(0, w.Claim.Lives-1)
	}
	if !o.Classic {
		j.Restarts = &restarts
	}
	return all, nil
}

// Detail adds to j everything that a status of j alone shows: the barriers of a job, who is in a group or a queue and
// what they do. It returns the workers of a job. With ages the report changes as time passes; runs is how many are read
// of each cron.
func Detail(
	ctx context.Context, r *zkstate.Reader, s zkstate.Source, j *report.JobStatus, ages bool, runs int,
) (workers []report.Worker, err error) {
	if workers, err = Workers(ctx, r, j); err != nil {
		return nil, err
	}
	switch o := &j.Observed; {
	case IsGroup(o):
		if j.Group, err = Group(ctx, r, o, ages); err == nil {
			err = Runs(ctx, s, o, j.Group.Duties, runs)
		}
	case IsQueue(o):
		j.Queue, err = Queue(ctx, r, o, ages)
	default:
		j.Barriers, err = Barriers(ctx, r, o)
	}
	return workers, err
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

// Worker is a worker as reports show it.
func Worker(w zkstate.Worker) report.Worker {
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

// Barriers returns the barriers that are under way in a job. In a job that is not being worked for none is.
func Barriers(ctx context.Context, r *zkstate.Reader, o *resource.Observed) ([]report.Barrier, error) {
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
