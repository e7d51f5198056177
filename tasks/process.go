// Package tasks is a process's side of a queue: it submits batches, executes their tasks, or watches for completed
// batches. ZooKeeper says who is there and which batches exist; Redis (package store) holds tasks and results.
//
// A [Process] is a live executor or watcher. Everything that it holds ends with Process.Context. It takes nothing while
// ZooKeeper is silent, and keeps working until its session has ended.
//
// The process with the smallest seat also looks after the queue: it shuts the seats of processes that are gone, and
// finishes what others began and did not end.
//
// The package runs no commands and prints nothing; package wrap does. It makes up no data that Redis lost.
package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate"
	"muster/zkstate/seat"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Config says who joins what.
type Config struct {
	Root, Queue string
	Identity    string // the name of this process; see worker.Identify
	Role        queue.Role
	Parallel    int // commands at once of an executor
	Redis       Access
	// Waiting, unless nil, is called when Join begins to wait: for what. It is called again when Join waits for
	// something else.
	Waiting func(what string)
	Log     *slog.Logger // nil discards

	keep *keepLimits // for tests
}

func (c Config) limits(q queue.Queue) keepLimits {
	if c.keep != nil {
		return *c.keep
	}
	l := defaultKeepLimits()
	// Processes that die together are not found together: ZooKeeper last heard of each up to a third of the session
	// timeout before, and it rounds.
	l.settle = time.Duration(q.Timeouts.Session)/3 + 2*time.Second
	return l
}

// The errors of Join, besides those of the session and of package store.
var (
	// ErrNoQueue means that nobody created the queue in time. Apply it, or check its name and root.
	ErrNoQueue = errors.New("no such queue")
	// ErrRedis means that Redis did not answer in time. Look at it, and try again.
	ErrRedis = errors.New("redis does not answer")
	// The others say what they mean in package seat.
	ErrNotOpen = seat.ErrNotOpen
	ErrHeld    = seat.ErrHeld
	ErrUnknown = seat.ErrUnknown
)

// The errors with which a membership ends, and those of its calls.
var (
	// The first two say what they mean in package seat.
	ErrSessionLost = seat.ErrSessionLost
	ErrRemoved     = seat.ErrRemoved
	// ErrRecover means that an earlier call had an unknown outcome. Call Recover.
	ErrRecover = errors.New("recover first")
	// ErrNoBatch means that the queue has no unfinished batch of this name: it has ended, or was never submitted.
	ErrNoBatch = errors.New("no such unfinished batch")
	// ErrManifest means that somebody wrote into the manifest of a batch what cannot be read. Delete it.
	ErrManifest = errors.New("the manifest of the batch cannot be read")
)

// Process is a live executor or watcher of a queue. It is one until its Context ends.
//
// Who finds a part of the queue gone in ZooKeeper is no process of it any more, see package seat.
type Process struct {
	Identity   string
	Generation string
	Seat       string // the hex czxid of its seat's znode: its name in Redis

	seat    *seat.Seat
	session *zkconn.Session // of the seat
	ledger  ledger
	client  *redis.Client
	store   *store.Queue
	log     *slog.Logger
	config  Config
	limits  keepLimits

	joined, joinedHere time.Time // by ZooKeeper's clock, and at the latest by ours

	ctx context.Context // ends with the membership

	calls   chan struct{} // holds one token while a call is under way; it guards the next two
	seq     int64         // the seat's last one, or a larger one
	unknown error         // a call before had an unknown outcome
	waiter  waiter

	following sync.Mutex
	followed  map[string]*followed // guarded by following: batches that were asked for, until each has ended

	mu    sync.Mutex
	queue queue.Queue // as the Record declares it now
	away  int         // failures of Redis in a row
}

func newProcess(j *join, taken *seat.Seat, stat zkconn.Stat) *Process {
	return &Process{
		Identity: j.c.Identity, Generation: taken.Generation, Seat: hex(stat.Czxid),
		seat: taken, session: taken.Session, ctx: taken.Context(),
		ledger: ledger{taken.Session, j.c.Root, taken.Generation},
		client: j.client, store: open(j.client, j.queue, taken.Generation),
		log: cmp.Or(j.c.Log, slog.New(slog.DiscardHandler)), config: j.c, limits: j.c.limits(j.queue),
		joined: stat.Ctime, joinedHere: time.Now(), calls: make(chan struct{}, 1), queue: j.queue,
		waiter: waiter{wake: make(chan struct{}, 1)}, followed: map[string]*followed{},
	}
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
	own := func([]byte, zkconn.Stat) error { return nil } // the bodies are for others
	p.seat.Watch(own, own, func(rec resource.Record, _ zkconn.Stat) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.queue = queue.Of(&rec)
	})
	p.seat.Go(p.keep)
	return p
}

