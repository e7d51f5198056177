package recipes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"muster/sim"
	"muster/zkstate/zkconn"
)

// gapless demands ids from 0 without gaps, and one of each process.
func gapless(w *sim.World, n int) map[string]int {
	ids := map[string]int{}
	w.AtEnd(func() error {
		used := map[int]string{}
		for name, id := range ids {
			if other, ok := used[id]; ok || id < 0 || id >= n {
				return fmt.Errorf("%s has id %d, which is wrong or also that of %q", name, id, other)
			}
			used[id] = name
		}
		return nil
	})
	return ids
}

// counterAndAppend increments a counter for an id, and then appends the id to a list. A process that crashes between
// the two takes another id after its restart. So does one that loses the reply to its increment.
func counterAndAppend(w *sim.World) {
	tree(w, "/next", "/list")
	ids := gapless(w, 3)
	each(w, 3, 1, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		list, _, err := s.Get(ctx, "/list")
		if err != nil {
			return err
		}
		id := 0
		if _, mine, ok := strings.Cut(string(list), p.Name()+"="); ok {
			id = atoi(mine)
		} else {
			next, err := change(ctx, s, "/next", plusOne)
			if err != nil {
				return err
			}
			id = atoi(next) - 1
			add := func(list string) string { return fmt.Sprintf("%s %s=%d", list, p.Name(), id) }
			if _, err := change(ctx, s, "/list", add); err != nil {
				return err
			}
		}
		p.Saw(func() { ids[p.Name()] = id })
		return nil
	})
}

// claimAndNumber claims its name and takes a number in one transaction.
func claimAndNumber(w *sim.World) {
	tree(w, "/by", "/n")
	ids := gapless(w, 3)
	each(w, 3, 1, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		_, err := s.Multi(ctx,
			zkconn.CreateOp("/by/"+p.Name(), nil, zkconn.Persistent, open),
			zkconn.CreateOp("/n/n-", []byte(p.Name()), zkconn.PersistentSequential, open))
		if err != nil && !errors.Is(err, zkconn.ErrNodeExists) {
			return err
		}
		for id := 0; ; id++ {
			name, _, err := s.Get(ctx, fmt.Sprintf("/n/n-%010d", id))
			if err != nil {
				return err
			}
			if string(name) == p.Name() {
				p.Saw(func() { ids[p.Name()] = id })
				return nil
			}
		}
	})
}
