package tasks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Joining connects to the Redis of the Record, and then writes in the generation g that the Record names:
//
//	run/<g>/{seat,batch,ended,health}   persistent   by the first process, or by the first submit
//	<queue>/<identity>                  ephemeral    live
//	run/<g>/seat/s-<10>                 ephemeral    sequential: the smallest number looks after the queue
//
// That is one transaction, which checks the gate and the version of the Record: a process that dies at any moment has
// either joined or written nothing. Both ephemeral znodes end with the session. If the answer is lost, the session must
// be closed: then nothing is left, and another session joins. At last the seat says hello to Redis.

// errAgain means that what was read has changed: start again from the Record.
var errAgain = errors.New("the znodes of the queue do not fit together")

// damageCheck is how often a join that waits for the repair of the queue looks by itself.
const damageCheck = 5 * time.Second

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

// join is a Join under way.
type join struct {
	s      *zkconn.Session
	c      Config
	nonce  string
	waiter zkstate.Waiter

	rec     resource.Record // as read by this attempt
	stat    zkconn.Stat     // of the Record
	changed <-chan struct{} // the Record has
	queue   queue.Queue     // which that declares
	folders bool            // the folders are missing, as the last attempt found

	client *redis.Client // of url; nil: not connected
	url    string
	tries  int // to connect
}

func newJoin(s *zkconn.Session, c Config) *join {
	return &join{
		s: s, c: c, nonce: zkstate.NewID(), waiter: zkstate.Waiter{Session: s, Begun: time.Now(), Say: c.Waiting},
	}
}

// attempt joins in the generation that the Record names now.
func (j *join) attempt(ctx context.Context) (*Process, error) {
	if err := j.read(ctx); err != nil {
		return nil, err
	}
	if err := j.connect(ctx); err != nil {
		return nil, err
	}
	acl, err := zkstate.ParseACL(j.rec.ACL)
	if err != nil {
		return nil, err
	}
	ops, err := j.ops(acl)
	if err != nil {
		return nil, err
	}
	results, err := j.s.Multi(ctx, ops...)
	if err != nil {
		return nil, j.refused(ctx, err)
	}
	seat := results[len(results)-1].Path
	stat, there, err := j.s.Exists(ctx, seat)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, fmt.Errorf("%w: %s is gone", ErrRemoved, seat)
	}
	p := newProcess(j, seat, stat, acl)
	if err := j.hello(ctx, p); err != nil {
		return nil, err
	}
	j.client = nil // it is the process's now
	return p.start(), nil
}

// ops is the transaction that joins. Its last operation creates the seat.
func (j *join) ops(acl []zkconn.ACL) ([]zkconn.Op, error) {
	host, _ := os.Hostname() // for people only
	live, err := znode.Encode(znode.QueueProcess{
		Nonce: j.nonce, Role: j.c.Role, Host: host, Parallel: j.c.Parallel,
	})
	if err != nil {
		return nil, err
	}
	seat, err := znode.Encode(znode.QueueSeat{Identity: j.c.Identity, Nonce: j.nonce, Role: j.c.Role})
	if err != nil {
		return nil, err
	}
	root, g := j.c.Root, j.rec.Generation
	ops := []zkconn.Op{zkconn.CheckOp(znode.Gate(root, g), -1), zkconn.CheckOp(j.record(), j.stat.Version)}
	if j.folders {
		for _, name := range znode.QueueFolders() {
			ops = append(ops, zkconn.CreateOp(resource.Join(znode.Run(root, g), name), nil, zkconn.Persistent, acl))
		}
	}
	return append(ops,
		zkconn.CreateOp(j.live(), live, zkconn.Ephemeral, acl),
		zkconn.CreateOp(znode.NewSeat(root, g), seat, zkconn.EphemeralSequential, acl),
	), nil
}

// live is the znode of the live process.
func (j *join) live() string { return znode.Live(j.c.Root, j.c.Queue, j.c.Identity) }

func (j *join) record() string { return znode.Record(queue.KindName, j.c.Root, j.c.Queue) }

// read reads the Record. It waits while there is none, or while the processes are asked to stop.
func (j *join) read(ctx context.Context) error {
	body, stat, changed, err := j.s.GetW(ctx, j.record())
	if errors.Is(err, zkconn.ErrNoNode) {
		_, there, created, err := j.s.ExistsW(ctx, j.record())
		switch {
		case err != nil:
			return err
		case there:
			return errAgain
		}
		j.queue.Timeouts.Join = queue.Default().Timeouts.Join
		return j.await(ctx, ErrNoQueue, "the queue to be created: "+resource.Join(j.c.Root, j.c.Queue), created, nil)
	}
	if err != nil {
		return err
	}
	rec, err := znode.DecodeRecordAt(queue.Kind(), resource.Join(j.c.Root, j.c.Queue), body)
	if err != nil {
		return err
	}
	j.rec, j.stat, j.changed, j.queue = rec, stat, changed, queue.Of(&rec)
	if j.rec.State == resource.StateTerminating {
		return j.await(ctx, ErrNotOpen, "muster apply to open the queue again: its processes were asked to stop",
			changed, nil)
	}
	if err := zkstate.CheckOwn(ctx, j.s, &j.rec); !errors.Is(err, zkstate.ErrNotOwn) {
		return err
	}
	return j.await(ctx, ErrNotOpen, "muster apply to put its record right: it names another's generation", changed, nil)
}

