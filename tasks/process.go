package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Process is a live executor or watcher of a queue. It is one until its Context ends.
//
// It watches its live znode, its seat and the Record. It does not make the first two again if somebody deletes them by
// hand, since another process may have what it held. A Record that is gone is no end: apply never deletes a queue with
// live processes, so somebody deleted it by hand, and apply puts it back.
type Process struct {
	Identity   string
	Generation string
	Seat       string // the hex czxid of its seat's znode: its name in Redis

	session *zkconn.Session
	acl     []zkconn.ACL
	client  *redis.Client
	store   *store.Queue
	log     *slog.Logger
	config  Config
	limits  keepLimits
	nonce   string
	seat    string // path

	joined, joinedHere time.Time // by ZooKeeper's clock, and at the latest by ours

	ctx   context.Context // ends with the membership
	end   context.CancelCauseFunc
	tasks sync.WaitGroup // what start and background have begun

	starting sync.Mutex // held while background begins something

	calls     chan struct{} // holds one token while no call is under way; it guards the next two
	seq       int64         // the seat's last one, or a larger one
	unknown   error         // a call before had an unknown outcome
	manifests manifests
	waiter    waiter

	mu      sync.Mutex
	queue   queue.Queue // as the Record declares it now
	stop    bool        // the processes were asked to stop
	changed chan struct{}
	away    int // failures of Redis in a row
}

func newProcess(j *join, seat string, stat zkconn.Stat, acl []zkconn.ACL) *Process {
	p := &Process{
		Identity: j.c.Identity, Generation: j.rec.Generation, Seat: hex(stat.Czxid),
		session: j.s, acl: acl, client: j.client, store: open(j.client, j.queue, j.rec.Generation),
		log: j.c.Log, config: j.c, nonce: j.nonce, seat: seat,
		limits: j.c.limits(j.queue), joined: stat.Ctime, joinedHere: time.Now(),
		calls: make(chan struct{}, 1), queue: j.queue, changed: make(chan struct{}),
		waiter: waiter{wake: make(chan struct{}, 1)},
	}
	p.calls <- struct{}{}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.ctx, p.end = context.WithCancelCause(j.s.Context())
	return p
}

// hex is how Redis names what a transaction of ZooKeeper created.
func hex(czxid int64) string { return strconv.FormatInt(czxid, 16) }

// Context ends when the membership does. Its cause is ErrSessionLost, ErrRemoved, context.Canceled after Leave, or an
// error of zkconn, such as ErrNoAuth, if ZooKeeper refuses what a process needs. Stop commands at its end, and not
// before: while ZooKeeper is silent they keep working.
func (p *Process) Context() context.Context { return p.ctx }

// Session is the session of the process.
func (p *Process) Session() *zkconn.Session { return p.session }

// Store is what the queue keeps in Redis.
func (p *Process) Store() *store.Queue { return p.store }

// Client is the connection to Redis.
func (p *Process) Client() *redis.Client { return p.client }

// Queue is the queue as it is declared now.
func (p *Process) Queue() queue.Queue {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue
}

// Connected reports whether ZooKeeper has answered lately. A process takes nothing while it has not.
func (p *Process) Connected() bool {
	return p.ctx.Err() == nil && time.Since(p.session.Answered()) < p.session.Timeout()/2
}

// Ready reports whether this process can take something now: ZooKeeper and Redis answer.
func (p *Process) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away == 0 && p.Connected()
}

// start watches in the background until the membership ends.
func (p *Process) start() *Process {
	p.tasks.Go(func() { p.follow(p.live(), p.checkLive) })
	p.tasks.Go(func() { p.follow(p.seat, p.checkSeat) })
	p.tasks.Go(func() { p.follow(p.recordPath(), p.readRecord) })
	p.tasks.Go(func() { p.session.Probe(p.ctx, p.live()) })
	p.tasks.Go(p.keep)
	return p
}

