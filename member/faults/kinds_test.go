package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"muster/dev/fault"
	"muster/plan"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// faultKind is a kind of fault. make makes it happen and ends it; p is nil for a fault that is not one member's.
type faultKind struct {
	name    string
	weight  int
	ofAll   bool // there is only one of these at a time
	ofClock bool
	make    func(k *soakRun, p *process, random *rand.Rand) error
}

// kindsOfFaults lists all of them.
func kindsOfFaults() []faultKind {
	return []faultKind{
		{name: "kill -9 of a member", weight: 4, make: killMember},
		{name: "a member leaves and comes back, maybe with another version", weight: 4, make: restartMember},
		{name: "a member is frozen", weight: 4, make: freezeMember},
		{name: "connections are cut", weight: 3, make: cutConnections},
		{name: "the servers cannot be reached", weight: 3, make: partition},
		{name: "the network holds everything back", weight: 3, make: hang},
		{name: "a reply is dropped", weight: 5, make: dropReply},
		{name: "a request is lost", weight: 2, make: loseRequest},
		{name: "a command is killed", weight: 3, make: killCommand},
		{name: "a guard is killed", weight: 2, make: killGuard},
		{name: "a clock is wrong", weight: 3, ofClock: true, make: wrongClock},
		{name: "ZooKeeper's leader is killed", weight: 1, ofAll: true, make: killLeader},
		{name: "a server is frozen", weight: 1, ofAll: true, make: freezeServer},
		{name: "the group is applied with another label", weight: 1, ofAll: true, make: applyGroup},
		{name: "an operator has a duty handed over", weight: 2, ofAll: true, make: handOver},
	}
}

func killMember(k *soakRun, p *process, random *rand.Rand) error {
	p.kill()
	zkconn.Pause(k.t.Context(), rig.Between(random, 0, sessionTimeout))
	return p.start()
}

func restartMember(k *soakRun, p *process, random *rand.Rand) error {
	if err := p.leave(time.Minute); err != nil {
		return err
	}
	if left := k.commandsOf(p.identity); len(left) > 0 {
		return fmt.Errorf("%s has left, and its commands live: %v", p.identity, left)
	}
	if random.IntN(2) == 0 {
		p.version = map[string]string{"1.9.0": "2.0.0", "2.0.0": "1.9.0"}[p.version]
	}
	zkconn.Pause(k.t.Context(), rig.Between(random, 0, time.Second))
	return p.start()
}

// freezeMember freezes the process of the member alone. If that takes longer than its session, its guards must end its
// commands while it is frozen. That they do so in time, overlaps would show.
func freezeMember(k *soakRun, p *process, random *rand.Rand) error {
	long := rig.Between(random, sessionTimeout/4, frozenFor)
	if err := p.freeze(); err != nil {
		return err
	}
	zkconn.Pause(k.t.Context(), long)
	for late := time.Now().Add(time.Minute); long > sessionTimeout; zkconn.Pause(k.t.Context(), rig.PollEvery) {
		left := k.commandsOf(p.identity)
		if len(left) == 0 {
			break
		}
		if time.Now().After(late) {
			return fmt.Errorf("%s is frozen, and its commands live: %v", p.identity, left)
		}
	}
	return p.thaw()
}

func cutConnections(k *soakRun, p *process, random *rand.Rand) error {
	for range 1 + random.IntN(3) {
		for _, proxy := range p.proxies {
			proxy.Cut()
		}
		zkconn.Pause(k.t.Context(), rig.Between(random, 0, 500*time.Millisecond))
	}
	return nil
}

func partition(k *soakRun, p *process, random *rand.Rand) error {
	if err := p.cutOff(); err != nil {
		return err
	}
	zkconn.Pause(k.t.Context(), rig.Between(random, 100*time.Millisecond, frozenFor))
	return p.reachable()
}

func hang(k *soakRun, p *process, random *rand.Rand) error {
	if err := p.holdBack(); err != nil {
		return err
	}
	zkconn.Pause(k.t.Context(), rig.Between(random, 100*time.Millisecond, frozenFor))
	return p.letGo()
}

// isWrite reports whether a request changes something.
func isWrite(op int32, _ []byte) bool {
	return slices.Contains([]int32{fault.OpMulti, fault.OpCreate, fault.OpSetData, fault.OpDelete}, op)
}

func dropReply(k *soakRun, p *process, _ *rand.Rand) error {
	return armed(k, p, func(proxy *fault.Proxy) <-chan struct{} { return proxy.DropReply(isWrite) })
}

func loseRequest(k *soakRun, p *process, _ *rand.Rand) error {
	return armed(k, p, func(proxy *fault.Proxy) <-chan struct{} { return proxy.BeforeSend(isWrite) })
}

