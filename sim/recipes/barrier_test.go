package recipes

import (
	"context"
	"fmt"

	"muster/sim"
	"muster/zkstate/zkconn"
)

const parties = 3

// releasedTogether demands that nobody is released before all have come.
func releasedTogether(w *sim.World) (came map[string]bool, released func(*sim.Process)) {
	came = map[string]bool{}
	early := ""
	w.Check(func() error {
		if early != "" {
			return fmt.Errorf("%s is released, and only %d of %d have come", early, len(came), parties)
		}
		return nil
	})
	return came, func(p *sim.Process) {
		p.Saw(func() {
			if len(came) < parties && early == "" {
				early = p.String()
			}
		})
	}
}

// moduloBarrier counts arrivals. Every third arrival releases the waiters. A process that crashes while it waits is
// counted twice.
func moduloBarrier(w *sim.World) {
	tree(w, "/count", "/released")
	came, released := releasedTogether(w)
	each(w, parties, 1, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		p.Saw(func() { came[p.Name()] = true })
		count, err := change(ctx, s, "/count", plusOne)
		if err != nil {
			return err
		}
		round := fmt.Sprintf("/released/%d", (atoi(count)-1)/parties)
		if atoi(count)%parties == 0 {
			_, err = s.Create(ctx, round, nil, zkconn.Persistent, open)
		} else {
			err = await(ctx, s, round)
		}
		if err == nil {
			released(p)
		}
		return err
	})
}

// numberedBarrier counts each name once, and the third arrival is what everybody waits for.
func numberedBarrier(w *sim.World) {
	tree(w, "/by", "/c")
	came, released := releasedTogether(w)
	each(w, parties, 1, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		p.Saw(func() { came[p.Name()] = true })
		_, err := s.Multi(ctx,
			zkconn.CreateOp("/by/"+p.Name(), nil, zkconn.Persistent, open),
			zkconn.CreateOp("/c/c-", nil, zkconn.PersistentSequential, open))
		if err := ignore(err, zkconn.ErrNodeExists); err != nil {
			return err
		}
		if err := await(ctx, s, fmt.Sprintf("/c/c-%010d", parties-1)); err != nil {
			return err
		}
		released(p)
		return nil
	})
}
