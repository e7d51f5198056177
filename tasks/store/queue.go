// Package store is what a queue keeps in Redis: the scripts in lua, one for each change, and the calls of them.
//
// A script reads and checks everything before its first write, so a refused call changes nothing. A call is sent once:
// after an error that is not a [Refusal], its outcome is unknown, and [Queue.Sync] tells a seat what it holds.
// Repeating a call is safe, also late: the scripts know a repeat by the offset, the life, the version or the seq.
//
// It refuses to evict keys under memory pressure, to guess who is alive (ZooKeeper knows), and to run a batch whose
// keys do not fit its counts.
//
// Every key begins with muster:{<generation>}: and is one of
//
//	q               hash: format, id, vt (virtual ns), bytes, mean (ns), seen, born, slots, weights, evicted (ms)
//	ids             sorted set: every batch that has keys, by its number
//	hands           hash: seat → role:slots:seq, or shut:how:role:slots; how: 0 left, 1 died, 2 its suspect is charged
//	h:<seat>        hash: batch:index → number of the batch:attempt:deaths:charge:payload; batch:watch → its number;
//	                suspect → the field of the suspect, which is a claim or alone
//	run             sorted set: batches that can be taken from, by their virtual time
//	b:<id>          hash: the counts of a batch, see [Batch]
//	b:<id>:w        list: payloads of waiting tasks; the first one has the index "taken"
//	b:<id>:again    list: returned tasks, index:attempt:deaths:payload; suspects on the left
//	b:<id>:late     sorted set: the same, by when they are due (ms)
//	b:<id>:r        list: results, index:attempt:ns:result
//	late            sorted set: batch → when its first late task is due
//	dead            sorted set: batch with dead tasks → when the first of them died
//	d:<id>          list: dead tasks, index:attempt:deaths:ms:length of the reason:reason and payload
//	full            sorted set: complete batches that nobody claimed → when a watcher may claim them; inf is never
//	wake:e, wake:w  lists: at most one token for an executor or a watcher that waits
package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource/queue"
	"muster/tasks/store/lua"
)

// Limits of one call, each way. The last item may go over MaxBytes.
const (
	MaxItems = 1000
	MaxBytes = 1 << 20
)

// itemCost is what an item counts for beside its bytes.
const itemCost = 32

// Cost is what a task counts for in the queue's bytes.
func Cost(task []byte) int64 { return int64(len(task)) + itemCost }

// Queue is one life of a queue in Redis. Its methods may be called concurrently; a seat has one call in flight.
type Queue struct {
	client  *redis.Client
	scripts map[string]*redis.Script
	prefix  string
	id      string
}

// New is the queue with this id whose keys begin with muster:{generation}:. The caller closes the client.
func New(client *redis.Client, generation, id string) *Queue {
	return &Queue{client, standard(), Prefix(generation), id}
}

// Prefix begins all keys of a generation.
func Prefix(generation string) string { return "muster:{" + generation + "}:" }

// call runs a script once. A Refusal changed nothing; after any other error the outcome is unknown.
func (q *Queue) call(ctx context.Context, script string, args ...any) (any, error) {
	reply, err := q.scripts[script].Run(ctx, q.client, []string{q.prefix + "q"}, args...).Result()
	return reply, q.failed(script, refusal(err))
}

// failed is an error of a call; nil if err is.
func (q *Queue) failed(call string, err error) error {
	if err == nil {
		return nil
	}
	if err = strange(err); errors.Is(err, ErrReply) {
		return fmt.Errorf("redis at %s: %s: %w", q.client.Options().Addr, call, err)
	}
	return fmt.Errorf("redis: %s: %w", call, err)
}

// ask runs a script, and takes its answer apart.
func ask[T any](ctx context.Context, q *Queue, script string, parse func(*shape, any) T, args ...any) (T, error) {
	reply, err := q.call(ctx, script, args...)
	if err != nil {
		var none T
		return none, err
	}
	out, err := take(reply, parse)
	return out, q.failed(script, err)
}

func (q *Queue) count(ctx context.Context, script string, args ...any) (int64, error) {
	return ask(ctx, q, script, (*shape).count, args...)
}

// do runs a script that may be repeated, and that says whether this call has done something.
func (q *Queue) do(ctx context.Context, script string, args ...any) error {
	_, err := q.count(ctx, script, args...)
	return err
}

// Hello lets a seat in whose znode stands. slots is how many commands an executor runs at once. A repeat changes
// nothing. It returns the seat's last seq. ErrNoSeat: the seat was shut for ever.
func (q *Queue) Hello(ctx context.Context, seat string, role queue.Role, slots int) (seq int64, err error) {
	return q.count(ctx, "hello", seat, q.id, string(role[:1]), slots)
}

