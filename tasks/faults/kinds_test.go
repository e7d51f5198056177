package faults

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster/dev/fault"
	"muster/plan"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// subject is what a fault happens to. Of each there is one fault at a time, but each process has its own.
type subject string

const (
	toProcess   subject = "a process"
	toExecutor  subject = "an executor"
	toWatcher   subject = "a watcher"
	toCommand   subject = "a command"
	toRedis     subject = "Redis"
	toZooKeeper subject = "ZooKeeper"
	toQueue     subject = "the queue"
	toAll       subject = "all executors"
)

// faultKind is a kind of fault. make makes it happen and ends it; p is nil if it is not one process's.
type faultKind struct {
	name   string
	to     subject
	weight int // how often it is in the deck
	make   func(k *soakRun, p *process, random *rand.Rand) error
}

// faults lists all of them.
func faults() []faultKind {
	const short = 100 * time.Millisecond
	frozen := lasting(sessionTimeout/4, frozenFor, signals(syscall.SIGSTOP, syscall.SIGCONT))
	stopped := lasting(0, sessionTimeout, signals(syscall.SIGTSTP, syscall.SIGCONT))
	hang := (*fault.Proxy).Hang
	return []faultKind{
		{"an executor is killed", toExecutor, 4, killProcess},
		{"a watcher is killed", toWatcher, 2, killProcess},
		{"a process leaves and comes back", toProcess, 3, restartProcess},
		{"an executor is frozen", toExecutor, 3, frozen},
		{"a watcher is frozen", toWatcher, 2, frozen},
		{"an executor is stopped and goes on", toExecutor, 2, stopped},
		{"connections to ZooKeeper are cut", toProcess, 3, cutConnections},
		{"ZooKeeper cannot be reached", toProcess, 2, lasting(short, frozenFor, proxied(cutOff))},
		{"the network to ZooKeeper holds everything back", toProcess, 2, lasting(short, frozenFor, proxied(hang))},
		{"a reply of ZooKeeper is dropped", toProcess, 3, dropReply},
		{"a request to ZooKeeper is lost", toProcess, 2, loseRequest},
		{"a command is killed", toCommand, 4, killCommand},
		{"all executors are killed", toAll, 1, killAll},
		{"ZooKeeper's leader is killed", toZooKeeper, 2, killLeader},
		{"a ZooKeeper server is frozen", toZooKeeper, 2, freezeServer},
		{"Redis is killed", toRedis, 2, killRedis},
		{"Redis is frozen", toRedis, 2, lasting(short, frozenFor, pausesRedis)},
		{"Redis cannot be reached", toRedis, 2, lasting(short, frozenFor, ofRedis(cutOff))},
		{"all connections to Redis are cut", toRedis, 2, cutRedis},
		{"one connection to Redis is closed", toRedis, 3, closeOne},
		{"replies of Redis are lost", toRedis, 4, loseReplies},
		{"the network to Redis holds everything back", toRedis, 2, lasting(short, frozenFor, ofRedis(hang))},
		{"Redis forgets the scripts", toRedis, 2, flushScripts},
		{"the queue is applied with another label", toQueue, 2, applyQueue},
		{"a batch is paused and resumed", toQueue, 3, pauseBatch},
	}
}

// lasting is a fault that ends after a while: set begins it, and ends it.
func lasting(
	least, most time.Duration, set func(k *soakRun, p *process, on bool) error,
) func(*soakRun, *process, *rand.Rand) error {
	return func(k *soakRun, p *process, random *rand.Rand) error {
		if err := set(k, p, true); err != nil {
			return err
		}
		zkconn.Pause(k.t.Context(), rig.Between(random, least, most))
		return set(k, p, false)
	}
}

// signals sends a process one signal, and later another.
func signals(begin, end syscall.Signal) func(*soakRun, *process, bool) error {
	return func(_ *soakRun, p *process, on bool) error {
		if on {
			return p.signal(begin)
		}
		return p.signal(end)
	}
}