// armed waits for a fault of the next write of the member. A member without duties may write nothing for a while: the
// fault stays and happens later.
func armed(k *soakRun, p *process, arm func(*fault.Proxy) <-chan struct{}) error {
	happened := make(chan struct{}, len(p.proxies))
	for _, proxy := range p.proxies {
		done := arm(proxy)
		k.running.Go(func() {
			select {
			case <-done:
				happened <- struct{}{}
			case <-k.t.Context().Done():
			case <-time.After(sessionTimeout):
			}
		})
	}
	select {
	case <-happened:
	case <-time.After(sessionTimeout):
	case <-k.t.Context().Done():
	}
	return nil
}

// killCommand kills a command of a duty, if the member has one now.
func killCommand(k *soakRun, p *process, _ *rand.Rand) error {
	for pid := range k.commandsOf(p.identity) {
		return k.killIf(pid, func() bool { return k.commandsOf(p.identity)[pid] != "" })
	}
	return nil
}

// killGuard kills the guard of a command, if the member has one now.
func killGuard(k *soakRun, p *process, _ *rand.Rand) error {
	for pid := range k.commandsOf(p.identity) {
		guard := parentOf(pid)
		return k.killIf(guard, func() bool {
			return guard > 1 && parentOf(pid) == guard && parentOf(guard) == p.run.OS.Pid
		})
	}
	return nil
}

// killIf kills a process that this test has started, if it still is the one that is meant after it was found.
func (k *soakRun) killIf(pid int, same func() bool) error {
	found, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer found.Release()
	if same() {
		_ = found.Kill() // it may have ended
	}
	return nil
}

// parentOf is the process id of a parent; 0 if the process has ended.
func parentOf(pid int) (parent int) {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(body), ") ") // after the name
	var state string
	if _, err := fmt.Sscan(rest, &state, &parent); err != nil {
		return 0
	}
	return parent
}

func wrongClock(k *soakRun, p *process, random *rand.Rand) error {
	by := rig.Between(random, 20*time.Second, 10*time.Minute)
	if random.IntN(2) == 0 {
		by = -by
	}
	if err := p.shift(by); err != nil {
		return err
	}
	zkconn.Pause(k.t.Context(), rig.Between(random, time.Second, 15*time.Second))
	return p.shift(0)
}

func killLeader(k *soakRun, _ *process, random *rand.Rand) error {
	ctx, cancel := k.withLimit(2 * time.Minute)
	defer cancel()
	i, err := k.ensemble.Leader(ctx)
	if err != nil {
		return err
	}
	if err := k.ensemble.Server(i).Kill(); err != nil {
		return err
	}
	zkconn.Pause(ctx, rig.Between(random, 0, 3*time.Second))
	return k.ensemble.Server(i).Restart(ctx)
}

func freezeServer(k *soakRun, _ *process, random *rand.Rand) error {
	s := k.ensemble.Server(random.IntN(3))
	if err := s.Pause(); err != nil {
		return err
	}
	zkconn.Pause(k.t.Context(), rig.Between(random, 100*time.Millisecond, frozenFor))
	return s.Resume()
}

// applyGroup changes the Record, which every member reads again. While a server is down it may fail.
func applyGroup(k *soakRun, _ *process, random *rand.Rand) error {
	store, err := k.aside()
	if err != nil {
		return err
	}
	defer store.s.Close()
	ctx, cancel := k.withLimit(time.Minute)
	defer cancel()
	old, err := store.Look(ctx, k.group.Path())
	if err != nil {
		return err
	}
	next := k.group
	next.Labels = map[string]string{"edit": fmt.Sprint(random.Int())}
	return store.Commit(ctx, plan.Row{Path: next.Path(), Old: old, New: next, Reason: plan.MutableDiffers})
}

// handOver asks the assigner to give a duty to another member.
func handOver(k *soakRun, _ *process, random *rand.Rand) error {
	store, err := k.aside()
	if err != nil {
		return err
	}
	defer store.s.Close()
	d := k.group.Duties[random.IntN(len(k.group.Duties))]
	body, err := znode.Encode(znode.Ask{Do: znode.AskHandover, Duty: d.Name, By: "root@here"})
	if err != nil {
		return err
	}
	_, err = store.s.Create(k.t.Context(), znode.NewAsk(k.group.Root, k.generation), body, zkconn.PersistentSequential,
		zkconn.World(zkconn.PermAll))
	return err
}

// aside is a store in a session of its own.
func (k *soakRun) aside() (o operator, err error) {
	if o.s, err = zkconn.Dial(k.t.Context(), zkconn.Config{
		Servers: k.ensemble.Addrs(), Timeout: 30 * time.Second,
	}); err != nil {
		return o, err
	}
	o.Store, err = zkstate.NewStore(o.s, zkstate.Config{
		Home: k.group.Root + "/home", Stack: "tests", Kinds: []zkstate.Kind{zkstate.Group()},
	})
	return o, err
}

// operator is somebody with a session.
type operator struct {
	*zkstate.Store
	s *zkconn.Session
}
