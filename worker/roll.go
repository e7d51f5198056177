package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The roll is the body of <job>: every worker by id, with its address at that time. It is written once, as version
// 1, by whoever joins as the last, before that leaves, or joins again and finds the job full and the roll empty: a process
// that dies between its join and this write leaves it to its next life, or to another's. A roll that does not fit is not
// written; the Record then says so, and peers are found by id.

// writeRoll writes the roll if all have joined and nobody has written it. That somebody else does meanwhile is as good.
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
		if err = m.again(ctx, err, zkconn.ErrBadVersion); err != nil {
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
	}
	return znode.EncodeRoll(m.Job.RollFormat, ws)
}

// recordNoRoll notes in the Record that the roll of this generation is too large for one znode.
func (m *Member) recordNoRoll(ctx context.Context) error {
	path := znode.Record(m.Job.Root, m.Job.Name)
	for {
		body, stat, err := m.session.Get(ctx, path)
		if err != nil {
			return err
		}
		rec, err := znode.DecodeRecordAt(m.Job.Path(), body)
		if err != nil || rec.Generation != m.Generation || rec.NoRoll == m.Generation {
			return err
		}
		rec.NoRoll = m.Generation
		if body, err = znode.EncodeRecord(rec); err != nil {
			return err
		}
		_, err = m.write(ctx, zkconn.SetOp(path, body, stat.Version))
		if err == nil {
			return nil
		}
		if err = m.again(ctx, err, zkconn.ErrBadVersion); err != nil {
			return fmt.Errorf("the record: %w", err)
		}
	}
}

// again decides after a transaction of a member failed: nil means to look and decide anew. Refusals in expected are of
// that kind; so is a lost reply, once its outcome can be read.
func (m *Member) again(ctx context.Context, err error, expected ...error) error {
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

// awaitRoll lets whoever has to write the roll do so before it leaves, but not for longer than half of the time that there is.
func (m *Member) awaitRoll(ctx context.Context) {
	if m.rolled == nil {
		return
	}
	limit := unwritten
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-m.rolled:
	case <-timer.C:
	case <-ctx.Done():
	case <-m.ctx.Done():
	}
}

// unwritten is how long Roll waits for a roll once all have joined: whoever was to write it may have died.
const unwritten = 10 * time.Second

// Roll returns all N workers by id, each under the address that it had when all had joined; it waits until all have joined. It
// costs one read, of what the last to join has written. Only where that is too large, or was never written, it is Joined.
func (m *Member) Roll(ctx context.Context) ([]Worker, error) {
	if err := m.WaitAll(ctx); err != nil {
		return nil, err
	}
	patience, cancel := context.WithTimeout(ctx, unwritten)
	defer cancel()
	var changed <-chan struct{}
	for {
		body, stat, err := m.session.Get(ctx, m.Job.Path())
		if err != nil {
			return nil, fmt.Errorf("the roll: %w", m.gone(err))
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
			return nil, fmt.Errorf("the roll: %w", m.gone(err))
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

// readRoll falls back on Joined for what no worker of muster writes.
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

// noRoll reads whether the roll of this generation did not fit.
func (m *Member) noRoll(ctx context.Context) (bool, error) {
	body, _, err := m.session.Get(ctx, znode.Record(m.Job.Root, m.Job.Name))
	if err != nil {
		return false, err
	}
	rec, err := znode.DecodeRecordAt(m.Job.Path(), body)
	return rec.NoRoll == m.Generation, err
}
