// Package differ holds package zkmodel against real ZooKeeper servers. Random traces run on both, and each reply, Stat
// and event must be the same. So must be the results of the recipes of kazoo, a client that others wrote. It has only
// tests. This one runs new traces for an hour:
//
//	go test ./dev/zkmodel/differ -run AreTheModel -differ.for 1h
package differ

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/sim/rig"
)

// traceLength is how many lines a trace has, without those that end its sessions.
const traceLength = 250

var differFor = flag.Duration("differ.for", 0,
	"how long to hold the model against real servers; 0: for as many operations as make test, or make soak, wants")

// TestRealServersAreTheModel holds the model against real servers: random traces run on both, and each reply, Stat and
// event must be the same.
func TestRealServersAreTheModel(t *testing.T) {
	for _, one := range []struct {
		servers, operations, soak int
	}{{1, 9_000, 140_000}, {3, 4_500, 70_000}} {
		t.Run(fmt.Sprintf("servers=%d", one.servers), func(t *testing.T) {
			t.Parallel()
			h := &holding{operations: one.operations, until: time.Now().Add(*differFor), kinds: map[string]int{}}
			if rig.Long() {
				h.operations = one.soak
			}
			h.run(t, startServers(t, one.servers))
		})
	}
}

// holding is the model held against servers, and what came of it.
type holding struct {
	operations int       // to run at least
	until      time.Time // when to end at the earliest

	traces, done, compared int
	kinds                  map[string]int // what the real servers answered
}

func (h *holding) run(t *testing.T, s *servers) {
	if err := play(s, oddPaths()); err != nil {
		report(t, s, 0, oddPaths(), err)
	}
	seed, begun := rig.Seed(t), time.Now()
	for ; h.done < h.operations || time.Now().Before(h.until); h.traces++ {
		trace, p, err := invent(s, seed+uint64(h.traces))
		if err != nil {
			report(t, s, seed+uint64(h.traces), trace, err)
		}
		h.done += p.real.answers
		h.compared += p.compared
		for kind, n := range p.real.kinds {
			h.kinds[kind] += n
		}
	}
	var kinds strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(h.kinds)) {
		fmt.Fprintf(&kinds, "\n%8d %s", h.kinds[kind], kind)
	}
	for _, kind := range strings.Split(strings.Join(strings.Fields(wanted), " "), ", ") {
		if h.kinds[kind] == 0 {
			t.Errorf("no trace met this: %s", kind)
		}
	}
	t.Logf("%d operations in %d traces, %.0f a second; %d replies and events compared:%s",
		h.done, h.traces, float64(h.done)/time.Since(begun).Seconds(), h.compared, kinds.String())
}

// wanted is what the real servers must have answered at least once: requests and errors, and events by their types.
const wanted = `
	create 0, create -8, create -101, create -102, create -108, create -110, create -114, create2 0, create2 -101,
	create2 -108, create2 -110, create2 -114, delete 0, delete -8, delete -101, delete -103, delete -111, setData 0,
	setData -8, setData -101, setData -103, exists 0, exists -101, getData 0, getData -101, getData -102, getChildren 0,
	getChildren2 0, getACL 0, setACL 0, setACL -101, setACL -103, sync 0, ping 0, setWatches 0, multi 0,
	multi with create, multi with delete, multi with setData, multi with check, part of a multi 0,
	part of a multi -2, part of a multi -8, part of a multi -101, part of a multi -102, part of a multi -103,
	part of a multi -108, part of a multi -110, part of a multi -111, part of a multi -114, auth 0, auth -115, close 0,
	event 1, event 2, event 3, event 4, handshake accepted true, handshake accepted false, closed`

// invent runs a new trace. It returns what was run, also if there is a difference.
func invent(s *servers, seed uint64) ([]op, *pair, error) {
	p, err := newPair(s)
	if err != nil {
		return nil, nil, err
	}
	g := newGenerator(p, seed)
	var trace []op
	for err == nil && len(trace) < traceLength {
		o := g.next()
		trace = append(trace, o)
		err = p.step(o)
	}
	if err == nil {
		err = p.finish()
	}
	return trace, p, errors.Join(err, p.clean(err != nil))
}

// play runs a trace that exists.
func play(s *servers, trace []op) error {
	p, err := newPair(s)
	if err != nil {
		return err
	}
	for _, o := range trace {
		if err = p.step(o); err != nil {
			break
		}
	}
	if err == nil {
		err = p.finish()
	}
	return errors.Join(err, p.clean(err != nil))
}

// report shrinks a trace that differs, and ends the test with it.
func report(t *testing.T, s *servers, seed uint64, trace []op, found error) {
	t.Helper()
	var d *difference
	if !errors.As(found, &d) {
		t.Fatalf("MUSTER_SEED=%d, after %d lines: %v", seed, len(trace), found)
	}
	short, again := shrink(s, trace)
	if again == nil {
		t.Fatalf("MUSTER_SEED=%d: the model and the real servers differed once, and not again:\n%v", seed, found)
	}
	var b strings.Builder
	for i, o := range short {
		fmt.Fprintf(&b, "%3d %s\n", i+1, o)
	}
	t.Fatalf("MUSTER_SEED=%d: the model and the real servers differ:\n%s%v", seed, b.String(), again)
}
