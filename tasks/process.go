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
	"context"
	"errors"
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

// limits are those of the keeper of q.
func (c Config) limits(q queue.Queue) keepLimits {
	if c.keep != nil {
		return *c.keep
	}
	l := defaultKeepLimits()
	l.settle = settleTime(time.Duration(q.Timeouts.Session))
	return l
}

// The errors of Join, besides those of the session and of package store.
var (
	// ErrNoQueue means that nobody created the queue in time. Apply it, or check its name and root.
	ErrNoQueue = errors.New("no such queue")
	// ErrNotOpen means that the queue took no processes in time: they were asked to stop, or somebody deleted a part of
	// it by hand. Apply again.
	ErrNotOpen = errors.New("the queue is not open")
	// ErrHeld means that another process is this identity. Wait until it ends, or use another identity.
	ErrHeld = errors.New("another process holds this identity")
	// ErrRedis means that Redis did not answer in time. Look at it, and try again.
	ErrRedis = errors.New("redis does not answer")
	// ErrUnknown means that the answer to a join was lost. Close the session, and join in another one: what was
	// created ends with the session.
	ErrUnknown = zkconn.ErrUnknown
)

// The errors with which a membership ends, and those of its calls.
var (
	// ErrSessionLost means that the session has ended. Stop all commands, and join again.
	ErrSessionLost = zkconn.ErrSessionLost
	// ErrRemoved means that somebody deleted the seat or the znode of this process by hand, or that the queue was
	// deleted. Stop all commands. Join again, if the queue still exists.
	ErrRemoved = errors.New("this process is no longer in the queue")
	// ErrRecover means that an earlier call had an unknown outcome. Call Recover.
	ErrRecover = errors.New("recover first")
	// ErrNoBatch means that the queue has no unfinished batch of this name: it has ended, or was never submitted.
	ErrNoBatch = errors.New("no such unfinished batch")
	// ErrManifest means that somebody wrote into the manifest of a batch what cannot be read. Delete it.
	ErrManifest = errors.New("the manifest of the batch cannot be read")
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
	case <-p.calls:
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

func (p *Process) unlock() { p.calls <- struct{}{} }

// hello lets the seat in, whose znode stands. The caller is the only one who calls.
func (p *Process) hello(ctx context.Context) error {
	seq, err := p.store.Hello(ctx, p.Seat, storeRole(p.config.Role), max(p.config.Parallel, 1))
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
			err = p.helloAgain(ctx)
		case refused(err):
			return nil, err
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

// helloAgain lets the seat in again if its znode stands.
func (p *Process) helloAgain(ctx context.Context) error {
	if err := p.standing(ctx); err != nil {
		return err
	}
	return p.hello(ctx)
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
	timer := time.NewTimer(backoff(failures))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

// answered notes that Redis answers.
func (p *Process) answered() {
	p.mu.Lock()
	failures := p.away
	p.away = 0
	p.mu.Unlock()
	if failures > 0 {
		p.log.Info("redis answers again")
	}
}

// Load is how much work a queue has.
type Load struct {
	Batches  int           // with keys in Redis
	Waiting  int64         // tasks that nobody has
	Hand     int64         // tasks that executors have
	Done     int64         // of these batches
	Dead     int64         // of these batches
	Attempts int64         // at tasks that have ended, of all batches ever
	Bytes    int64         // that Redis holds of the queue
	Oldest   time.Duration // since the oldest batch with waiting tasks was submitted; 0: nothing waits
}

// maxLoad is how many batches are counted, and loadPage how many of them one script reads.
const maxLoad, loadPage = 1000, 100

// Load counts the work of the queue. Of the tasks it counts those of the oldest 1,000 batches.
func (p *Process) Load(ctx context.Context) (Load, error) {
	books, err := p.store.Books(ctx)
	if err != nil {
		return Load{}, err
	}
	l := Load{Batches: books.Batches, Attempts: books.Finished, Bytes: books.Bytes}
	oldest := ""
	for skip := 0; skip < min(books.Batches, maxLoad); skip += loadPage {
		page, err := p.store.Batches(ctx, skip, loadPage)
		if err != nil {
			return Load{}, err
		}
		for _, b := range page {
			waiting := b.Waiting + b.Returned + b.Late
			l.Waiting, l.Hand, l.Done, l.Dead = l.Waiting+waiting, l.Hand+b.Out, l.Done+b.Done, l.Dead+b.Dead
			if oldest == "" && waiting > 0 {
				oldest = b.ID
			}
		}
	}
	if oldest != "" {
		l.Oldest, err = p.age(ctx, oldest)
	}
	return l, err
}

// age is the time since a batch was submitted; 0 if it has ended meanwhile.
func (p *Process) age(ctx context.Context, id string) (time.Duration, error) {
	m, err := p.Manifest(ctx, id)
	if errors.Is(err, ErrNoBatch) {
		return 0, nil
	}
	return max(time.Since(m.Since), 0), err
}