// follow follows a znode. An error of check ends the membership.
func (p *Process) follow(path string, check func(body []byte, stat zkconn.Stat, there bool) error) {
	p.end(p.session.Follow(p.ctx, path, check)) // without effect if it has ended
}

// checkLive ends the membership if the live znode is gone, or another process's.
func (p *Process) checkLive(_ []byte, stat zkconn.Stat, there bool) error {
	switch {
	case !there:
		return fmt.Errorf("%w: %s is gone", ErrRemoved, p.live())
	case stat.EphemeralOwner != p.session.ID():
		return fmt.Errorf("%w: another process is %s now", ErrRemoved, p.Identity)
	}
	return nil
}

// checkSeat ends the membership if the seat is gone.
func (p *Process) checkSeat(_ []byte, stat zkconn.Stat, there bool) error {
	if !there || hex(stat.Czxid) != p.Seat {
		return fmt.Errorf("%w: %s is gone", ErrRemoved, p.seat)
	}
	return nil
}

// readRecord reads what is declared. A Record of another generation ends the membership.
func (p *Process) readRecord(body []byte, _ zkconn.Stat, there bool) error {
	rec, err := znode.DecodeRecordAt(queue.Kind(), resource.Join(p.config.Root, p.config.Queue), body)
	switch {
	case !there, err != nil:
		return nil // what it said before holds until somebody mends it
	case rec.Generation != p.Generation:
		return fmt.Errorf("%w: the queue was made anew", ErrRemoved)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue, p.stop = queue.Of(&rec), rec.State == resource.StateTerminating
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

// StopRequested waits until the processes are asked to stop, by terminate. It returns nil then: drain, and Leave.
func (p *Process) StopRequested(ctx context.Context) error {
	for {
		p.mu.Lock()
		stop, changed := p.stop, p.changed
		p.mu.Unlock()
		if stop {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		}
	}
}

// leaveTimeout ends the attempt to give back what a process holds that leaves.
const leaveTimeout = 5 * time.Second

// Leave gives back what the seat holds, uncharged, and ends the membership: it closes the session. If Redis does not
// answer, another process gives it back. Stop all commands before.
func (p *Process) Leave() error {
	if p.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(p.ctx, leaveTimeout)
		defer cancel()
		p.giveBack(ctx)
	}
	p.starting.Lock()
	p.end(context.Canceled) // background begins nothing from here on
	p.starting.Unlock()
	_ = p.client.Close() // ends the calls that wait for Redis
	p.tasks.Wait()
	return p.session.Close()
}

// background runs f in a goroutine, whose end Leave waits for. Once the membership has ended it runs nothing, and
// reports false.
func (p *Process) background(f func()) bool {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.tasks.Go(f)
	return true
}

// giveBack shuts the own seat, so that nobody needs to look for it. After an error somebody does.
func (p *Process) giveBack(ctx context.Context) {
	for more := true; more; {
		var err error
		if more, _, err = p.store.Evict(ctx, store.Left, p.Seat); err != nil {
			p.log.Warn("what this process holds is given back later", "error", err)
			return
		}
	}
}

// live is the znode that exists while this process is live.
func (p *Process) live() string { return znode.Live(p.config.Root, p.config.Queue, p.Identity) }

func (p *Process) recordPath() string {
	return znode.Record(queue.KindName, p.config.Root, p.config.Queue)
}

// standing reports whether the seat's znode stands now: it asks the leader of ZooKeeper. ErrRemoved: it does not, and
// the membership has ended.
func (p *Process) standing(ctx context.Context) error {
	if err := p.session.Sync(ctx, p.seat); err != nil {
		return err
	}
	stat, there, err := p.session.Exists(ctx, p.seat)
	if err != nil {
		return err
	}
	if err := p.checkSeat(nil, stat, there); err != nil {
		p.end(err)
		return context.Cause(p.ctx)
	}
	return nil
}