// connect connects to the Redis of the Record.
func (j *join) connect(ctx context.Context) error {
	if j.client != nil && j.url == j.queue.Redis {
		return nil
	}
	j.disconnect()
	client, err := j.c.Redis.connect(ctx, j.queue)
	if err != nil {
		return j.awaitRedis(ctx, err)
	}
	j.client, j.url = client, j.queue.Redis
	return nil
}

func (j *join) disconnect() {
	if j.client != nil {
		_ = j.client.Close()
		j.client = nil
	}
}

// hello tells Redis that the seat's znode stands.
func (j *join) hello(ctx context.Context, p *Process) error {
	j.changed = nil // the process has joined: a Record that was written again is read later, and would not let it wait
	for {
		err := p.hello(ctx)
		switch {
		case err == nil:
			return nil
		case refused(err):
			return err
		}
		if err := j.awaitRedis(ctx, err); !errors.Is(err, errAgain) {
			return err
		}
	}
}

// awaitRedis waits a while after an error of Redis, unless waiting does not cure it.
func (j *join) awaitRedis(ctx context.Context, err error) error {
	r, bad := queue.ParseRedis(j.queue.Redis)
	moving := bad == nil && r.Master != "" && errors.Is(err, store.ErrServer) // the sentinels name another one soon
	switch {
	case hopeless(err) && !moving:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrRedis, err)
	}
	again := make(chan struct{})
	timer := time.AfterFunc(backoff(j.tries), func() { close(again) })
	defer timer.Stop()
	j.tries++
	return j.await(ctx, fmt.Errorf("%w: %w", ErrRedis, err), "Redis: "+err.Error(), j.changed, again)
}

// backoff is how long to wait after so many failures in a row: up to 5 s, and a random part of it less, so that many
// processes do not come at once.
func backoff(failures int) time.Duration {
	d := min(100*time.Millisecond<<min(failures, 10), 5*time.Second)
	return d/2 + rand.N(d/2)
}

// refused says what to do after the transaction was refused.
func (j *join) refused(ctx context.Context, err error) error {
	var refused *zkconn.Error
	if !errors.As(err, &refused) {
		return err
	}
	root, g := j.c.Root, j.rec.Generation
	switch {
	case errors.Is(err, zkconn.ErrBadVersion) && refused.Path == j.record():
		return errAgain
	case errors.Is(err, zkconn.ErrNodeExists) && refused.Path == j.live():
		return j.awaitIdentity(ctx)
	case errors.Is(err, zkconn.ErrNodeExists) && refused.Path == znode.Seats(root, g): // another made the folders
		j.folders = false
		return errAgain
	case errors.Is(err, zkconn.ErrNodeExists): // some of the folders are there: that of the seats was deleted by hand
		return j.awaitRepair(ctx, znode.Seats(root, g))
	case errors.Is(err, zkconn.ErrNoNode) && refused.Path == znode.NewSeat(root, g) && !j.folders:
		j.folders = true
		return errAgain
	case errors.Is(err, zkconn.ErrNoNode) && refused.Path == j.record(): // deleted since
		return errAgain
	case errors.Is(err, zkconn.ErrNoNode):
		return j.awaitRepair(ctx, refused.Path)
	}
	return err
}

// awaitIdentity waits for the end of the process that holds the identity.
func (j *join) awaitIdentity(ctx context.Context) error {
	stat, there, gone, err := j.s.ExistsW(ctx, j.live())
	switch {
	case err != nil:
		return err
	case !there:
		return errAgain
	case stat.EphemeralOwner == j.s.ID():
		return ErrHeld
	}
	return j.await(ctx, ErrHeld, "the end of the process that is "+j.c.Identity+" now", gone, nil)
}

// awaitRepair waits until a part of the queue is back that somebody deleted by hand, or until there is another
// generation.
func (j *join) awaitRepair(ctx context.Context, missing string) error {
	j.folders = false
	again := make(chan struct{})
	check := time.AfterFunc(damageCheck, func() { close(again) })
	defer check.Stop()
	return j.await(ctx, ErrNotOpen, "muster apply to put back "+missing, j.changed, again)
}

// await returns errAgain at an event, or why when the time is over.
func (j *join) await(ctx context.Context, why error, what string, event, other <-chan struct{}) error {
	if err := j.waiter.Await(ctx, time.Duration(j.queue.Timeouts.Join), why, what, event, other); err != nil {
		return err
	}
	return errAgain
}

// storeRole is a role as Redis knows it.
func storeRole(r queue.Role) store.Role {
	if r == queue.Watcher {
		return store.Watcher
	}
	return store.Executor
}