// End is how processes came to their end.
type End int

// The ends.
const (
	Left End = iota // nothing follows for what they hold
	Died            // each task in their hands has one more death; see docs/queues.md for what follows
)

// Evict shuts seats, at most MaxItems, and gives back one page of what they hold. Those that died at the same time go
// in one call: it decides whether suspects are charged. Call it again while more is true. damaged are seats that cannot
// be read.
func (q *Queue) Evict(ctx context.Context, how End, seats ...string) (more bool, damaged []string, err error) {
	args := []any{int(how)}
	for _, s := range seats {
		args = append(args, s)
	}
	p, err := ask(ctx, q, "evict", func(s *shape, v any) progress { return s.progress(v, len(seats)) }, args...)
	return p.more, p.names, err
}

// progress says that there is more to do, or that there is not, and names something.
type progress struct {
	more  bool
	names []string
}

func (s *shape) progress(v any, most int) progress {
	l := s.list(v, 1, 1+most)
	p := progress{more: s.number(l[0], 0, 1) == 1}
	for _, name := range l[1:] {
		p.names = append(p.names, s.text(name, maxText))
	}
	return p
}

// NewBatch is what Begin tells of a batch.
type NewBatch struct {
	ID       string
	Life     string // of its manifest; never used again for this ID
	Weight   int    // 1 to 1,000
	Attempts int    // of a task, and of a watcher
	Results  string // "watcher": watchers may claim it
	Bytes    int64  // the sum of its tasks' Cost; set aside until Open knows it
}

// Begin puts a batch among the queue's batches. ErrFull: the queue holds something, and with the batch would hold more
// than maxBytes. A repeat changes nothing.
func (q *Queue) Begin(ctx context.Context, b NewBatch, maxBytes int64) error {
	return q.do(ctx, "begin", b.ID, q.id, b.Life, b.Weight, b.Attempts, b.Results, b.Bytes, maxBytes)
}

// Append adds tasks to a batch that is being submitted, at an offset, and returns the batch's length. It changes
// nothing if the tasks are there. ErrOffset: the batch is shorter, or it ends among the tasks.
func (q *Queue) Append(ctx context.Context, batch, life string, at int64, tasks [][]byte) (length int64, err error) {
	args := make([]any, 0, 3+len(tasks))
	args = append(args, batch, life, at)
	for _, t := range tasks {
		args = append(args, t)
	}
	return q.count(ctx, "append", args...)
}

// Open makes a batch runnable that has exactly count tasks. A repeat changes nothing.
func (q *Queue) Open(ctx context.Context, batch, life string, count int64) error {
	return q.do(ctx, "open", batch, life, count)
}

// Set changes the weight and state (open, paused, cancelled) of a batch, unless a version at least as new was set. The
// version is that of the manifest.
func (q *Queue) Set(ctx context.Context, batch, life string, version int64, weight int, state string) error {
	return q.do(ctx, "set", batch, life, version, weight, state)
}

// Retry moves up to n dead tasks of a batch, that died before a time of Redis, to a batch in its life. If that is the
// same one, they wait again, with all their attempts, and watchers may claim it again that they failed at. Otherwise it
// is being submitted, and they are appended at an offset; a repeat moves nothing.
func (q *Queue) Retry(ctx context.Context, batch, to, life string, at int64, n int, before time.Time) (int64, error) {
	return q.count(ctx, "retry", batch, n, before.UnixMilli(), to, life, at)
}

// Drop deletes up to n dead tasks of a batch that died before a time of Redis.
func (q *Queue) Drop(ctx context.Context, batch string, n int, before time.Time) (int64, error) {
	return q.count(ctx, "drop", batch, n, before.UnixMilli())
}

// Remove unlinks a batch in any state, except its dead tasks. life is "" for a batch that is broken. It does nothing if
// there is no such batch.
func (q *Queue) Remove(ctx context.Context, batch, life string) error {
	return q.do(ctx, "remove", batch, life)
}

// standard are the scripts of all queues, by name.
var standard = sync.OnceValue(func() map[string]*redis.Script { return loadScripts(lua.Clock()) })

// loadScripts makes the scripts with a part that defines now().
func loadScripts(clock string) map[string]*redis.Script {
	all := map[string]*redis.Script{}
	for name, text := range lua.Scripts(clock) {
		all[name] = redis.NewScript(text)
	}
	return all
}

