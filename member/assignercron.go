package member

import (
	"context"
	"errors"
	"fmt"

	"muster/group"
	"muster/group/schedule"
	"muster/member/ticks"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// decideCrons notes which cursors the decision sets: when a pause ends, to now, in the transaction that ends it. What
// fell due meanwhile is forgotten. old is the memory as it was read.
func (f *office) decideCrons(ctx context.Context, g group.Group, old znode.AssignerMemory) error {
	for _, d := range g.Duties {
		_, was := old.Paused[d.Name]
		if _, is := f.memory.Paused[d.Name]; d.Type != group.Cron || !was || is {
			continue
		}
		if err := f.resumeCron(ctx, d); err != nil {
			return fmt.Errorf("cursor of %s: %w", d.Name, err)
		}
	}
	return nil
}

// resumeCron sets the cursor of a cron whose pause ends. There is none if nobody has had it.
func (f *office) resumeCron(ctx context.Context, d group.Duty) error {
	at := znode.Cursor(f.m.root, f.m.Generation, d.Name)
	body, stat, err := f.m.session.Get(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	cursor, err := znode.Decode[znode.TickCursor](body)
	if err != nil {
		return nil // the holder treats it as that of an edited schedule
	}
	sched, err := schedule.Parse(d.Schedule, d.Timezone)
	if err != nil {
		return err
	}
	state := ticks.Cron{Schedule: sched}.Resume(ticks.State{Cursor: ticks.Cursor(cursor)}, f.now())
	if body, err = znode.Encode(znode.TickCursor(state.Cursor)); err != nil {
		return err
	}
	f.also = append(f.also, zkconn.SetOp(at, body, stat.Version))
	return nil
}
