package recipes

import (
	"context"
	"errors"
	"fmt"

	"muster/sim"
	"muster/zkstate/zkconn"
)

// allDone demands that every task was executed.
func allDone(w *sim.World) (done map[string]bool) {
	tree(w, "/q", "/q/1", "/q/2", "/q/3")
	done = map[string]bool{}
	w.AtEnd(func() error {
		for _, task := range []string{"1", "2", "3"} {
			if !done[task] {
				return fmt.Errorf("nobody has executed task %s", task)
			}
		}
		return nil
	})
	return done
}

// listAndPop looks at the first task, executes it, and then removes the first, which may be another by then.
func listAndPop(w *sim.World) {
	listAnd(w, func(ctx context.Context, s *zkconn.Session, _ string) error { return pop(ctx, s) })
}

// listAndTake removes the task that it has executed.
func listAndTake(w *sim.World) {
	listAnd(w, func(ctx context.Context, s *zkconn.Session, task string) error {
		return ignore(s.Delete(ctx, "/q/"+task, 0), zkconn.ErrNoNode)
	})
}

// listAnd executes the first task, and then calls remove, until no task is left.
func listAnd(w *sim.World, remove func(ctx context.Context, s *zkconn.Session, task string) error) {
	done := allDone(w)
	each(w, 2, 0, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		for {
			tasks, _, err := s.Children(ctx, "/q")
			if err != nil || len(tasks) == 0 {
				return err
			}
			p.Saw(func() { done[tasks[0]] = true })
			if err := remove(ctx, s, tasks[0]); err != nil {
				return err
			}
		}
	})
}

// pop removes the first task.
func pop(ctx context.Context, s *zkconn.Session) error {
	for {
		tasks, _, err := s.Children(ctx, "/q")
		if err != nil || len(tasks) == 0 {
			return err
		}
		if err = s.Delete(ctx, "/q/"+tasks[0], 0); !errors.Is(err, zkconn.ErrNoNode) {
			return err
		}
	}
}
