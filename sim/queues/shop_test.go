package queues_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"net"
	"strings"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim"
	"muster/tasks"
	"muster/tasks/store"
	"muster/tasks/store/storemodel"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

const (
	root = "/q"
	name = "primes"

	sessionTimeout = 10 * time.Second
)

// shop is a queue in a world, its Redis, and what the checker knows.
type shop struct {
	w     *sim.World
	queue queue.Queue
	redis *storemodel.Server
	book  *book
	large int // bytes that each task has besides

	loses    bool // the Redis forgets the last writes when it is started again
	requests int
	saved    []storemodel.Saved
}

// newShop creates the queue in the world's Setup.
func newShop(w *sim.World, edits ...func(*queue.Queue)) *shop {
	k := &shop{w: w, queue: queue.Default()}
	k.queue.Root, k.queue.Name, k.queue.Redis = root, name, "redis://192.0.2.2:6379/0"
	k.queue.Timeouts.Session = resource.Duration(sessionTimeout)
	for _, edit := range edits {
		edit(&k.queue)
	}
	k.book = newBook(k)
	k.redis = storemodel.NewServer(storemodel.Options{Called: k.book.called})
	w.Foreign(k.foreign())
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		admin, err := k.admin(s, tasks.Access{})
		if err != nil {
			return err
		}
		return admin.Commit(ctx, plan.Row{Path: k.queue.Path(), New: k.queue, Reason: plan.NotThere})
	})
	w.OnTxn(k.book.note)
	w.Check(k.book.check)
	return k
}

// admin is who applies.
func (k *shop) admin(s *zkconn.Session, redis tasks.Access) (*zkstate.Store, error) {
	kind := zkstate.Queue()
	kind.Unlink = func(ctx context.Context, rec *resource.Record) error {
		at, err := queue.ParseRedis(queue.Of(rec).Redis)
		if err != nil {
			return err
		}
		return tasks.Unlink(ctx, rec, redis, at.Hosts)
	}
	return zkstate.NewStore(s, zkstate.Config{Home: root + "/home", Stack: "tests", Kinds: []zkstate.Kind{kind}})
}

// foreign is the Redis as the scheduler owns it.
func (k *shop) foreign() sim.Foreign {
	return sim.Foreign{
		Name: "redis",
		Frame: func(b []byte) int {
			_, n, err := storemodel.Request(b)
			if err != nil {
				panic(err) // the client library writes whole requests
			}
			return n
		},
		Open: func(out func([]byte)) (func([]byte), func()) {
			c := k.redis.Open(out)
			return func(request []byte) { c.Handle(words(request)); k.remember() }, c.Lost
		},
		Label: func(request []byte) string { return k.label(words(request)) },
		Due:   k.redis.Due,
		Restart: func() {
			k.redis.Restart(k.forgotten())
		},
	}
}

// words are those of a whole request.
func words(request []byte) []string {
	all, _, _ := storemodel.Request(request)
	return all
}

// What a Redis that loses the last writes at a restart keeps: of every saveEvery requests, the last saves.
const saveEvery, saves = 5, 4

// remember saves the keys now and then.
func (k *shop) remember() {
	if k.requests++; k.loses && k.requests%saveEvery == 0 {
		k.saved = append(k.saved, k.redis.Save())
		k.saved = k.saved[max(0, len(k.saved)-saves):]
	}
}

// forgotten is what the Redis has after a restart.
func (k *shop) forgotten() storemodel.Saved {
	if len(k.saved) == 0 {
		return nil
	}
	keys := k.saved[0]
	k.saved = nil
	return keys
}

// label describes a request of Redis: the name of the script, and the batch.
func (k *shop) label(words []string) string {
	name := strings.ToLower(words[0])
	if name != "evalsha" && name != "eval" {
		return strings.Join(append([]string{name}, words[1:min(len(words), 2)]...), " ")
	}
	script := k.redis.Script(words[1])
	if name == "eval" {
		return "eval"
	}
	switch script {
	case "begin", "append", "open", "set", "retry", "drop", "remove":
		return script + " " + words[4]
	case "count":
		return script + " " + strings.Join(words[4:min(len(words), 6)], " ")
	}
	return script
}