// What a script refuses. Each is the Is of a [Refusal].
var (
	// ErrNoSeat means that the seat is not let in, or was shut. Look at the seat's znode: if it stands, say hello and
	// sync; otherwise stop.
	ErrNoSeat = errors.New("unknown seat")
	// ErrSeq means that another call of the seat came before this one. Sync.
	ErrSeq = errors.New("out of sequence")
	// ErrNoBatch means that Redis has no keys of this batch: it was removed or lost.
	ErrNoBatch = errors.New("no such batch in redis")
	// ErrBroken means that keys of the batch do not fit its counts. Only Remove works on it.
	ErrBroken = errors.New("keys of the batch do not fit its counts")
	// ErrLife means that Redis has an earlier or later batch of the same name. Read the manifest again.
	ErrLife = errors.New("another batch of this name")
	// ErrOffset means that the batch has another length. Go on there.
	ErrOffset = errors.New("the batch has another length")
	// ErrState means that the batch is in a state that does not allow it.
	ErrState = errors.New("not possible in this state of the batch")
	// ErrFull means that the queue holds max_bytes. Try again later.
	ErrFull = errors.New("the queue is full")
	// ErrDead means that dead tasks of an earlier batch of this name are kept. Retry or drop them first.
	ErrDead = errors.New("dead tasks of an earlier batch of this name are kept")
	// ErrClaimed means that a watcher has the batch.
	ErrClaimed = errors.New("a watcher has the batch")
	// ErrLimit means that a call has more than MaxItems, or more than MaxBytes before its last item.
	ErrLimit = errors.New("too much for one call")
	// ErrArgument means that a script does not take such an argument.
	ErrArgument = errors.New("an argument that the script does not take")
	// ErrFormat means that another version of muster wrote the queue's keys. Use that version.
	ErrFormat = errors.New("the queue in redis has another format")
	// ErrOtherQueue means that the keys belong to another queue. Name another database.
	ErrOtherQueue = errors.New("the keys in redis are of another queue")
	// ErrMemory means that Redis has no memory left. Wait, or raise its maxmemory.
	ErrMemory = errors.New("redis is out of memory")
)

// Refusal is a script's answer that it changed nothing, and why.
type Refusal struct {
	Err    error  // one of the errors of this package
	Detail string // what Redis has: the last seq, the length, the state, the life
}

func (r *Refusal) Error() string {
	if r.Detail == "" {
		return r.Err.Error()
	}
	return fmt.Sprintf("%v (%s)", r.Err, r.Detail)
}

func (r *Refusal) Unwrap() error { return r.Err }

// refusal makes a Refusal of an error reply with which a script refuses. Other errors stay as they are.
func refusal(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return err
	}
	code, detail, _ := strings.Cut(reply.Error(), " ")
	known := map[string]error{
		"NOSEAT": ErrNoSeat, "SEQ": ErrSeq, "NOBATCH": ErrNoBatch, "BROKEN": ErrBroken, "LIFE": ErrLife,
		"OFFSET": ErrOffset, "STATE": ErrState, "FULL": ErrFull, "DEAD": ErrDead, "CLAIMED": ErrClaimed,
		"LIMIT": ErrLimit, "ARGUMENT": ErrArgument, "FORMAT": ErrFormat, "QUEUE": ErrOtherQueue, "OOM": ErrMemory,
	}
	if known[code] == nil {
		return err
	}
	return &Refusal{known[code], detail}
}

// Task names a task: its batch and its position there.
type Task struct {
	Batch string
	Index int64
}

func (t Task) field() string { return t.Batch + ":" + strconv.FormatInt(t.Index, 10) }

// Outcome is how an attempt at a task ended.
type Outcome string

// The outcomes.
const (
	Done  Outcome = "o" // Data is the result
	Again Outcome = "r" // Data is the reason; the task is late, or dead after its last attempt
	Never Outcome = "d" // Data is the reason; the task is dead at once
)

// Result is the end of an attempt.
type Result struct {
	Task
	Attempt int
	Outcome Outcome
	Took    time.Duration
	Data    []byte
}

func (r *Result) meta() string {
	return strconv.Itoa(r.Attempt) + ":" + string(r.Outcome) + ":" + strconv.FormatInt(max(0, r.Took.Nanoseconds()), 10)
}

// Turn is one call of an executor.
type Turn struct {
	Results  []Result      // at most MaxItems and MaxBytes
	Idle     int           // commands with nothing to do; at least so many tasks are granted, if there are
	Room     time.Duration // how much more work the executor wants in its hand
	Backoff  time.Duration // before a second attempt; doubled each time, at most 100 times as much
	MaxBytes int64         // of the queue
}

// Grant is consecutive tasks of one batch, from an index, all at the same attempt (from 1).
type Grant struct {
	Batch    string
	Index    int64
	Attempt  int
	Payloads [][]byte
}

// Refused is a result that did not count, and why: "held": not in this hand; "gone": the batch was removed; "broken".
type Refused struct {
	Result int // its position in Turn.Results
	Why    string
}