// StopRequested waits until the processes are asked to stop, by terminate. It returns nil then: drain, and Leave.
func (p *Process) StopRequested(ctx context.Context) error { return p.seat.StopRequested(ctx) }

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
	p.seat.End(context.Canceled)
	_ = p.client.Close() // ends the calls that wait for Redis
	return p.seat.Leave()
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

// standing reports whether the seat's znode stands now: it asks the leader of ZooKeeper. ErrRemoved: it does not, and
// the membership has ended.
func (p *Process) standing(ctx context.Context) error {
	if err := p.session.Sync(ctx, p.seat.Path); err != nil {
		return err
	}
	stat, there, err := p.session.Exists(ctx, p.seat.Path)
	if err != nil {
		return err
	}
	if !there || hex(stat.Czxid) != p.Seat {
		p.seat.End(fmt.Errorf("%w: %s is gone", ErrRemoved, p.seat.Path))
		return context.Cause(p.ctx)
	}
	return nil
}

// Call makes one call of this seat: f gets the next seq. Only one is under way at a time. After an error that leaves
// the outcome unknown, and after store.ErrSeq and store.ErrNoSeat, every Call fails with ErrRecover until Recover.
func (p *Process) Call(ctx context.Context, f func(ctx context.Context, seq int64) error) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	if p.unknown != nil {
		return fmt.Errorf("%w: %w", ErrRecover, p.unknown)
	}
	err := f(ctx, p.seq+1)
	switch {
	case err == nil:
		p.seq++
		p.answered()
	case !refused(err), errors.Is(err, store.ErrSeq), errors.Is(err, store.ErrNoSeat):
		p.unknown = err
	}
	return err
}