// access is how a process reaches the Redis.
func access(p *sim.Process) tasks.Access {
	return tasks.Access{
		Getenv: func(string) string { return "" },
		Dial:   func(context.Context, string) (net.Conn, error) { return p.Conn("redis") },
	}
}

// join makes a process an executor or a watcher.
func (k *shop) join(p *sim.Process, role queue.Role) (*tasks.Process, error) {
	s, err := p.Dial(sessionTimeout)
	if err != nil {
		return nil, err
	}
	q, err := tasks.Join(p.Context(), s, tasks.Config{
		Root: root, Queue: name, Identity: p.Name(), Role: role, Parallel: 1, Redis: access(p),
	})
	if err != nil {
		s.Close()
		return nil, again(err)
	}
	return q, nil
}

// again makes of an error after which a process starts anew one that the world takes for a fault.
func again(err error) error {
	if err != nil && sim.Unless(err, tasks.ErrRemoved, tasks.ErrRedis, tasks.ErrHeld, tasks.ErrNotOpen,
		tasks.ErrNoQueue, store.ErrNoSeat) == nil {
		return fmt.Errorf("%w: %w", zkconn.ErrSessionLost, err)
	}
	return err
}

// untilStop ends with the process's context, or when the queue asks its processes to stop. They come back then.
func (k *shop) untilStop(p *sim.Process, q *tasks.Process) context.Context {
	ctx, end := context.WithCancelCause(p.Context())
	go func() { end(q.StopRequested(p.Context())) }()
	return ctx
}

// leave ends a membership. The seat is given back by its own process.
func (k *shop) leave(p *sim.Process, q *tasks.Process, why error) error {
	p.Saw(func() { k.book.leaves(q.Seat) })
	_ = q.Leave() // if no server answers, the session ends later
	return again(why)
}