// proxied does something to the connections of a process to ZooKeeper, and ofRedis to those of all to Redis.
func proxied(set func(*fault.Proxy, bool)) func(*soakRun, *process, bool) error {
	return func(_ *soakRun, p *process, on bool) error {
		p.each(func(proxy *fault.Proxy) { set(proxy, on) })
		return nil
	}
}

func ofRedis(set func(*fault.Proxy, bool)) func(*soakRun, *process, bool) error {
	return func(k *soakRun, _ *process, on bool) error {
		set(k.proxy, on)
		return nil
	}
}

func cutOff(p *fault.Proxy, on bool) {
	if p.Refuse(on); on {
		p.Cut()
	}
}

func pausesRedis(k *soakRun, _ *process, on bool) error {
	if on {
		return k.redis.Pause()
	}
	return k.redis.Resume()
}

func killProcess(k *soakRun, p *process, random *rand.Rand) error {
	p.kill()
	zkconn.Pause(k.t.Context(), rig.Between(random, 0, sessionTimeout))
	return p.start()
}

func restartProcess(k *soakRun, p *process, random *rand.Rand) error {
	if err := p.leave(patience); err != nil {
		return err
	}
	if code := p.run.Code(); code != 0 && code != 143 {
		return fmt.Errorf("%s was asked to leave, and ended with %d", p.name, code)
	}
	zkconn.Pause(k.t.Context(), rig.Between(random, 0, time.Second))
	return p.start()
}

func cutConnections(k *soakRun, p *process, random *rand.Rand) error {
	for range 1 + random.IntN(3) {
		p.each((*fault.Proxy).Cut)
		zkconn.Pause(k.t.Context(), rig.Between(random, 0, 500*time.Millisecond))
	}
	return nil
}

// isWrite reports whether a request changes something.
func isWrite(op int32, _ []byte) bool {
	return slices.Contains([]int32{fault.OpMulti, fault.OpCreate, fault.OpSetData, fault.OpDelete}, op)
}

// dropReply drops the next reply to a write. A process may write nothing for a while: the fault stays and happens
// later, at the latest when it comes back.
func dropReply(k *soakRun, p *process, random *rand.Rand) error {
	p.each(func(proxy *fault.Proxy) { proxy.DropReply(isWrite) })
	return cutConnections(k, p, random)
}

func loseRequest(k *soakRun, p *process, random *rand.Rand) error {
	p.each(func(proxy *fault.Proxy) { proxy.BeforeSend(isWrite) })
	return cutConnections(k, p, random)
}

func killCommand(k *soakRun, _ *process, random *rand.Rand) error {
	return k.world.killCommand(random.IntN)
}