// lock waits until no call of the seat is under way.
func (p *Process) lock(ctx context.Context) error {
	select {
	case p.calls <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	if p.ctx.Err() != nil {
		p.unlock()
		return context.Cause(p.ctx)
	}
	return nil
}

func (p *Process) unlock() { <-p.calls }

// hello lets the seat in, whose znode stands. The caller is the only one who calls.
func (p *Process) hello(ctx context.Context) error {
	seq, err := p.store.Hello(ctx, p.Seat, p.config.Role, max(p.config.Parallel, 1))
	if err == nil {
		p.seq = max(p.seq, seq)
	}
	return err
}

// Recover makes sure of what the seat holds, after an unknown outcome, store.ErrSeq or store.ErrNoSeat. It says which
// of keep is still in hand, at most store.MaxItems; the rest goes back, uncharged. A call that was sent before does
// nothing after that. It waits until Redis answers. ErrRemoved or ErrSessionLost: the seat is gone, and so is the
// membership.
func (p *Process) Recover(ctx context.Context, keep []store.Held) (kept []store.Held, err error) {
	if err := p.lock(ctx); err != nil {
		return nil, err
	}
	defer p.unlock()
	p.seq++ // that of the call whose outcome is unknown
	for {
		kept, more, err := p.store.Sync(ctx, p.Seat, p.seq+1, keep)
		switch {
		case err == nil:
			p.seq++
			if !more {
				if !errors.Is(p.unknown, store.ErrReply) { // or else the next call may get no better answer
					p.answered()
				}
				p.unknown = nil
				return kept, nil
			}
			continue
		case errors.Is(err, store.ErrSeq), errors.Is(err, store.ErrNoSeat):
			if err = p.standing(ctx); err == nil {
				err = p.hello(ctx)
			}
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil || hopeless(err) {
			return nil, err
		}
		if err := p.Pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// Pause waits a while after an error of Redis, longer each time. It logs the first one. The error is why ctx or the
// membership has ended.
func (p *Process) Pause(ctx context.Context, err error) error {
	p.mu.Lock()
	failures := p.away
	p.away++
	p.mu.Unlock()
	if failures == 0 {
		p.log.Warn("waiting for redis", "error", err)
	}
	pause(ctx, backoff(failures), p.ctx.Done())
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return context.Cause(ctx)
}

// pausing returns a function that waits after an error of Redis, as Pause does, or returns why that is of no use.
func (p *Process) pausing(ctx context.Context) func(error) error {
	return func(err error) error {
		if refused(err) || hopeless(err) {
			return err
		}
		return p.Pause(ctx, err)
	}
}

func (p *Process) answered() {
	p.mu.Lock()
	failures := p.away
	p.away = 0
	p.mu.Unlock()
	if failures > 0 {
		p.log.Info("redis answers again")
	}
}

// Joining connects to the Redis of the Record, takes a seat, see package seat, while that is the Record, and says hello
// to Redis with it.

// errAgain means that what was read has changed: start again from the Record.
var errAgain = seat.ErrAgain

// Join makes the process behind s an executor or a watcher of a queue.
//
// While the queue does not exist, or another process holds the identity, or Redis does not answer, Join waits: until
// ctx's deadline, or without one for the queue's join timeout. The error then wraps the reason and
// context.DeadlineExceeded. It does not wait for what waiting does not cure, such as a wrong password. After any error
// close the session.
func Join(ctx context.Context, s *zkconn.Session, c Config) (*Process, error) {
	if err := znode.CheckIdentity(c.Identity); err != nil {
		return nil, err
	}
	j := newJoin(s, c)
	for {
		p, err := j.attempt(ctx)
		switch {
		case err == nil:
			return p, nil
		case errors.Is(err, errAgain):
			continue
		}
		j.disconnect()
		return nil, fmt.Errorf("join %s as %s: %w", resource.Join(c.Root, c.Queue), c.Identity, err)
	}
}

type join struct {
	seat.Join
	c      Config
	queue  queue.Queue   // as declared
	client *redis.Client // of url; nil: not connected
	url    string
	tries  int // to connect
}

func newJoin(s *zkconn.Session, c Config) *join {
	return &join{c: c, Join: seat.Join{Session: s, Begun: time.Now(), Config: seat.Config{
		Default: queue.Default(), Root: c.Root, Name: c.Queue, Identity: c.Identity, Folders: znode.QueueFolders(),
		NoRecord: ErrNoQueue, Waiting: c.Waiting,
	}}}
}

// attempt joins in the generation that the Record names now.
func (j *join) attempt(ctx context.Context) (*Process, error) {
	if err := j.read(ctx); err != nil {
		return nil, err
	}
	if err := j.connect(ctx); err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // for people only
	nonce := zkstate.NewID()
	live, err := znode.Encode(znode.QueueProcess{Nonce: nonce, Role: j.c.Role, Host: host, Parallel: j.c.Parallel})
	if err != nil {
		return nil, err
	}
	own, err := znode.Encode(znode.QueueSeat{Identity: j.c.Identity, Nonce: nonce, Role: j.c.Role})
	if err != nil {
		return nil, err
	}
	taken, err := j.Take(ctx, live, own, j.asRead())
	if err != nil {
		return nil, err
	}
	stat, there, err := j.Session.Exists(ctx, taken.Path)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, fmt.Errorf("%w: %s is gone", ErrRemoved, taken.Path)
	}
	p := newProcess(j, taken, stat)
	if err := j.hello(ctx, p); err != nil {
		return nil, err
	}
	j.client = nil // it is the process's now
	return p.start(), nil
}

// read reads the Record, and waits while there is none, or while it is not open.
func (j *join) read(ctx context.Context) error {
	err := j.Read(ctx)
	j.queue = queue.Of(&j.Record)
	return err
}

// asRead checks that the Record is the one that was read.
func (j *join) asRead() zkconn.Op { return zkconn.CheckOp(j.RecordPath(), j.Stat.Version) }

func (j *join) connect(ctx context.Context) error {
	if j.client != nil && j.url == j.queue.Redis {
		return nil
	}
	j.disconnect()
	return j.untilRedis(ctx, func() error {
		client, err := j.c.Redis.connect(ctx, j.queue)
		if err == nil {
			j.client, j.url = client, j.queue.Redis
		}
		return err
	})
}

func (j *join) disconnect() {
	if j.client != nil {
		_ = j.client.Close()
		j.client = nil
	}
}

func (j *join) hello(ctx context.Context, p *Process) error {
	j.Changed = nil // the process has joined: a Record that was written again is read later, and would not let it wait
	return j.untilRedis(ctx, func() error { return p.hello(ctx) })
}

// untilRedis calls f until Redis answers. After an error it waits a while, unless waiting does not cure it. errAgain:
// the Record has changed.
func (j *join) untilRedis(ctx context.Context, f func() error) error {
	r, bad := queue.ParseRedis(j.queue.Redis)
	return until(func(err error) error {
		moving := bad == nil && r.Master != "" && errors.Is(err, store.ErrServer) // the sentinels name another one soon
		switch {
		case refused(err), hopeless(err) && !moving:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", ErrRedis, err)
		}
		again := time.After(backoff(j.tries))
		j.tries++
		err = j.Await(ctx, fmt.Errorf("%w: %w", ErrRedis, err), "Redis: "+err.Error(), j.Changed, again)
		if errors.Is(err, errAgain) && !zkconn.Closed(j.Changed) {
			return nil
		}
		return err
	}, f)
}

// backoff is how long to wait after so many failures in a row: up to 5 s, and a random part of it less, so that many
// processes do not come at once.
func backoff(failures int) time.Duration {
	d := min(100*time.Millisecond<<min(failures, 10), 5*time.Second)
	return d/2 + rand.N(d/2)
}
