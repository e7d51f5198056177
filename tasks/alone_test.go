package tasks

import (
	"context"
	"sync"
	"testing"
	"time"

	"muster/resource/queue"
	"muster/tasks/store"
)

// TestASuspectIsAlone: an executor that has one takes nothing else, although commands are idle and tasks wait, and does
// not ask all the time.
func TestASuspectIsAlone(t *testing.T) {
	f := newFixture(t)
	f.submit("b", numbered(1))
	for _, name := range []string{"d1", "d2"} {
		p := f.join(name, queue.Executor)
		f.take(p, 1)
		if _, _, err := f.store().Evict(t.Context(), store.Died, p.Seat); err != nil {
			t.Fatal(err)
		}
	}
	begun, hold := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	c := f.start(1, 2, func(ctx context.Context, t *Task) ([]byte, error) {
		if t.Batch == "b" {
			close(begun)
			<-hold
		}
		return square(ctx, t)
	})
	<-begun
	f.submit("c", numbered(4))
	at, turns := time.Now(), c.all[0].Counts().Turns
	eventually(t, "more turns", func() bool { return c.all[0].Counts().Turns >= turns+4 })
	if passed, n := time.Since(at), c.counts().InHand; passed < 2*restTime || n != 1 {
		t.Errorf("4 turns in %s; %d tasks are in hand", passed, n)
	}
	release()
	f.complete("b")
	f.complete("c")
	c.drain()
	f.checkSquares("c", 4)
}
