package recipes

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"

	"muster/sim"
	"muster/zkstate/zkconn"
)

// contend creates a candidate and returns its name.
func contend(ctx context.Context, s *zkconn.Session) (string, error) {
	at, err := s.Create(ctx, "/c/c-", nil, zkconn.EphemeralSequential, open)
	return path.Base(at), err
}

// lowestThenWatch lists the candidates, and watches the one before its own. It takes one that is gone for one that does
// not change, and waits for ever.
func lowestThenWatch(w *sim.World) { lowest(w, false) }

// lowestOrListAgain lists again if the one before it is gone.
func lowestOrListAgain(w *sim.World) { lowest(w, true) }

func lowest(w *sim.World, again bool) {
	tree(w, "/c")
	each(w, 3, 0, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		mine, err := contend(ctx, s)
		if err != nil {
			return err
		}
		for {
			all, _, err := s.Children(ctx, "/c")
			if err != nil {
				return err
			}
			i := slices.Index(all, mine)
			if i <= 0 {
				return nil // it leads, and is done
			}
			_, _, changed, err := s.GetW(ctx, "/c/"+all[i-1])
			if errors.Is(err, zkconn.ErrNoNode) && again {
				continue
			}
			if err := ignore(err, zkconn.ErrNoNode); err != nil {
				return err
			}
			select {
			case <-changed:
			case <-s.Context().Done():
				return zkconn.ErrSessionLost
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// lateLatch leads in order of arrival. It should give up when a newer version is there: a cache tells it by a latch,
// and the latch is made after the cache has begun.
func lateLatch(w *sim.World) { latch(w, true) }

// earlyLatch makes the latch first.
func earlyLatch(w *sim.World) { latch(w, false) }

func latch(w *sim.World, late bool) {
	tree(w, "/c", "/m", "/config")
	each(w, 2, 0, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		newest := p.Name() == "b"
		mine, err := contend(ctx, s)
		if err != nil {
			return err
		}
		if _, err := s.Create(ctx, "/m/"+p.Name(), nil, zkconn.Persistent, open); err != nil {
			return err
		}
		if err := awaitTurn(ctx, s, mine); err != nil {
			return err
		}
		if newest {
			return nil // it leads for good, and is done
		}
		var l latchOf
		if !late {
			l.make()
		}
		go cache(ctx, s, l.down)
		for range 2 { // the cache sees what is there meanwhile
			if _, _, err := s.Get(ctx, "/config"); err != nil {
				return err
			}
		}
		if late {
			l.make()
		}
		select {
		case <-l.ch:
			return nil // gives up
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// latchOf is a latch that may not be there yet.
type latchOf struct {
	mu   sync.Mutex
	ch   chan struct{}
	once sync.Once
}

func (l *latchOf) make() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ch = make(chan struct{})
}

func (l *latchOf) down() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ch != nil {
		l.once.Do(func() { close(l.ch) })
	}
}

// cache calls better once when the newest version is there.
func cache(ctx context.Context, s *zkconn.Session, better func()) {
	if await(ctx, s, "/m/b") == nil {
		better()
	}
}

// awaitTurn waits until no candidate is before mine.
func awaitTurn(ctx context.Context, s *zkconn.Session, mine string) error {
	for {
		all, _, changed, err := s.ChildrenW(ctx, "/c")
		if err != nil || len(all) > 0 && all[0] == mine {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
