package election_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/election"
	"muster/zkserver"
	"muster/zkstate/zkconn"
)

// TestThoseWhoComeFirstLeadFirst: each waiter leads when all before it have left, and not earlier.
func TestThoseWhoComeFirstLeadFirst(t *testing.T) {
	b := newBed(t)
	first := b.join()
	b.lead(first)
	var waiters []*waiter
	for range 4 {
		waiters = append(waiters, b.await(t.Context(), b.join()))
	}
	order := b.places()
	b.leave(first)
	for i, w := range waiters {
		held := b.leads(w)
		if places := b.places(); !slices.Equal(places, order[i+1:]) {
			t.Errorf("waiter %d leads, and these places stand: %q of %q", i, places, order)
		}
		b.leave(w.place)
		if cause := context.Cause(held); !errors.Is(cause, context.Canceled) {
			t.Errorf("what a place held after Leave ended with %v", cause)
		}
	}
	if left := b.places(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestPatienceEnds: a place that does not lead in time stands, and can be awaited again.
func TestPatienceEnds(t *testing.T) {
	b := newBed(t)
	first, second := b.join(), b.join()
	b.lead(first)
	for _, patience := range []time.Duration{0, 100 * time.Millisecond} {
		var told []string
		_, err := second.Await(t.Context(), patience, func(leader string) { told = append(told, leader) })
		if !errors.Is(err, election.ErrNotLeading) || !slices.Equal(told, b.places()[:1]) {
			t.Errorf("patience of %s: %v; told %q", patience, err, told)
		}
	}
	if n := len(b.places()); n != 2 {
		t.Errorf("%d places stand; want 2", n)
	}
	b.leave(first)
	if _, err := second.Await(t.Context(), 0, nil); err != nil {
		t.Errorf("the only place, without patience: %v", err)
	}
	b.leave(second)
	b.leave(second) // does no harm
}

// TestAPlaceIsMadeOnce whatever becomes of its create, or of the reply.
func TestAPlaceIsMadeOnce(t *testing.T) {
	isCreate := func(op int32, _ []byte) bool { return op == zkserver.OpCreate }
	faults := map[string]func(*zkserver.Proxy) <-chan struct{}{
		"not sent":    func(p *zkserver.Proxy) <-chan struct{} { return p.BeforeSend(isCreate) },
		"reply lost":  func(p *zkserver.Proxy) <-chan struct{} { return p.DropReply(isCreate) },
		"after reply": func(p *zkserver.Proxy) <-chan struct{} { return p.AfterReply(isCreate) },
	}
	for fault, arm := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			b, proxy := newBed(t), newProxy(t)
			s := dial(t, 30*time.Second, proxy.Addr())
			other := b.join()
			fired := arm(proxy)
			p := b.join(s)
			receive(t, fired)
			if places := b.places(); len(places) != 2 {
				t.Errorf("places: %q; want the other's and one more", places)
			}
			b.leave(other)
			b.lead(p)
			b.leave(p)
			if left := b.places(); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// TestALostReplyOfTheDelete: Leave looks what became of it.
func TestALostReplyOfTheDelete(t *testing.T) {
	b, proxy := newBed(t), newProxy(t)
	p := b.join(dial(t, 30*time.Second, proxy.Addr()))
	fired := proxy.DropReply(func(op int32, _ []byte) bool { return op == zkserver.OpDelete })
	b.leave(p)
	receive(t, fired)
	if left := b.places(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestACallerWhoseContextEnds while its place is being made, or while it waits, leaves nothing behind.
func TestACallerWhoseContextEnds(t *testing.T) {
	t.Run("in Join", func(t *testing.T) {
		b, proxy := newBed(t), newProxy(t)
		s := dial(t, 30*time.Second, proxy.Addr())
		ctx, cancel := context.WithCancel(t.Context())
		fired := proxy.DropReply(func(op int32, _ []byte) bool {
			if op == zkserver.OpCreate {
				cancel()
			}
			return op == zkserver.OpCreate
		})
		p, err := b.queue.Join(ctx, s, nil, open)
		if err != nil {
			t.Fatal(err)
		}
		receive(t, fired)
		if _, err := p.Await(ctx, patience, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Await: %v", err)
		}
		b.leave(p)
		if left := b.places(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	t.Run("before Join", func(t *testing.T) {
		b := newBed(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.queue.Join(ctx, b.session, nil, open); !errors.Is(err, context.Canceled) {
			t.Errorf("Join: %v", err)
		}
		if left := b.places(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	t.Run("in Await", func(t *testing.T) {
		b := newBed(t)
		first := b.join()
		ctx, cancel := context.WithCancel(t.Context())
		w := b.await(ctx, b.join())
		cancel()
		if err := receive(t, w.err); !errors.Is(err, context.Canceled) {
			t.Errorf("Await: %v", err)
		}
		b.leave(w.place)
		if n := len(b.places()); n != 1 {
			t.Errorf("%d places stand; want 1", n)
		}
		b.leave(first)
	})
}

// TestNobodyLeadsBesideADeadLeader: one whose session is closed, or that is cut off, has lost before the next leads.
func TestNobodyLeadsBesideADeadLeader(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		b, s := newBed(t), dial(t, 30*time.Second)
		held := b.lead(b.join(s))
		w := b.await(t.Context(), b.join())
		s.Close()
		b.leads(w)
		if err := context.Cause(held); !errors.Is(err, zkconn.ErrSessionLost) {
			t.Errorf("the dead leader's context: %v", err)
		}
	})
	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		b, proxy := newBed(t), newProxy(t)
		dead := b.join(dial(t, 4*time.Second, proxy.Addr()))
		held := b.lead(dead)
		w := b.await(t.Context(), b.join())
		proxy.Refuse(true)
		proxy.Cut()
		b.leads(w)
		if err := context.Cause(held); !errors.Is(err, zkconn.ErrSessionLost) {
			t.Errorf("the dead leader's context: %v", err)
		}
		b.leave(dead) // has nothing left to do
	})
	t.Run("a waiter", func(t *testing.T) {
		t.Parallel()
		b, s := newBed(t), dial(t, 30*time.Second)
		first := b.join()
		b.lead(first)
		middle := b.await(t.Context(), b.join(s))
		last := b.await(t.Context(), b.join())
		s.Close()
		if err := receive(t, middle.err); !errors.Is(err, zkconn.ErrSessionLost) {
			t.Errorf("the dead waiter: %v", err)
		}
		b.leave(first)
		b.leads(last)
	})
}

// TestAPlaceRemovedByHand is lost, and nobody leads for that but the next in order.
func TestAPlaceRemovedByHand(t *testing.T) {
	remove := func(b *bed, path string) {
		t.Helper()
		if err := b.session.Delete(t.Context(), path, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("the leader's", func(t *testing.T) {
		b := newBed(t)
		first := b.join()
		held := b.lead(first)
		w := b.await(t.Context(), b.join())
		remove(b, b.places()[0])
		b.leads(w)
		receive(t, held.Done())
		if err := context.Cause(held); !errors.Is(err, election.ErrRemoved) {
			t.Errorf("what was held ended with %v", err)
		}
		b.leave(first)
	})
	t.Run("a waiter's", func(t *testing.T) {
		b := newBed(t)
		first := b.join()
		b.lead(first)
		middle := b.await(t.Context(), b.join())
		last := b.await(t.Context(), b.join())
		remove(b, b.places()[1])
		b.leave(first)
		b.leads(last)
		if err := receive(t, middle.err); !errors.Is(err, election.ErrRemoved) {
			t.Errorf("the waiter's Await: %v", err)
		}
		b.leave(middle.place)
		if len(last.told) > 0 {
			t.Errorf("the last was told of another leader: %s", <-last.told)
		}
	})
	t.Run("and made by another", func(t *testing.T) {
		b := newBed(t)
		first := b.join()
		held := b.lead(first)
		path := b.places()[0]
		other := dial(t, 30*time.Second)
		_, err := other.Multi(t.Context(), zkconn.DeleteOp(path, 0), zkconn.CreateOp(path, nil, zkconn.Ephemeral, open))
		if err != nil {
			t.Fatal(err)
		}
		receive(t, held.Done())
		if err := context.Cause(held); !errors.Is(err, election.ErrRemoved) {
			t.Errorf("what was held ended with %v", err)
		}
		b.leave(first)
		if places := b.places(); !slices.Equal(places, []string{path}) {
			t.Errorf("the other's place is gone with ours: %q", places)
		}
	})
}

// TestABodyMayChange: who leads or leaves is no matter of bodies.
func TestABodyMayChange(t *testing.T) {
	b := newBed(t)
	p := b.join()
	held := b.lead(p)
	if _, err := b.session.Set(t.Context(), b.places()[0], []byte("changed"), 0); err != nil {
		t.Fatal(err)
	}
	w := b.await(t.Context(), b.join())
	if held.Err() != nil {
		t.Errorf("a changed body ended what was held: %v", context.Cause(held))
	}
	b.leave(p)
	b.leads(w)
}

func TestInOrder(t *testing.T) {
	q := election.Queue{Dir: "/q", Prefix: "lock-"}
	for what, c := range map[string]struct{ names, want []string }{
		"by number": {
			[]string{"lock-0000000010", "lock-0000000009", "lock-0000000100"},
			[]string{"lock-0000000009", "lock-0000000010", "lock-0000000100"},
		},
		"over the end of the numbers": {
			[]string{"lock--2147483647", "lock--2147483648", "lock-2147483646", "lock-2147483647"},
			[]string{"lock-2147483646", "lock-2147483647", "lock--2147483648", "lock--2147483647"},
		},
		"back to zero": {
			[]string{"lock-0000000000", "lock--000000001", "lock-0000000001"},
			[]string{"lock--000000001", "lock-0000000000", "lock-0000000001"},
		},
		"only places": {
			[]string{"note", "lock-", "lock-1", "lock-00000000010", "seat-0000000001", "lock-0000000002", "lock-2147483648"},
			[]string{"lock-0000000002"},
		},
		"none": {nil, nil},
	} {
		if d := cmp.Diff(c.want, q.InOrder(c.names)); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
}
