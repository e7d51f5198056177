package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The roll is the body of <job>: every worker by id, with its address at that time. It is written once, as version 1,
// by the last worker to join, before it leaves. If that process dies before it, any worker that joins again and finds
// the job full and the roll empty writes it. A roll that does not fit is not written: the Record then says so, and
// peers are looked up by id. A worker whose WorkerInfo cannot be read, or does not fit into the format, is in it with
// its id alone.

// writeRoll writes the roll if all have joined and nobody has written it. It is content if another worker does
// meanwhile.
func (m *Member) writeRoll(ctx context.Context) error {
	for {
		written, err := m.rollWritten(ctx)
		if err != nil || written {
			return err
		}
		body, err := m.makeRoll(ctx)
		if errors.Is(err, ErrNoWorker) {
			return nil // not all have joined: the last to do so writes it
		}
		if errors.Is(err, znode.ErrRollTooLarge) {
			return m.recordNoRoll(ctx)
		}
		if err != nil {
			return err
		}
		_, err = m.write(ctx, zkconn.SetOp(m.Job.Path(), body, 0))
		if err == nil {
			return nil
		}
		if err = m.mayRetry(ctx, err, zkconn.ErrBadVersion); err != nil {
			return fmt.Errorf("the roll: %w", err)
		}
	}
}

func (m *Member) rollWritten(ctx context.Context) (bool, error) {
	stat, exists, err := m.session.Exists(ctx, m.Job.Path())
	if err == nil && !exists {
		err = m.generationEnded()
	}
	return stat.Version > 0, err
}

// makeRoll is ErrNoWorker while somebody is missing.
func (m *Member) makeRoll(ctx context.Context) ([]byte, error) {
	if _, err := m.Lookup(ctx, m.Job.Workers-1); err != nil {
		return nil, err
	}
	joined, err := m.Joined(ctx)
	if err != nil {
		return nil, err
	}
	ws := make([]znode.Worker, len(joined))
	for i, w := range joined {
		ws[i] = w.Worker
		if _, err := znode.EncodeRoll(m.Job.RollFormat, ws[i:i+1]); err != nil { // a program of somebody else wrote it
			ws[i] = znode.Worker{ID: w.ID}
		}
	}
	return znode.EncodeRoll(m.Job.RollFormat, ws)
}

// recordNoRoll notes in the Record that the roll of this generation is too large for one znode.
func (m *Member) recordNoRoll(ctx context.Context) error {
	path := znode.Record(job.KindName, m.Job.Root, m.Job.Name)
	for {
		body, stat, err := m.session.Get(ctx, path)
		if err != nil {
			return err
		}
		rec, err := znode.DecodeRecordAt(job.Kind(), m.Job.Path(), body)
		if err != nil || rec.Generation != m.Generation || job.NoRoll(&rec) == m.Generation {
			return err
		}
		if err := job.SetNoRoll(&rec, m.Generation); err != nil {
			return err
		}
		ops, err := zkstate.SetRecordOps(rec, stat.Version)
		if err != nil {
			return err
		}
		_, err = m.write(ctx, ops...)
		if err == nil {
			return nil
		}
		if err = m.mayRetry(ctx, err, zkconn.ErrBadVersion); err != nil {
			return fmt.Errorf("the record: %w", err)
		}
	}
}

// mayRetry is nil if a caller whose transaction failed with err should read and decide again: after a refusal that is
// one of expected, and after a lost reply, as soon as its outcome can be read.
func (m *Member) mayRetry(ctx context.Context, err error, expected ...error) error {
	switch {
	case errors.Is(err, ErrFenced):
		return err
	case errors.Is(err, zkconn.ErrUnknown):
		return m.session.Settled(ctx)
	}
	for _, e := range expected {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// awaitRoll waits before a member leaves until it has tried to write the roll, if that is up to it, but for at most
// half of the time that is left.
func (m *Member) awaitRoll(ctx context.Context) {
	if m.rollTried == nil {
		return
	}
	limit := rollWait
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-m.rollTried:
	case <-timer.C:
	case <-ctx.Done():
	case <-m.ctx.Done():
	}
}

// rollWait is how long Roll waits for a roll once all have joined: the worker that should write it may have died.
const rollWait = 10 * time.Second

// Roll waits until all N workers have joined, and returns them by id, each with the address that it had then. It
// costs one read of what the last worker to join has written. If that is too large, or was never written, it is what
// Joined returns.
func (m *Member) Roll(ctx context.Context) ([]Worker, error) {
	if err := m.WaitAll(ctx); err != nil {
		return nil, err
	}
	patience, cancel := context.WithTimeout(ctx, rollWait)
	defer cancel()
	var changed <-chan struct{}
	for {
		body, stat, err := m.session.Get(ctx, m.Job.Path())
		if err != nil {
			return nil, fmt.Errorf("the roll: %w", m.whyMissing(err))
		}
		if stat.Version > 0 || patience.Err() != nil {
			return m.readRoll(ctx, body)
		}
		none, err := m.noRoll(ctx)
		if err == nil && none {
			return m.Joined(ctx)
		}
		if err == nil {
			_, stat, changed, err = m.session.GetW(ctx, m.Job.Path())
		}
		if err != nil {
			return nil, fmt.Errorf("the roll: %w", m.whyMissing(err))
		}
		if stat.Version > 0 {
			continue
		}
		select {
		case <-changed:
		case <-patience.Done():
		case <-m.ctx.Done():
			return nil, context.Cause(m.ctx)
		}
	}
}

// readRoll reads a roll. It falls back on Joined for one that no worker of muster can have written.
func (m *Member) readRoll(ctx context.Context, body []byte) ([]Worker, error) {
	_, rows, odd := znode.DecodeRoll(body)
	if len(odd) > 0 || len(rows) != m.Job.Workers {
		return m.Joined(ctx)
	}
	ws := make([]Worker, len(rows))
	for i, w := range rows {
		ws[i] = Worker{Worker: w}
	}
	return ws, nil
}

// noRoll reads whether the roll of this generation was too large.
func (m *Member) noRoll(ctx context.Context) (bool, error) {
	body, _, err := m.session.Get(ctx, znode.Record(job.KindName, m.Job.Root, m.Job.Name))
	if err != nil {
		return false, err
	}
	rec, err := znode.DecodeRecordAt(job.Kind(), m.Job.Path(), body)
	return job.NoRoll(&rec) == m.Generation, err
}
