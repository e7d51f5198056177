package member

import (
	"context"
	"errors"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// maxEntries is how many entries of each inbox one decision takes. Each of them changes at most two seats, so that all
// that a decision answers fits into one transaction.
const maxEntries = 100

// read reads the seats, the assigner's memory and its inboxes. It returns errPassed if the memory is not as this
// assigner has left it, or as its place followed from it.
func (f *office) read(ctx context.Context) error {
	was := f.stat.Version
	body, err := f.readFolders(ctx)
	if err != nil {
		return err
	}
	if f.stat.Version != was {
		return errPassed
	}
	if err := f.readSeats(ctx, f.folders[0].names); err != nil {
		return err
	}
	if f.resigned, err = readInbox(ctx, f, f.folders[1], znode.Decode[znode.Resignation]); err != nil {
		return err
	}
	if f.asks, err = readInbox(ctx, f, f.folders[2], znode.Decode[znode.Ask]); err != nil {
		return err
	}
	if f.memory, err = znode.DecodeAssigner(body); err != nil {
		f.memory = znode.AssignerMemory{} // somebody wrote it by hand; an assigner can begin with nothing
	}
	return nil
}

// readFolders reads the folders and the assigner's memory, which it returns.
func (f *office) readFolders(ctx context.Context) (body []byte, err error) {
	reading, rctx := errgroup.WithContext(ctx)
	for i := range f.folders {
		reading.Go(func() error { return f.folders[i].read(rctx, f.m.session) })
	}
	reading.Go(func() (err error) {
		body, f.stat, err = f.m.session.Get(rctx, znode.Assigner(f.m.root, f.m.Generation))
		return err
	})
	return body, reading.Wait()
}

// read reads the children, unless nothing has happened since.
func (d *folder) read(ctx context.Context, s *zkconn.Session) (err error) {
	if happened(d.event) {
		var stat zkconn.Stat
		d.names, stat, d.event, err = s.ChildrenW(ctx, d.dir)
		d.changed = stat.Pzxid
	}
	return err
}

// readInbox reads the oldest entries of an inbox, by path. It deletes those that cannot be read.
func readInbox[T any](
	ctx context.Context, f *office, inbox folder, decode func([]byte) (T, error),
) (map[string]T, error) {
	var paths []string
	for _, name := range inbox.names {
		path := resource.Join(inbox.dir, name)
		if !f.stuck[path] && len(paths) < maxEntries {
			paths = append(paths, path)
		}
	}
	type result struct {
		body []byte
		stat zkconn.Stat
		err  error
	}
	results, err := zkstate.ForEach(ctx, paths, func(ctx context.Context, path string) (result, error) {
		body, stat, err := f.m.session.Get(ctx, path)
		return result{body, stat, err}, nil
	})
	if err != nil {
		return nil, err
	}
	all := map[string]T{}
	for i, r := range results {
		entry, broken := decode(r.body)
		switch {
		case errors.Is(r.err, zkconn.ErrNoNode): // deleted since the inbox was listed
		case r.err != nil && !errors.Is(r.err, zkconn.ErrNoAuth):
			return nil, r.err
		case r.err != nil || broken != nil || r.stat.NumChildren > 0:
			if err := f.discard(ctx, paths[i]); err != nil {
				return nil, err
			}
		default:
			all[paths[i]] = entry
		}
	}
	return all, nil
}

// discard deletes an inbox entry that nobody can read. One that cannot be deleted either, such as one with children, is
// left alone from now on.
func (f *office) discard(ctx context.Context, path string) error {
	var refused *zkconn.Error
	err := f.m.session.Delete(ctx, path, -1)
	switch {
	case errors.Is(err, zkconn.ErrNotEmpty), errors.Is(err, zkconn.ErrNoAuth):
		f.stuck[path] = true
		return nil
	case err == nil, errors.Is(err, zkconn.ErrNoNode):
		return nil
	case errors.Is(err, zkconn.ErrUnknown) && errors.As(err, &refused): // listed again if it is still there
		return nil
	}
	return err
}

// readSeats reads the seats that are new, and the members that were not ready. Only an assigner writes seats, so the
// others are as this assigner wrote them.
func (f *office) readSeats(ctx context.Context, names []string) error {
	f.names = map[int32]string{}
	for _, name := range names {
		if n, err := znode.SeatNumber(name); err == nil {
			f.names[n] = name
		}
	}
	maps.DeleteFunc(f.seats, func(name string, _ *seated) bool {
		n, _ := znode.SeatNumber(name)
		return f.names[n] != name
	})
	var todo []string
	for _, name := range f.names {
		if s := f.seats[name]; s == nil || (s.present == nil || !s.present.Ready) && happened(s.ready) {
			todo = append(todo, name)
		}
	}
	found, err := zkstate.ForEach(ctx, todo, f.readSeat)
	if err != nil {
		return err
	}
	for i, name := range todo {
		if found[i] == nil {
			delete(f.seats, name)
			continue
		}
		if found[i].ready != nil {
			f.wakeAt(ctx, found[i].ready, 0)
		}
		f.seats[name] = found[i]
	}
	return nil
}

// readSeat reads one seat and its member; nil if it is gone, or cannot be read.
func (f *office) readSeat(ctx context.Context, name string) (*seated, error) {
	m := f.m
	body, stat, err := m.session.Get(ctx, znode.SeatAt(m.root, m.Generation, name))
	if errors.Is(err, zkconn.ErrNoNode) || errors.Is(err, zkconn.ErrNoAuth) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	seat, err := znode.Decode[znode.Seat](body)
	if err != nil {
		return nil, nil // written by hand: its member ends when it sees that
	}
	s := &seated{seat: seat, version: stat.Version, created: stat.Ctime}
	live, owner, event, err := m.session.GetW(ctx, znode.Live(m.root, m.name, seat.Identity))
	switch {
	case errors.Is(err, zkconn.ErrNoNode), errors.Is(err, zkconn.ErrNoAuth): // changed by hand: the member ends
		return s, nil
	case err != nil:
		return nil, err
	}
	if p, err := znode.Decode[znode.Present](live); err == nil && p.Nonce == seat.Nonce &&
		owner.EphemeralOwner == stat.EphemeralOwner {
		s.present = &p
	}
	if s.present == nil || !s.present.Ready {
		s.ready = event
	}
	return s, nil
}

// wakeAt wakes the assigner some time after an event.
func (f *office) wakeAt(ctx context.Context, event <-chan struct{}, later time.Duration) {
	f.m.tasks.Go(func() {
		select {
		case <-event:
		case <-ctx.Done():
			return
		}
		<-after(ctx, later)
		select {
		case f.wake <- struct{}{}:
		default: // it will look anyway
		}
	})
}
