package tasks

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/zkstate/znode"
)

func isMulti(op int32, _ []byte) bool { return op == fault.OpMulti }

// TestJoinRace: many join at once a queue that has no folders yet. Each of them has a seat, and Redis knows it.
func TestJoinRace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n = 12
	var joining sync.WaitGroup
	joined := make([]*Process, n)
	errs := make([]error, n)
	for i := range n {
		s := dial(t)
		joining.Go(func() {
			joined[i], errs[i] = Join(t.Context(), s, f.config(fmt.Sprint("e", i), queue.Executor))
		})
	}
	joining.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	seats := map[string]bool{}
	for _, p := range joined {
		t.Cleanup(func() { p.Leave() })
		seats[p.Seat] = true
	}
	books := f.books()
	for _, s := range books.Seats {
		if !seats[s.Name] {
			t.Errorf("seat %s is nobody's", s.Name)
		}
	}
	if len(seats) != n || len(books.Seats) != n || books.Slots != 10*n {
		t.Errorf("%d seats, in Redis %d with %d slots", len(seats), len(books.Seats), books.Slots)
	}
	if q := f.look(); q.Live != n {
		t.Errorf("%d are live", q.Live)
	}
}

// waiting collects what a Join says that it waits for.
func waiting(c *Config) <-chan string {
	said := make(chan string, 100)
	c.Waiting = func(what string) { said <- what }
	return said
}

// says waits for a text among what a Join waits for.
func says(t testing.TB, said <-chan string, text string) {
	t.Helper()
	for {
		select {
		case what := <-said:
			if strings.Contains(what, text) {
				return
			}
		case <-time.After(limit):
			t.Fatalf("it did not say that it waits for %q", text)
		}
	}
}

// joining joins in the background, and returns how that ends.
func (f *fixture) joining(c Config) <-chan error {
	s := dial(f.t)
	ended := make(chan error, 1)
	go func() {
		p, err := Join(f.t.Context(), s, c)
		if err == nil {
			f.t.Cleanup(func() { p.Leave() })
		}
		ended <- err
	}()
	return ended
}

// TestJoinWaits until there is a queue, until it is open, and for an identity.
func TestJoinWaits(t *testing.T) {
	t.Parallel()
	f := prepare(t)
	c := f.config("e", queue.Executor)
	said := waiting(&c)
	ended := f.joining(c)
	says(t, said, "to be created")
	f.create()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	f.joining(c)
	says(t, said, "the process that is e now")
	other := f.config("other", queue.Executor)
	first := f.joining(other)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	watcher := f.config("e", queue.Watcher)
	watcher.Waiting = func(string) { cancel() }
	if _, err := Join(ctx, dial(t), watcher); !errors.Is(err, ErrHeld) || !errors.Is(err, context.Canceled) {
		t.Errorf("an identity that is held: %v", err)
	}
}

