package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/member"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestSoakOfDuties: members lead duties while sessions end, connections break, requests and replies are lost, the
// assigner dies, and somebody deletes znodes by hand. A holder that was replaced can never write, epochs only grow, no
// duty is ever in two seats, and at the end every duty is held. With MUSTER_SOAK=1 there are more faults, on three
// servers, whose leader is killed on the way.
func TestSoakOfDuties(t *testing.T) {
	t.Parallel()
	faults, limit := 40, 5*time.Minute
	ensemble := servers
	if os.Getenv("MUSTER_SOAK") != "" {
		faults, limit = 1000, 30*time.Minute
		var err error
		if ensemble, err = zkserver.Start(t.Context(), zkserver.Options{Servers: 3}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ensemble.Stop() })
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	k := newSoak(t, ensemble)
	stop := k.start(ctx)
	k.allHeld(ctx)
	for n := range faults {
		if ctx.Err() != nil {
			t.Fatalf("only %d faults in %s", n, limit)
		}
		if n == faults/2 && ensemble != servers {
			k.killLeader(ctx)
		}
		what := k.fault(ctx)
		t.Logf("%3d: %s", n, what)
		k.checkSeats(ctx)
		if rand.IntN(4) == 0 {
			k.allHeld(ctx)
		}
	}
	k.allHeld(ctx)
	stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	t.Logf("%d takes, %d writes by holders, %d refused to former holders", k.takes, k.writes, k.refused)
	if k.takes < faults/4 || k.refused == 0 {
		t.Errorf("only %d takes and %d refused writes: the faults had no effect", k.takes, k.refused)
	}
}

const soakMembers, soakDuties = 5, 8

// soak is a group whose members lead all duties, each in sessions behind proxies of its own.
type soak struct {
	t        *testing.T
	f        *fixture
	ensemble *zkserver.Ensemble
	proxies  [soakMembers][]*zkserver.Proxy
	duties   []string

	mu                     sync.Mutex
	live                   [soakMembers]*member.Member
	epoch                  map[string]int64 // the newest epoch of each duty whose take has returned
	seen                   map[int64]string // duties by epoch
	takes, writes, refused int
}

