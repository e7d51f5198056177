package election_test

import (
	"strconv"
	"testing"
	"time"

	"muster/dev/zkserver"
)

// TestNoHerdEffect: each of many waiters has one watch, and reads the queue twice: when it joins, and when the place
// before it is gone.
func TestNoHerdEffect(t *testing.T) {
	const many = 60
	f, proxy := newFixture(t), newProxy(t)
	before := watches(t) + 1 // the leader's, which it sets in the background
	first := f.join()
	f.lead(first)
	waiters := make([]*waiter, many)
	for i := range waiters {
		waiters[i] = f.await(t.Context(), f.join(dial(t, 30*time.Second, proxy.Addr())))
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for watches(t) < before+many { // ends with the test's deadline at the latest
		<-tick.C
	}
	if n := watches(t) - before; n != many {
		t.Errorf("%d waiters have %d watches", many, n)
	}
	f.leave(first)
	for _, w := range waiters {
		f.leads(w)
		f.leave(w.place)
	}
	requests := proxy.Requests()
	if n := requests[zkserver.OpGetChildren2]; n != 2*many {
		t.Errorf("%d waiters read the queue %d times; want each twice", many, n)
	}
	// Each checks the place before it once, to wait, and its own once, to leave it; what it holds it reads.
	if n := requests[zkserver.OpExists]; n != 2*many {
		t.Errorf("%d waiters checked a place %d times; want each twice", many, n)
	}
}

// watches is the number of watches on the server.
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
