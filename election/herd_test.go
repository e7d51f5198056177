package election_test

import (
	"strconv"
	"testing"
	"time"

	"muster/zkserver"
)

// TestOneThatGoesWakesOne: of many waiters each has one watch, and each reads the queue twice: when it comes, and when
// the one before it has gone.
func TestOneThatGoesWakesOne(t *testing.T) {
	const many = 60
	b, proxy := newBed(t), newProxy(t)
	first := b.join()
	b.lead(first)
	before := watches(t)
	waiters := make([]*waiter, many)
	for i := range waiters {
		waiters[i] = b.await(t.Context(), b.join(dial(t, 30*time.Second, proxy.Addr())))
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for watches(t) < before+many { // ends with the test's deadline at the latest
		<-tick.C
	}
	if n := watches(t) - before; n != many {
		t.Errorf("%d waiters have %d watches", many, n)
	}
	b.leave(first)
	for _, w := range waiters {
		b.leads(w)
		b.leave(w.place)
	}
	requests := proxy.Requests()
	if n := requests[zkserver.OpGetChildren2]; n != 2*many {
		t.Errorf("%d waiters read the queue %d times; want each twice", many, n)
	}
	// At the place before, to wait; at its own, to hold it and to leave it.
	if n := requests[zkserver.OpExists]; n != 3*many {
		t.Errorf("%d waiters looked at a place %d times; want each three times", many, n)
	}
}

// watches is how many the server keeps.
func watches(t *testing.T) int {
	t.Helper()
	facts, err := servers.Server(0).Mntr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(facts["zk_watch_count"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
