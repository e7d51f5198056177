package zkstate

import (
	"context"
	"errors"
	"strconv"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/view"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// FillRestarts adds the restarts to jobs, and takes strangers out of those who are live, unless there are too many. A
// job whose workers may not be read, or do not fit into a reply, is unreadable; the others are as they are.
func (r *Reader) FillRestarts(ctx context.Context, all []view.Resource) error {
	if view.CountMembers(all) > view.MaxCounted {
		return nil
	}
	for i := range all {
		err := r.FillWorkers(ctx, &all[i])
		all[i].Workers = nil
		switch {
		case errors.Is(err, zkconn.ErrNoAuth), errors.Is(err, zkconn.ErrTooLarge):
			all[i].Observed.Problem = err.Error()
		case err != nil:
			return err
		}
	}
	return nil
}

// FillWorkers adds its workers and their restarts to a job. A group or a queue has none. It also corrects the number of
// those who are live, of every kind: who is no member does not count.
func (r *Reader) FillWorkers(ctx context.Context, v *view.Resource) error {
	o := &v.Observed
	if o.Class() == resource.Unreadable || o.Foreign || job.Joined(o)+o.Live == 0 {
		return nil
	}
	if j := job.Of(o.Record); j.Gang != nil {
		gang, err := r.gang(ctx, o)
		if err != nil {
			return err
		}
		v.Gang = gang
	}
	live, restarts := 0, 0
	if view.IsJob(o) {
		found, more, err := r.Workers(ctx, v.Path)
		if err != nil {
			return err
		}
		v.MoreWorkers = more
		for _, w := range found {
			v.Workers = append(v.Workers, w.View())
			restarts += max(0, w.Claim.Lives-1)
			if w.Live {
				live++
			}
		}
	}
	if live < o.Live { // or they are strangers
		if err := r.FillMembers(ctx, v.Path, o); err != nil {
			return err
		}
		*o = *o.WithoutStrangers()
	}
	if view.IsJob(o) && !o.Classic {
		v.Restarts = &restarts
	}
	return nil
}

// FillDetail adds to v everything that a status of v alone shows: the workers and the barriers of a job, who is in a
// group or a queue and what they do. The runs of crons are left out.
func (r *Reader) FillDetail(ctx context.Context, v *view.Resource, now time.Time) error {
	if err := r.FillWorkers(ctx, v); err != nil {
		return err
	}
	if k, ok := r.kind(view.KindOf(&v.Observed).Name); ok && k.Detail != nil {
		return k.Detail(ctx, r, v, now)
	}
	return nil
}

// View is the worker as it is shown.
func (w Worker) View() view.Worker {
	shown := view.Worker{
		ID: w.ID, Identity: w.Identity, State: view.Left, Joined: w.Joined, Since: w.Since,
		Rack: w.Info.Node.Rack, Datacenter: w.Info.Node.Datacenter, Ports: w.Info.Ports,
	}
	switch {
	case w.Live:
		shown.State = view.Live
	case w.Claim.State == znode.Done:
		shown.State = view.Completed
	case w.Claim.State == znode.In: // it was killed before it could say that it left, and nothing says when
		shown.State, shown.Since = view.Lost, time.Time{}
	}
	if w.Claim.Lives > 0 {
		shown.Restarts = new(w.Claim.Lives - 1)
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