// TestJoinAQueueThatStops waits until it is opened again.
func TestJoinAQueueThatStops(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.join("p", queue.Executor)
	f.state(resource.StateTerminating)
	if err := p.StopRequested(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := f.config("e", queue.Executor)
	said := waiting(&c)
	ended := f.joining(c)
	says(t, said, "asked to stop")
	f.state(resource.StateOpen)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// state writes the state of the Record, as terminate does.
func (f *fixture) state(s resource.State) {
	f.t.Helper()
	o := f.look()
	rec := *o.Record
	rec.State = s
	body, err := znode.EncodeRecord(rec)
	if err == nil {
		_, err = f.s.Set(f.t.Context(), znode.Record(queue.KindName, f.queue.Root, f.queue.Name), body, o.RecordVersion)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestJoinWithoutRedis waits for it, says so, and takes no seat meanwhile. For what waiting does not cure see
// TestServersThatCannotHoldAQueue of tasks/faults.
func TestJoinWithoutRedis(t *testing.T) {
	t.Parallel()
	proxy := rig.Proxy(t, rediss.Addr())
	proxy.Refuse(true)
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + proxy.Addr() })
	c := f.config("e", queue.Executor)
	said := waiting(&c)
	ended := f.joining(c)
	says(t, said, "Redis: ")
	if live := f.look().Live; live != 0 {
		t.Errorf("%d are live", live)
	}
	proxy.Refuse(false)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// TestHelloWaits: who has a seat and cannot say hello to Redis tries again at its pace, also when the Record has
// changed.
func TestHelloWaits(t *testing.T) {
	t.Parallel()
	proxy := rig.Proxy(t, rediss.Addr())
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + proxy.Addr() })
	j := newJoin(dial(t), f.config("e", queue.Executor))
	if err := j.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer j.disconnect()
	live, err := znode.Encode(znode.QueueProcess{Nonce: "n", Role: queue.Executor})
	if err != nil {
		t.Fatal(err)
	}
	taken, err := j.Take(t.Context(), live, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.change(func(q *queue.Queue) { q.Attempts++ })
	<-j.Changed
	proxy.Refuse(true)
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err = j.hello(ctx, newProcess(j, taken, j.Stat))
	if !errors.Is(err, ErrRedis) || j.tries > 40 { // it begins with 50 to 100 ms, and doubles
		t.Errorf("after %d tries: %v", j.tries, err)
	}
}

// TestJoinWithALostReply: nothing is left when its session is closed, and another one joins.
func TestJoinWithALostReply(t *testing.T) {
	t.Parallel()
	for name, arm := range map[string]func(*fault.Proxy) <-chan struct{}{
		"before":      func(p *fault.Proxy) <-chan struct{} { return p.BeforeSend(isMulti) },
		"reply lost":  func(p *fault.Proxy) <-chan struct{} { return p.DropReply(isMulti) },
		"after reply": func(p *fault.Proxy) <-chan struct{} { return p.AfterReply(isMulti) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.join("first", queue.Watcher)
			proxy := rig.Proxy(t, servers.Addrs()[0])
			s := dial(t, proxy.Addr())
			happened := arm(proxy)
			p, err := Join(t.Context(), s, f.config("e", queue.Executor))
			<-happened
			switch {
			case err == nil && name != "after reply":
				t.Error("it joined")
			case err == nil:
				if err := p.Leave(); err != nil {
					t.Fatal(err)
				}
			case !errors.Is(err, ErrUnknown):
				t.Errorf("it failed with %v", err)
			}
			_ = s.Close() // without a connection the servers end it by its timeout
			f.join("e", queue.Executor)
			if n := len(f.books().Seats); n != 2 || f.look().Live != 2 {
				t.Errorf("%d seats, %d live", n, f.look().Live)
			}
		})
	}
}

// TestRemoved: another generation ends the membership, and so does the end of the seat or of the live znode.
func TestRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, remove := range map[string]func(*Process) string{
		"live": func(p *Process) string { return p.seat.Live() }, "seat": func(p *Process) string { return p.seat.Path },
	} {
		p := f.join(name, queue.Executor)
		if err := f.s.Delete(t.Context(), remove(p), -1); err != nil {
			t.Fatal(err)
		}
		err := ended(t, p.Context())
		if !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), path.Base(remove(p))) {
			t.Errorf("%s: it ended with %v", name, err)
		}
	}
	p := f.join("p", queue.Executor)
	f.change(func(q *queue.Queue) { q.Attempts = 9 })
	rig.Await(t, "the new declaration", func() bool { return p.Queue().Attempts == 9 })
	o := f.look()
	rec := *o.Record
	rec.Generation = "another"
	body, err := znode.EncodeRecord(rec)
	if err == nil {
		_, err = f.s.Set(t.Context(), znode.Record(queue.KindName, f.queue.Root, f.queue.Name), body, o.RecordVersion)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := ended(t, p.Context()); !errors.Is(err, ErrRemoved) {
		t.Errorf("another generation: it ended with %v", err)
	}
}

// ended waits until a context has ended, and returns its cause.
func ended(t testing.TB, ctx context.Context) error {
	t.Helper()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(limit):
		t.Fatal("it has not ended")
		return nil
	}
}
