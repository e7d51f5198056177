package zkstate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/tasks"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// TestNobodyWritesIntoAnothersGeneration: somebody made the record of a name the generation of b. A process of a that
// joins waits, until the record is right again, and who asks something of a is refused.
func TestNobodyWritesIntoAnothersGeneration(t *testing.T) {
	t.Parallel()
	for kind, actions := range map[string]map[string]func(ctx context.Context, e *estate, root string) error{
		job.KindName: {"join": func(ctx context.Context, e *estate, root string) error {
			_, err := worker.Join(ctx, e.attacker, worker.Config{Root: root, Job: "a", Identity: "w"})
			return err
		}},
		group.KindName: {
			"join": func(ctx context.Context, e *estate, root string) error {
				_, err := member.Join(ctx, e.attacker, member.Config{Root: root, Group: "a", Identity: "m", Version: "1.0.0"})
				return err
			},
			"ask": func(ctx context.Context, e *estate, root string) error {
				_, err := member.SendAsk(ctx, e.session, root, "a", znode.Ask{Duty: "main", Do: znode.AskPause, By: "ops"})
				return err
			},
		},
		queue.KindName: {
			"join": func(ctx context.Context, e *estate, root string) error {
				_, err := tasks.Join(ctx, e.attacker, tasks.Config{
					Root: root, Queue: "a", Identity: "e", Role: queue.Executor, Parallel: 1,
				})
				return err
			},
			"operate": func(ctx context.Context, e *estate, root string) error {
				_, err := tasks.NewOperator(ctx, e.session, tasks.OperatorConfig{Root: root, Queue: "a"})
				return err
			},
		},
	} {
		for name, do := range actions {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				e := newEstate(t)
				a, b := e.declareKind(kind, "a", 2), e.declareKind(kind, "b", 2)
				e.tryApply(e.mine, "mine", a)
				e.tryApply(e.theirs, "theirs", b)
				g, h := e.generationOf(a), e.generationOf(b)
				root := a.ID().Root
				e.edit(znode.Record(kind, root, "a"), g, h)
				before := e.all(b, h)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				err := do(ctx, e, root)
				waits := errors.Is(err, worker.ErrNotOpen) || errors.Is(err, member.ErrNotOpen) || errors.Is(err, tasks.ErrNotOpen)
				if name == "join" && !waits || name != "join" && !errors.Is(err, zkstate.ErrNotOwn) {
					t.Errorf("%s: %v", name, err)
				}
				if d := cmp.Diff(before, e.all(b, h)); d != "" {
					t.Errorf("b (-before +after):\n%s", d)
				}
				var rec resource.Record
				rec.Declaration, rec.Generation = a, g
				if err := zkstate.CheckOwn(t.Context(), e.session, &rec); err != nil {
					t.Errorf("its own: %v", err)
				}
			})
		}
	}
}