// killAll kills all executors to which nothing else happens: an outage.
func killAll(k *soakRun, _ *process, random *rand.Rand) error {
	mine := k.takeAll(func(p *process) bool { return isExecutor(p) })
	defer k.giveBack(mine...)
	for _, p := range mine {
		p.kill()
	}
	zkconn.Pause(k.t.Context(), rig.Between(random, 0, sessionTimeout))
	for _, p := range mine {
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

func killLeader(k *soakRun, _ *process, random *rand.Rand) error {
	ctx, cancel := k.withLimit(patience)
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

func killRedis(k *soakRun, _ *process, random *rand.Rand) error {
	ctx, cancel := k.withLimit(patience)
	defer cancel()
	if err := k.redis.Kill(); err != nil {
		return err
	}
	zkconn.Pause(ctx, rig.Between(random, 0, 3*time.Second))
	return k.redis.Restart(ctx)
}

func cutRedis(k *soakRun, _ *process, random *rand.Rand) error {
	for range 1 + random.IntN(5) {
		k.proxy.Cut()
		zkconn.Pause(k.t.Context(), rig.Between(random, 0, 300*time.Millisecond))
	}
	return nil
}

// closeOne closes one of the connections that Redis has.
func closeOne(k *soakRun, _ *process, random *rand.Rand) error {
	c, _ := k.books()
	ids := regexp.MustCompile(`(?m)^id=(\d+)`).FindAllStringSubmatch(c.ClientList(k.t.Context()).Val(), -1)
	if len(ids) > 0 {
		_ = c.ClientKillByFilter(k.t.Context(), "ID", ids[random.IntN(len(ids))][1]).Err() // it may be this one
	}
	return nil
}

// loseReplies lets Redis run what is sent to it for a moment, and loses all that it answers.
func loseReplies(k *soakRun, _ *process, random *rand.Rand) error {
	for range 1 + random.IntN(3) {
		k.proxy.Mute(true)
		zkconn.Pause(k.t.Context(), rig.Between(random, 0, 300*time.Millisecond))
		k.proxy.Cut()
		k.proxy.Mute(false)
		zkconn.Pause(k.t.Context(), rig.Between(random, 0, 300*time.Millisecond))
	}
	return nil
}

func flushScripts(k *soakRun, _ *process, _ *rand.Rand) error {
	c, _ := k.books()
	_ = c.ScriptFlush(k.t.Context()).Err() // Redis may be down
	return nil
}

// applyQueue changes the Record, which every process reads again. While a server is down it may fail.
func applyQueue(k *soakRun, _ *process, random *rand.Rand) error {
	store, s, err := k.aside()
	if err != nil {
		return nil
	}
	defer s.Close()
	ctx, cancel := k.withLimit(time.Minute)
	defer cancel()
	old, err := store.Look(ctx, k.queue.Path())
	if err != nil {
		return nil
	}
	next := k.queue
	next.Labels = map[string]string{"edit": fmt.Sprint(random.Int())}
	_ = store.Commit(ctx, plan.Row{Path: next.Path(), Old: old, New: next, Reason: plan.MutableDiffers})
	return nil
}

// pauseBatch pauses an unfinished batch for a while. It may end before it is paused, but once paused it must be
// resumed.
func pauseBatch(k *soakRun, _ *process, random *rand.Rand) error {
	_, s, err := k.aside()
	if err != nil {
		return nil
	}
	defer s.Close()
	ctx, cancel := k.withLimit(2 * patience)
	defer cancel()
	ids, _, err := s.Children(ctx, znode.Batches(k.queue.Root, k.generation))
	if err != nil || len(ids) == 0 {
		return nil
	}
	id := ids[random.IntN(len(ids))]
	at := k.queue.Name + "/" + id
	_, _ = k.muster("queue", "pause", at) // it may have ended; or a server is down, and nobody knows whether it is paused
	zkconn.Pause(k.t.Context(), rig.Between(random, 0, 3*time.Second))
	for late := time.Now().Add(patience); ; zkconn.Pause(ctx, rig.PollEvery) {
		out, err := k.muster("queue", "resume", at)
		if err == nil {
			return nil
		}
		if _, there, look := s.Exists(ctx, znode.Batch(k.queue.Root, k.generation, id)); look == nil && !there {
			return nil // cancelled by nobody: it was discarded or its time had come
		}
		if time.Now().After(late) {
			return fmt.Errorf("resume %s: %w\n%s", at, err, strings.TrimSpace(out))
		}
	}
}

// aside is a store in a session of its own.
func (k *soakRun) aside() (store *zkstate.Store, s *zkconn.Session, err error) {
	ctx, cancel := k.withLimit(time.Minute)
	defer cancel()
	s, err = zkconn.Dial(ctx, zkconn.Config{Servers: k.ensemble.Addrs(), Timeout: calmTimeout})
	if err != nil {
		return nil, nil, err
	}
	if store, err = newStore(s, k.queue); err != nil {
		_ = s.Close()
	}
	return store, s, err
}

func isExecutor(p *process) bool { return !slices.Contains(p.argv, "watcher") }