func newSoak(t *testing.T, ensemble *zkserver.Ensemble) *soak {
	t.Helper()
	k := &soak{t: t, ensemble: ensemble, epoch: map[string]int64{}, seen: map[int64]string{}}
	for i := range soakDuties {
		k.duties = append(k.duties, fmt.Sprintf("duty-%d", i))
	}
	k.f = newFixtureAt(t, ensemble.Addrs(), k.duties...)
	for i := range k.proxies {
		for _, addr := range ensemble.Addrs() {
			p, err := zkserver.NewProxy(addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			k.proxies[i] = append(k.proxies[i], p)
		}
	}
	return k
}

// start runs the members, until stop.
func (k *soak) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i := range soakMembers {
		running.Go(func() {
			for ctx.Err() == nil {
				k.life(ctx, i)
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

// life is one membership.
func (k *soak) life(ctx context.Context, i int) {
	var addrs []string
	for _, p := range k.proxies[i] {
		addrs = append(addrs, p.Addr())
	}
	// The deadline is for the dial and the join: a fault may have come in between.
	joining, joined := context.WithTimeout(ctx, 20*time.Second)
	defer joined()
	s, err := zkconn.Dial(joining, zkconn.Config{Servers: addrs, Timeout: 2 * time.Second})
	if err != nil {
		return
	}
	defer s.Close()
	m, err := member.Join(joining, s, k.f.config(fmt.Sprintf("m-%d", i), "1.0", k.duties...))
	if err != nil {
		return
	}
	defer m.Leave()
	k.mu.Lock()
	k.live[i] = m
	k.mu.Unlock()
	var leading sync.WaitGroup
	for _, duty := range k.duties {
		leading.Go(func() {
			_ = m.Lead(ctx, duty, func(ctx context.Context, h *member.Hold) error { return k.lead(ctx, h) })
		})
	}
	select {
	case <-m.Context().Done():
	case <-ctx.Done():
		m.Leave()
	}
	leading.Wait()
}

// lead writes as the holder until it is told to stop, and once more after that.
func (k *soak) lead(ctx context.Context, h *member.Hold) error {
	k.mu.Lock()
	k.takes++
	if other, ok := k.seen[h.Epoch]; ok {
		k.t.Errorf("epoch %d of %s was that of %s before", h.Epoch, h.Duty, other)
	}
	k.seen[h.Epoch] = h.Duty
	k.epoch[h.Duty] = max(k.epoch[h.Duty], h.Epoch)
	k.mu.Unlock()
	tick := time.NewTicker(time.Duration(5+rand.IntN(20)) * time.Millisecond)
	defer tick.Stop()
	for last := false; !last; {
		select {
		case <-ctx.Done():
			last = true
		case <-tick.C:
		}
		if ctx.Err() == nil && rand.IntN(300) == 0 {
			if rand.IntN(2) == 0 {
				return nil
			}
			return errors.New("it fails now and then")
		}
		k.write(h)
	}
	return nil
}

// write writes as the holder. If a newer holder had taken the duty before, that must be refused.
func (k *soak) write(h *member.Hold) {
	k.mu.Lock()
	newest := k.epoch[h.Duty]
	k.mu.Unlock()
	err := h.Check(k.t.Context())
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil:
		k.refused++
	case newest > h.Epoch:
		k.t.Errorf("%s: the holder of epoch %d could write after %d had taken it", h.Duty, h.Epoch, newest)
	default:
		k.writes++
	}
}

// fault makes something go wrong for a random member.
func (k *soak) fault(ctx context.Context) string {
	i := rand.IntN(soakMembers)
	k.mu.Lock()
	m := k.live[i]
	k.mu.Unlock()
	multi := func(op int32, _ []byte) bool { return op == zkserver.OpMulti }
	duty := k.duties[rand.IntN(soakDuties)]
	switch rand.IntN(10) {
	case 0:
		m.Leave()
		return fmt.Sprintf("%s leaves", m.Identity)
	case 1:
		for _, p := range k.proxies[i] {
			p.Refuse(true)
			p.Cut()
		}
		select {
		case <-m.Context().Done():
		case <-ctx.Done():
		}
		for _, p := range k.proxies[i] {
			p.Refuse(false)
		}
		return fmt.Sprintf("%s is cut off until its session ends", m.Identity)
	case 2:
		for _, p := range k.proxies[i] {
			p.Cut()
		}
		return fmt.Sprintf("the connection of %s is cut", m.Identity)
	case 3, 4:
		for _, p := range k.proxies[i] {
			p.DropReply(multi)
		}
		k.ask(ctx, duty)
		return fmt.Sprintf("%s gets no reply to its next transaction, and %s is handed over", m.Identity, duty)
	case 5:
		for _, p := range k.proxies[i] {
			p.BeforeSend(multi)
		}
		k.ask(ctx, duty)
		return fmt.Sprintf("the next transaction of %s is lost, and %s is handed over", m.Identity, duty)
	case 6:
		return "the assigner " + k.killAssigner(ctx)
	case 7:
		k.remove(ctx, "duty/"+duty+"/held")
		return "somebody deletes held of " + duty
	case 8:
		names := k.names(ctx, "seat")
		if len(names) == 0 {
			return "nobody is live"
		}
		name := names[rand.IntN(len(names))]
		k.remove(ctx, "seat/"+name)
		return "somebody deletes " + name
	default:
		if rand.IntN(2) == 0 {
			k.remove(ctx, "duty/"+duty+"/held", "duty/"+duty)
			return "somebody deletes " + duty
		}
		k.removeAt(ctx, k.f.group.Path()+"/"+m.Identity)
		return "somebody deletes the live znode of " + m.Identity
	}
}

// killAssigner ends the session of the first seat, in the middle of what it does.
func (k *soak) killAssigner(ctx context.Context) string {
	names := k.names(ctx, "seat")
	if len(names) == 0 {
		return "is nobody"
	}
	k.ask(ctx, k.duties[0])
	body, _, err := k.f.s.Get(ctx, k.f.run("seat/"+names[0]))
	seat, _ := znode.Decode[znode.Seat](body)
	var i int
	if _, scanned := fmt.Sscanf(seat.Identity, "m-%d", &i); err != nil || scanned != nil {
		return "is gone already"
	}
	roster := func(op int32, req []byte) bool {
		return op == zkserver.OpMulti && bytes.Contains(req, []byte(k.f.run("assigner")))
	}
	for _, p := range k.proxies[i] {
		p.DropReply(roster)
	}
	k.mu.Lock()
	m := k.live[i]
	k.mu.Unlock()
	m.Leave()
	return seat.Identity + " dies"
}

// ask asks for a hand-over.
func (k *soak) ask(ctx context.Context, duty string) {
	body, _ := znode.Encode(znode.Ask{Do: znode.AskHandover, Duty: duty, By: "soak"})
	_, err := k.f.s.Create(ctx, k.f.run("ask/a-"), body, zkconn.PersistentSequential, k.f.acl())
	if err != nil && !errors.Is(err, zkconn.ErrUnknown) {
		k.t.Fatal(err)
	}
}

// remove deletes znodes of the generation by hand, if they are there.
func (k *soak) remove(ctx context.Context, below ...string) {
	paths := make([]string, len(below))
	for i, b := range below {
		paths[i] = k.f.run(b)
	}
	k.removeAt(ctx, paths...)
}

func (k *soak) removeAt(ctx context.Context, paths ...string) {
	ops := make([]zkconn.Op, len(paths))
	for i, p := range paths {
		ops[i] = zkconn.DeleteOp(p, -1)
	}
	_, err := k.f.s.Multi(ctx, ops...)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) && !errors.Is(err, zkconn.ErrUnknown) {
		k.t.Fatal(err)
	}
}

func (k *soak) names(ctx context.Context, below string) []string {
	names, _, err := k.f.s.Children(ctx, k.f.run(below))
	if err != nil {
		k.t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// checkSeats reads all seats between two transactions of assigners. No duty may be in two of them.
func (k *soak) checkSeats(ctx context.Context) {
	k.t.Helper()
	version := func() int32 {
		_, stat, err := k.f.s.Get(ctx, k.f.run("assigner"))
		if err != nil {
			k.t.Fatal(err)
		}
		return stat.Version
	}
	for ctx.Err() == nil {
		before, had, twice := version(), map[string]string{}, ""
		for _, name := range k.names(ctx, "seat") {
			body, _, err := k.f.s.Get(ctx, k.f.run("seat/"+name))
			seat, decoded := znode.Decode[znode.Seat](body)
			if err != nil || decoded != nil {
				continue // it has just gone
			}
			for _, d := range seat.Duties {
				if had[d] != "" {
					twice = fmt.Sprintf("%s is in %s and %s", d, had[d], name)
				}
				had[d] = name
			}
		}
		if version() == before {
			if twice != "" {
				k.t.Error(twice)
			}
			return
		}
	}
}

// allHeld waits until each duty is held.
func (k *soak) allHeld(ctx context.Context) {
	k.t.Helper()
	var vacant []string
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		vacant = nil
		for _, duty := range k.duties {
			if _, there, err := k.f.s.Exists(ctx, k.f.run("duty/"+duty+"/held")); err != nil || !there {
				vacant = append(vacant, duty)
			}
		}
		if len(vacant) == 0 {
			return
		}
		<-tick.C
	}
	k.t.Fatalf("vacant: %q", vacant)
}

// killLeader kills ZooKeeper's leader, and starts it again.
func (k *soak) killLeader(ctx context.Context) {
	i, err := k.ensemble.Leader(ctx)
	if err == nil {
		err = k.ensemble.Server(i).Kill()
	}
	if err == nil {
		err = k.ensemble.Server(i).Restart(ctx)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}