// executor executes tasks until its context ends, or until it is asked to stop.
func (k *shop) executor(p *sim.Process) error {
	q, err := k.join(p, queue.Executor)
	if err != nil {
		return err
	}
	e, taking := tasks.StartExecutor(q, tasks.ExecutorConfig{Parallel: 1}), k.untilStop(p, q)
	for err == nil {
		var t *tasks.Task
		if t, err = e.Take(taking); err == nil {
			err = k.work(p, q, e, t)
		}
	}
	if errors.Is(err, errKilled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = e.Drain(ctx)
	return k.leave(p, q, err)
}

// work executes a task.
func (k *shop) work(p *sim.Process, q *tasks.Process, e *tasks.Executor, t *tasks.Task) (err error) {
	ctx := t.Context()
	p.Saw(func() { err = k.book.starts(p, q, t) })
	if err != nil {
		return err
	}
	outcome := store.Done
	p.Saw(func() {
		if k.book.fails(t.Payload) {
			outcome = store.Never
		}
	})
	wait(ctx, 50*time.Millisecond)
	p.Saw(func() { k.book.stops(p, q, t) })
	if kills(t) {
		return errKilled
	}
	if ctx.Err() == nil {
		e.Finish(t, outcome, 50*time.Millisecond, resultOf(t.Payload))
	}
	return nil
}

func resultOf(payload []byte) []byte {
	return append([]byte("result of "), bytes.TrimRight(payload, "\x00")...)
}

// wait waits for virtual time, or for the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// watcher collects batches until its context ends.
func (k *shop) watcher(p *sim.Process) error {
	q, err := k.join(p, queue.Watcher)
	if err != nil {
		return err
	}
	err = tasks.Watch(k.untilStop(p, q), q, func(ctx context.Context, b *tasks.Completed) (err error) {
		p.Saw(func() { err = k.book.claims(q.Seat, b) })
		if err != nil {
			p.Fail(err)
			return err
		}
		defer p.Saw(func() { k.book.unclaims(q.Seat, b) })
		err = checkRecords(b.ID, b.Records(ctx), b.Manifest.Tasks, b.Done, b.Dead)
		if err != nil {
			if errors.Is(err, errWrong) {
				p.Fail(err)
			}
			return err
		}
		wait(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.Saw(func() { k.book.collects(p, b) })
		return nil
	})
	return k.leave(p, q, err)
}

// errWrong means that the results of a batch are not what they should be.
var errWrong = errors.New("wrong results")

// checkRecords reads what became of the tasks of a batch: each once, as its executor has written it, and as many as
// were announced.
func checkRecords(id string, records iter.Seq2[tasks.Record, error], total, done, died int64) error {
	seen, results, dead := map[int64]bool{}, map[string]bool{}, int64(0)
	for r, err := range records {
		switch {
		case err != nil:
			return fmt.Errorf("results of %s: %w", id, err)
		case seen[r.Index]:
			return fmt.Errorf("%w of %s: task %d is there twice", errWrong, id, r.Index)
		case r.Dead:
			dead++
		case !strings.HasPrefix(string(r.Result), "result of ") || results[string(r.Result)]:
			return fmt.Errorf("%w of %s: task %d has the result %q", errWrong, id, r.Index, r.Result)
		}
		seen[r.Index], results[string(r.Result)] = true, true
	}
	if int64(len(seen)) != total || dead != died || done+died != total {
		return fmt.Errorf("%w of %s: %d of %d tasks, %d dead; %d done and %d dead were announced", errWrong, id,
			len(seen), total, dead, done, died)
	}
	return nil
}

// payloads are the tasks of a batch. Those named bad fail until somebody retries them.
func (k *shop) payloads(id string, n int, bad ...int) tasks.Source {
	var all [][]byte
	for i := range n {
		all = append(all, fmt.Appendf(nil, "%s:%d:", id, i))
	}
	for _, i := range bad {
		all[i] = fmt.Appendf(nil, "bad %s:%d:", id, i)
	}
	for i := range all {
		all[i] = append(all[i], make([]byte, k.large)...)
	}
	return tasks.Payloads(all...)
}

// submit submits a batch, and notes that it is there.
func (k *shop) submit(p *sim.Process, s *zkconn.Session, c tasks.SubmitConfig, source tasks.Source) (
	tasks.Submitted, error,
) {
	c.Root, c.Queue, c.By, c.Redis = root, name, "tests", access(p)
	out, err := tasks.Submit(p.Context(), s, c, source)
	if err != nil {
		return out, again(err)
	}
	if out.Ended == nil {
		sum := sumOf(p.Context(), source, k.queue)
		p.Saw(func() { err = k.book.submitted(out, sum) })
	}
	return out, err
}

// sumOf is the checksum of a batch, as its manifest has it.
func sumOf(ctx context.Context, source tasks.Source, q queue.Queue) string {
	h := sha256.New()
	for payload := range source(ctx, q) {
		fmt.Fprintf(h, "%d:%s", len(payload), payload)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// operator is who looks at batches.
func (k *shop) operator(p *sim.Process, s *zkconn.Session) (*tasks.Operator, error) {
	return tasks.NewOperator(p.Context(), s, tasks.OperatorConfig{
		Root: root, Queue: name, By: p.Name(), Redis: access(p),
	})
}

// awaitEnd waits until a batch has ended, also in Redis.
func (k *shop) awaitEnd(p *sim.Process, o *tasks.Operator, id string) (*znode.BatchEnd, error) {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		_, err := o.Manifest(p.Context(), id)
		if errors.Is(err, tasks.ErrNoBatch) && !k.inRedis(o.Generation, id) {
			end, err := o.Ended(p.Context(), id)
			if err == nil && end == nil {
				err = fmt.Errorf("batch %s has no end", id)
			}
			return end, err
		}
		if err != nil && !errors.Is(err, tasks.ErrNoBatch) {
			return nil, err
		}
		if wait(p.Context(), pause); p.Context().Err() != nil {
			return nil, p.Context().Err()
		}
	}
}

// inRedis reports whether the Redis has keys of a batch, besides its dead tasks.
func (k *shop) inRedis(g, id string) (there bool) {
	k.redis.Look(g, func(q *storemodel.Queue) { there = q.Batches[id] != nil })
	return there
}
