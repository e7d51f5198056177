package recipes

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"muster/sim"
	"muster/zkstate/zkconn"
)

// tidied demands that /job, which has two members, is deleted at the end.
func tidied(w *sim.World) {
	tree(w, "/job", "/job/a", "/job/b")
	w.AtEnd(func() error {
		if _, _, there := w.Server().Get("/job"); there {
			return errors.New("all have left, and /job is still there")
		}
		return nil
	})
}

// lastLeaverByCache lists who is there, and the one that finds itself alone deletes all. Two that leave at the same
// time both see two.
func lastLeaverByCache(w *sim.World) {
	tidied(w)
	each(w, 2, 0, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		members, _, err := s.Children(ctx, "/job")
		if err != nil {
			return err
		}
		if err := s.Delete(ctx, "/job/"+p.Name(), 0); err != nil {
			return err
		}
		if len(members) > 1 {
			return nil
		}
		err = ignore(s.Delete(ctx, "/job", 0), zkconn.ErrNotEmpty)
		return ignore(err, zkconn.ErrNoNode)
	})
}

// lastLeaverByNumber takes a number when it leaves. Who gets the last one deletes all.
func lastLeaverByNumber(w *sim.World) {
	const n = 2
	tidied(w)
	tree(w, "/job/left")
	each(w, n, 0, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		results, err := s.Multi(ctx,
			zkconn.CreateOp("/job/left/n-", nil, zkconn.PersistentSequential, open),
			zkconn.DeleteOp("/job/"+p.Name(), 0))
		if err != nil || !strings.HasSuffix(results[0].Path, fmt.Sprintf("%010d", n-1)) {
			return err
		}
		for i := range n {
			if err := s.Delete(ctx, path.Join("/job/left", fmt.Sprintf("n-%010d", i)), 0); err != nil {
				return err
			}
		}
		if err := s.Delete(ctx, "/job/left", 0); err != nil {
			return err
		}
		return s.Delete(ctx, "/job", 0)
	})
}
