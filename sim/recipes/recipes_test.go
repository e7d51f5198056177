package recipes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"muster/sim"
	"muster/zkstate/zkconn"
)

const timeout = 10 * time.Second

// recipe is a recipe in two versions. The first has a known bug, which must be found. The second has not.
type recipe struct {
	name          string
	options       sim.Options
	flawed, sound func(*sim.World)
}

func recipes() []recipe {
	calm := sim.Options{Seeds: 200, Steps: 200, End: 2 * time.Minute}
	crashes, expiry := calm, calm
	crashes.Faults = sim.Faults{Crashes: 2, Cuts: 2, LostReplies: 2}
	expiry.Faults = sim.Faults{Expiries: 1}
	return []recipe{
		{"counter-and-append", crashes, counterAndAppend, claimAndNumber},
		{"modulo-barrier", crashes, moduloBarrier, numberedBarrier},
		{"last-leaver-by-cache", calm, lastLeaverByCache, lastLeaverByNumber},
		{"fifo-leader-with-late-latch", calm, lateLatch, earlyLatch},
		{"list-and-pop", calm, listAndPop, listAndTake},
		{"lowest-then-watch", expiry, lowestThenWatch, lowestOrListAgain},
	}
}

// TestFlawed: a checker that does not find known bugs is not trusted.
func TestFlawed(t *testing.T) {
	for _, r := range recipes() {
		t.Run(r.name, func(t *testing.T) { sim.Finds(t, r.options, r.flawed) })
	}
}

// TestSound: what is correct is not accused.
func TestSound(t *testing.T) {
	for _, r := range recipes() {
		t.Run(r.name, func(t *testing.T) { sim.Run(t, r.options, r.sound) })
	}
}

var open = zkconn.World(zkconn.PermAll)

// tree creates persistent znodes with the data 0 in Setup.
func tree(w *sim.World, paths ...string) {
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		for _, path := range paths {
			if _, err := s.Create(ctx, path, []byte("0"), zkconn.Persistent, open); err != nil {
				return err
			}
		}
		return nil
	})
}

// each declares n processes that run body with a session.
func each(w *sim.World, n, lives int, body func(ctx context.Context, p *sim.Process, s *zkconn.Session) error) {
	for i := range n {
		w.Process(string(rune('a'+i)), lives, func(p *sim.Process) error {
			s, err := p.Dial(timeout)
			if err != nil {
				return err
			}
			defer s.Close()
			return body(p.Context(), p, s)
		})
	}
}

// change sets the data of a znode to what f makes of it, by its version.
func change(ctx context.Context, s *zkconn.Session, path string, f func(string) string) (string, error) {
	for {
		data, stat, err := s.Get(ctx, path)
		if err != nil {
			return "", err
		}
		after := f(string(data))
		if _, err = s.Set(ctx, path, []byte(after), stat.Version); !errors.Is(err, zkconn.ErrBadVersion) {
			return after, err
		}
	}
}

func plusOne(number string) string { return fmt.Sprint(atoi(number) + 1) }

func atoi(number string) (n int) {
	fmt.Sscan(number, &n)
	return n
}

// await waits until a znode exists.
func await(ctx context.Context, s *zkconn.Session, path string) error {
	for {
		_, there, changed, err := s.ExistsW(ctx, path)
		if err != nil || there {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ignore takes an error as success.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
