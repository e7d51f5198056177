package watches

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster/dev/zkmodel"
	"muster/sim"
	"muster/zkstate/zkconn"
)

const timeout = 10 * time.Second

var open = zkconn.World(zkconn.PermAll)

// TestWorlds: whoever waits for events knows at the end what is there, and nobody gets an answer that is older than
// what its session knew.
func TestWorlds(t *testing.T) { sim.Test(t, named()...) }

// TestMutants: a session or a server that breaks one of the rules on which this rests is found, by each way that needs
// the rule, alone.
func TestMutants(t *testing.T) {
	data, exists, children := watches("/w/b", "data"), watches("/w/a/c", "exists"), watches("/w/a", "children")
	looksAt := looks("data", "children", "stat")
	for _, mutant := range []struct {
		name  string
		cuts  int
		hooks wire
		ways  []way
	}{
		{"watches are set again as of later", 6, wire{request: future}, []way{data, exists, children, looksAt}},
		{"watches are not set again", 6, wire{request: forgetful}, []way{data, exists, children, looksAt}},
		{"get sets no watch", 0, wire{request: careless(zkmodel.OpGetData)}, []way{data, follows("/w/a"), looks("data")}},
		{"exists sets no watch", 0, wire{request: careless(zkmodel.OpExists)}, []way{exists, follows("/w/a"), looks("stat")}},
		{"children sets no watch", 0, wire{request: careless(zkmodel.OpGetChildren2)}, []way{children, looks("children")}},
		{"events come after newer answers", 0, wire{late: 4}, []way{looksAt}},
	} {
		o := sim.Options{Seeds: 2000, End: 5 * time.Minute, Faults: sim.Faults{Cuts: mutant.cuts}}
		for i, one := range mutant.ways {
			t.Run(fmt.Sprint(mutant.name, "/", i), func(t *testing.T) { sim.Finds(t, o, world(mutant.hooks, one)) })
		}
	}
}

func named() []sim.Named {
	faults := sim.Faults{Cuts: 3, LostReplies: 2, Expiries: 1, Pauses: 2}
	options := sim.Options{Seeds: 300, End: 5 * time.Minute, Faults: faults}
	plain := []way{follows("/w/a"), watches("/w/b", "data"), watches("/w/a/c", "exists"), watches("/w/a", "children")}
	return []sim.Named{
		{Name: "mirror", Options: options, World: world(wire{}, looks("data", "children"), looks("stat", "data"))},
		{Name: "watch", Options: options, World: world(wire{}, plain...)},
		{Name: "both", Options: options, World: world(wire{}, append(plain, looks("data", "children", "stat"))...)},
	}
}

// world has one who changes znodes, and one who waits for events.
func world(hooks wire, ways ...way) func(*sim.World) {
	return func(w *sim.World) {
		w.Setup(func(ctx context.Context, s *zkconn.Session) error {
			_, err := s.Create(ctx, "/w", nil, zkconn.Persistent, open)
			return err
		})
		b := newBook(w, 15)
		b.change(w, "changes")
		b.read(w, "reads", hooks, ways...)
	}
}

// change declares a process that changes znodes at random, and then ends its session. What it does depends on the
// schedule alone.
func (b *book) change(w *sim.World, name string) {
	w.Process(name, 0, func(p *sim.Process) error {
		s, err := p.Dial(timeout)
		if err != nil {
			return err
		}
		defer s.Close()
		for {
			zxid, ok := b.take()
			if !ok {
				break
			}
			if err := b.changeOne(p.Context(), s, zxid); err != nil {
				return err
			}
		}
		if err := s.Close(); err != nil {
			return fmt.Errorf("%w: %w", zkconn.ErrUnreachable, err)
		}
		close(b.quiet)
		return nil
	})
}

func (b *book) changeOne(ctx context.Context, s *zkconn.Session, zxid int64) error {
	random := rand.New(rand.NewPCG(uint64(zxid), 1))
	path := paths[random.IntN(len(paths))]
	body, mode := fmt.Append(nil, zxid), zkconn.Persistent
	if path == paths[1] && random.IntN(2) == 0 {
		mode = zkconn.Ephemeral
	}
	create, err := zkconn.CreateOp(path, body, mode, open), error(nil)
	switch what := random.IntN(6); {
	case b.now(aspect{path, "exists"}) == none:
		_, err = s.Create(ctx, path, body, mode, open)
	case what < 2:
		_, err = s.Set(ctx, path, body, -1)
	case what < 4:
		err = s.Delete(ctx, path, -1)
	case what == 4:
		_, err = s.Multi(ctx, zkconn.DeleteOp(path, -1), create)
	default:
		_, err = s.Multi(ctx, zkconn.SetOp(paths[0], body, -1), zkconn.SetOp(paths[1], body, -1))
	}
	for _, harmless := range []error{zkconn.ErrNoNode, zkconn.ErrNodeExists, zkconn.ErrNotEmpty} {
		if errors.Is(err, harmless) {
			return nil
		}
	}
	return err
}
