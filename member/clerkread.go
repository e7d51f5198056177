package member

import (
	"context"
	"errors"
	"maps"

	"golang.org/x/sync/errgroup"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// maxReads is how many reads of the clerk are under way at once.
const maxReads = 64

// read reads the seats, the clerk's memory and its inboxes. It returns an event for each of the three folders.
func (f *office) read(ctx context.Context) (events [3]<-chan struct{}, err error) {
	m := f.m
	var names [3][]string
	for i, dir := range []string{
		znode.Seats(m.root, m.Generation), znode.Resigned(m.root, m.Generation), znode.Asks(m.root, m.Generation),
	} {
		if names[i], _, events[i], err = m.session.ChildrenW(ctx, dir); err != nil {
			return events, err
		}
	}
	if err := f.readSeats(ctx, m.seatQueue().InOrder(names[0])); err != nil {
		return events, err
	}
	f.resigned, f.asks, f.broken = map[string]znode.Resignation{}, map[string]znode.Ask{}, nil
	for _, name := range names[1] {
		if err := readInbox(ctx, f, resource.Join(znode.Resigned(m.root, m.Generation), name), znode.DecodeResignation,
			f.resigned); err != nil {
			return events, err
		}
	}
	for _, name := range names[2] {
		if err := readInbox(ctx, f, resource.Join(znode.Asks(m.root, m.Generation), name), znode.DecodeAsk,
			f.asks); err != nil {
			return events, err
		}
	}
	body, stat, err := m.session.Get(ctx, znode.Clerk(m.root, m.Generation))
	if err != nil {
		return events, err
	}
	f.version = stat.Version
	if f.memory, err = znode.DecodeClerk(body); err != nil {
		f.memory = znode.ClerkMemory{} // somebody wrote it by hand; a clerk can begin with nothing
	}
	return events, nil
}

// readInbox reads one entry of an inbox into all. An entry that cannot be read is deleted with the next decision.
func readInbox[T any](
	ctx context.Context, f *office, path string, decode func([]byte) (T, error), all map[string]T,
) error {
	body, _, err := f.m.session.Get(ctx, path)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	entry, err := decode(body)
	if err != nil {
		f.broken = append(f.broken, path)
		return nil
	}
	all[path] = entry
	return nil
}

// readSeats reads the seats that are new, and the members that were not ready. Only a clerk writes seats, so the others
// are as this clerk wrote them.
func (f *office) readSeats(ctx context.Context, queue []string) error {
	there := map[string]bool{}
	for _, name := range queue {
		there[name] = true
	}
	maps.DeleteFunc(f.seats, func(name string, _ *seated) bool { return !there[name] })
	var todo []string
	for _, name := range queue {
		if s := f.seats[name]; s == nil || s.present == nil || !s.present.Ready {
			todo = append(todo, name)
		}
	}
	found := make([]*seated, len(todo))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxReads)
	for i, name := range todo {
		g.Go(func() (err error) {
			found[i], err = f.readSeat(gctx, name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, name := range todo {
		if found[i] == nil {
			delete(f.seats, name)
			continue
		}
		if old := f.seats[name]; found[i].ready != nil && (old == nil || old.ready != found[i].ready) {
			f.m.tasks.Go(func() { f.wakeAt(ctx, found[i].ready) })
		}
		f.seats[name] = found[i]
	}
	return nil
}

// readSeat reads one seat and its member; nil if it is gone, or cannot be read.
func (f *office) readSeat(ctx context.Context, name string) (*seated, error) {
	m := f.m
	body, stat, err := m.session.Get(ctx, znode.SeatAt(m.root, m.Generation, name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	seat, err := znode.DecodeSeat(body)
	if err != nil {
		return nil, nil // written by hand: its member ends when it sees that
	}
	s := &seated{seat: seat, version: stat.Version, created: stat.Ctime}
	live, owner, event, err := m.session.GetW(ctx, znode.Live(m.root, m.name, seat.Identity))
	switch {
	case errors.Is(err, zkconn.ErrNoNode): // deleted by hand: the member ends
		return s, nil
	case err != nil:
		return nil, err
	}
	if p, err := znode.DecodePresent(live); err == nil && p.Nonce == seat.Nonce &&
		owner.EphemeralOwner == stat.EphemeralOwner {
		s.present = &p
	}
	if s.present == nil || !s.present.Ready {
		s.ready = event
	}
	return s, nil
}

// wakeAt wakes the clerk at an event.
func (f *office) wakeAt(ctx context.Context, event <-chan struct{}) {
	select {
	case <-event:
	case <-ctx.Done():
		return
	}
	select {
	case f.wake <- struct{}{}:
	default: // it will look anyway
	}
}
