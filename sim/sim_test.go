package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"muster/sim"
	"muster/zkstate/zkconn"
)

// TestCounter: two processes count in one znode, by version.
func TestCounter(t *testing.T) {
	sim.Test(t, worlds()...)
}

func TestMutants(t *testing.T) {
	sim.Mutants(t, "testdata/guards.txt", worlds()...)
}

func worlds() []sim.Named {
	faults := sim.Faults{Crashes: 2, Cuts: 2, Expiries: 1, LostReplies: 2, Pauses: 1}
	return []sim.Named{
		{"counter", sim.Options{Seeds: 50, Faults: faults}, func(w *sim.World) { counter(w, false) }},
	}
}

func counter(w *sim.World, careless bool) {
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		_, err := s.Create(ctx, "/n", []byte("0"), zkconn.Persistent, zkconn.World(zkconn.PermAll))
		return err
	})
	sure := 0
	for _, name := range []string{"a", "b"} {
		w.Process(name, 1, sim.InSession(10*time.Second, func(p *sim.Process, s *zkconn.Session) error {
			for {
				data, stat, err := s.Get(p.Context(), "/n")
				if err != nil {
					return err
				}
				var n int
				fmt.Sscan(string(data), &n)
				version := stat.Version
				if careless {
					version = -1
				}
				_, err = s.Set(p.Context(), "/n", fmt.Append(nil, n+1), version)
				if errors.Is(err, zkconn.ErrBadVersion) {
					continue
				}
				if err == nil {
					p.Saw(func() { sure++ })
				}
				return err
			}
		}))
	}
	w.AtEnd(func() error {
		data, _, _ := w.Server().Get("/n")
		var n int
		fmt.Sscan(string(data), &n)
		if n < sure {
			return fmt.Errorf("%d, but %d processes have counted", n, sure)
		}
		return nil
	})
}

// pause waits a moment of virtual time.
func pause(p *sim.Process) {
	select {
	case <-time.After(time.Second):
	case <-p.Context().Done():
	}
}