// Turned is the answer to a Turn.
type Turned struct {
	Granted []Grant
	Refused []Refused
	Due     time.Duration // until a late task is due; negative: there is none
	Level   int           // 1: above MaxBytes, only the oldest batch is granted; 2: above twice MaxBytes, nothing is
	Alone   bool          // nothing is granted while the hand is not empty: it has a suspect, or is to have one
}

// Turn returns late tasks that are due, counts results of what is in the seat's hand, and grants tasks. seq is one more
// than the seat's last one. After any other error than a Refusal, and after ErrSeq, call Sync.
func (q *Queue) Turn(ctx context.Context, seat string, seq int64, t Turn) (Turned, error) {
	args := make([]any, 0, 6+3*len(t.Results))
	args = append(args, seat, seq, t.Idle, max(0, t.Room.Nanoseconds()), t.Backoff.Milliseconds(), t.MaxBytes)
	for _, r := range t.Results {
		args = append(args, r.field(), r.meta(), r.Data)
	}
	return ask(ctx, q, "turn", func(s *shape, v any) Turned { return parseTurn(s, v, len(t.Results)) }, args...)
}

func parseTurn(s *shape, v any, results int) Turned {
	l := s.list(v, 4, 4)
	out := Turned{Due: s.wait(l[0]), Level: int(s.number(l[3], 0, 3))}
	if out.Level == 3 {
		out.Level, out.Alone = 0, true
	}
	out.Refused = each(s, l[1], results, func(v any) Refused {
		r := s.list(v, 2, 2)
		return Refused{int(s.number(r[0], 0, int64(results)-1)), s.text(r[1], maxText)}
	})
	out.Granted = each(s, l[2], MaxItems, func(v any) Grant {
		g := s.list(v, 4, 4)
		grant := Grant{Batch: s.batch(g[0]), Index: s.count(g[1]), Attempt: int(s.number(g[2], 1, maxCount))}
		for _, p := range s.list(g[3], 1, MaxItems) {
			grant.Payloads = append(grant.Payloads, []byte(s.text(p, maxBulk)))
		}
		return grant
	})
	return out
}

// Held is something a seat believes to hold: a task at an attempt, or with Claim a batch at attempt 0.
type Held struct {
	Task
	Attempt int
	Claim   bool
}

func (h Held) field() string {
	if h.Claim {
		return h.Batch + ":watch"
	}
	return h.Task.field()
}

// Sync returns what of keep is in the seat's hand, and gives back one page of the rest; nobody is charged. seq is
// anything above the seat's last one; a call with a lower one that arrives later is refused. While more is true, call
// it again with the next seq.
func (q *Queue) Sync(ctx context.Context, seat string, seq int64, keep []Held) (kept []Held, more bool, err error) {
	args := make([]any, 0, 2+2*len(keep))
	args = append(args, seat, seq)
	for _, h := range keep {
		args = append(args, h.field(), h.Attempt)
	}
	p, err := ask(ctx, q, "sync", func(s *shape, v any) progress { return s.progress(v, len(keep)) }, args...)
	has := map[string]bool{}
	for _, field := range p.names {
		has[field] = true
	}
	for _, h := range keep {
		if has[h.field()] {
			kept = append(kept, h)
		}
	}
	return kept, p.more, err
}

// Claimed is a complete batch that a watcher has.
type Claimed struct {
	Batch, Life string
	Done, Dead  int64
	Try         int // from 1
}

// Claim gives a complete batch to a watcher: nil if there is none. next is until another one may be claimed; negative:
// there is none. seq is as for Turn.
func (q *Queue) Claim(ctx context.Context, seat string, seq int64) (got *Claimed, next time.Duration, err error) {
	got, err = ask(ctx, q, "claim", func(s *shape, v any) *Claimed {
		l := s.list(v, 1, 6)
		if next = s.wait(l[0]); len(l) == 1 {
			return nil
		}
		l = s.list(v, 6, 6)
		return &Claimed{s.batch(l[1]), s.text(l[2], maxText), s.count(l[3]), s.count(l[4]), int(s.count(l[5]))}
	}, seat, seq)
	return got, next, err
}

// Unclaim gives a claimed batch back. With a reason a try is charged, and the batch may be claimed again after the
// back-off, doubled for each try; after its last try nobody may claim it. It does nothing if the seat does not have it.
func (q *Queue) Unclaim(
	ctx context.Context, seat string, seq int64, batch, reason string, backoff time.Duration,
) error {
	charged := 0
	if reason != "" {
		charged = 1
	}
	return q.do(ctx, "unclaim", seat, seq, batch, charged, backoff.Milliseconds(), reason)
}
