package store

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource/queue"
)

// Books is what Redis holds of a queue.
type Books struct {
	Now      time.Time // of Redis
	Bytes    int64     // Cost of everything held
	Finished int64     // attempts
	Slots    int       // commands that all executors run at once
	Evicted  time.Time // when somebody last did
	Batches  int       // with keys
	Complete int       // that nobody claimed
	WithDead int       // also removed ones
	Seats    []Seat    // by name
}

// Seat is a seat that said hello.
type Seat struct {
	Name  string
	Role  queue.Role
	Slots int
	Seq   int64
	Shut  bool // is being evicted; evict it until nothing is left
}

// Batch is the books of a batch.
type Batch struct {
	ID, Broken                    string // Broken: what does not fit; the rest is empty then
	Life, State, Results          string
	Holder, Because               string // the watcher's seat; why the last try ended
	Weight, Attempts              int
	Version                       int64
	Declared, Sum                 int64 // bytes: as Begin said, as they came
	Tasks, Taken, Out, Done, Dead int64
	Bytes                         int64
	Finished                      int64 // attempts
	Tries, Falls                  int   // of watchers; deaths of watchers
	Waiting, Returned, Late       int64
}

// Books reads the books of the queue.
func (q *Queue) Books(ctx context.Context) (Books, error) {
	return ask(ctx, q, "count", parseBooks, "queue")
}

// Full is the bytes that Redis holds, if these are more than twice the queue's max_bytes: then nothing is executed
// until a batch ends. Otherwise it is 0.
func (b Books) Full(maxBytes int64) (held int64) {
	if b.Bytes > 2*maxBytes {
		return b.Bytes
	}
	return 0
}

func parseBooks(s *shape, v any) Books {
	l := s.list(v, 15, 15)
	n := func(i int) int64 { return s.count(l[i]) }
	b := Books{
		Now: s.at(l[0]), Bytes: s.number(l[2], -maxCount, maxCount), Finished: n(4), Slots: int(n(6)),
		Evicted: s.at(l[8]), Batches: int(n(9)), Complete: int(n(11)), WithDead: int(n(13)),
	}
	hands := s.list(l[14], 0, maxItems)
	for i := 0; i+1 < len(hands); i += 2 {
		b.Seats = append(b.Seats, parseSeat(s.text(hands[i], maxText), s.text(hands[i+1], maxText)))
	}
	slices.SortFunc(b.Seats, func(x, y Seat) int { return strings.Compare(x.Name, y.Name) })
	return b
}

// parseSeat reads what the key of all hands says of a seat. One that somebody has damaged keeps its name.
func parseSeat(name, value string) Seat {
	seat, part := Seat{Name: name}, strings.Split(value, ":")
	if seat.Shut = len(part) == 4 && part[0] == "shut"; seat.Shut {
		part = append(part[2:], "0")
	}
	if len(part) == 3 {
		var s shape
		seat.Role = map[string]queue.Role{"e": queue.Executor, "w": queue.Watcher}[part[0]]
		seat.Slots, seat.Seq = int(s.count(part[1])), s.count(part[2])
	}
	return seat
}

// Batches reads the books of up to n batches, oldest first, without the first skip ones.
func (q *Queue) Batches(ctx context.Context, skip, n int) ([]Batch, error) {
	if skip > maxListed { // or else a reader of all would never end
		return nil, q.failed("count", fmt.Errorf("%w: it has more than %d batches", ErrReply, maxListed))
	}
	n = min(n, MaxItems)
	return ask(ctx, q, "count", func(s *shape, v any) []Batch { return each(s, v, n, s.books) }, "batches", skip, n)
}

const batchPage = 200

// AllBatches reads the books of all batches, the oldest first, a page at a time. One that is removed meanwhile may hide
// another one. An error ends the sequence.
func (q *Queue) AllBatches(ctx context.Context) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for skip := 0; ; skip += batchPage {
			page, err := q.Batches(ctx, skip, batchPage)
			if err != nil {
				yield(Batch{}, err)
				return
			}
			for _, b := range page {
				if !yield(b, nil) {
					return
				}
			}
			if len(page) < batchPage {
				return
			}
		}
	}
}

// ByID reads the books of all batches, by id.
func (q *Queue) ByID(ctx context.Context) (map[string]Batch, error) {
	all := map[string]Batch{}
	for b, err := range q.AllBatches(ctx) {
		if err != nil {
			return nil, err
		}
		all[b.ID] = b
	}
	return all, nil
}

// handsAtOnce is of how many seats the hands are read at once, so that the answers are within the limit.
const handsAtOnce = 100

// Hands counts the tasks in the hands of these seats, by seat and batch.
func (q *Queue) Hands(ctx context.Context, seats []string) (map[string]map[string]int, error) {
	all := map[string]map[string]int{}
	for some := range slices.Chunk(seats, handsAtOnce) {
		asked := make([]*redis.Cmd, len(some))
		_, err := q.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, seat := range some {
				asked[i] = p.Do(ctx, "hkeys", q.prefix+"h:"+seat)
			}
			return nil
		})
		for i, seat := range some {
			if err == nil {
				all[seat], err = take(asked[i].Val(), parseHand)
			}
		}
		if err != nil {
			return nil, q.failed("hands", err)
		}
	}
	return all, nil
}

// parseHand counts tasks by their batches in a list of batch:index; other entries are of watchers, or notes.
func parseHand(s *shape, v any) map[string]int {
	tasks := map[string]int{}
	for _, v := range s.list(v, 0, maxItems) {
		field := s.text(v, maxText)
		if at := strings.LastIndexByte(field, ':'); at >= 0 && field[at+1:] != "watch" {
			tasks[field[:at]]++
		}
	}
	return tasks
}

// Batch reads the books of one batch.
func (q *Queue) Batch(ctx context.Context, id string) (Batch, error) {
	return ask(ctx, q, "count", (*shape).books, "batch", id)
}

func (s *shape) books(v any) Batch {
	l := s.list(v, 2, 29)
	b := Batch{ID: s.text(l[0], maxText), Broken: s.text(l[1], maxText)}
	if b.Broken != "" {
		s.list(v, 2, 2)
		return b
	}
	l = s.list(v, 29, 29)
	text := func(i int) string { return s.text(l[i], maxText) }
	b.Life, b.State, b.Results, b.Holder, b.Because = text(2), text(3), text(4), text(5), text(6)
	n := func(i int) int64 { return s.count(l[i+7]) }
	b.Weight, b.Attempts, b.Version = int(n(1)), int(n(2)), n(3)
	b.Declared, b.Sum, b.Tasks, b.Taken, b.Out, b.Done, b.Dead = n(4), n(5), n(6), n(7), n(8), n(9), n(10)
	b.Bytes, b.Finished = s.number(l[18], -maxCount, maxCount), n(16)
	b.Tries, b.Falls = int(n(17)), int(n(18))
	b.Waiting, b.Returned, b.Late = n(19), n(20), n(21)
	return b
}

// Finished is the result of a task.
type Finished struct {
	Index   int64
	Attempt int
	Took    time.Duration
	Data    []byte
}

// Results reads a page of a batch's results, in the order in which they came, without the first skip ones. An empty
// page is the end.
func (q *Queue) Results(ctx context.Context, batch string, skip int64) ([]Finished, error) {
	return page(ctx, q, "results", batch, skip, parseResult)
}

func parseResult(s *shape, v any) Finished {
	part := s.parts(v, 4)
	return Finished{
		s.count(part[0]), int(s.count(part[1])), time.Duration(s.number(part[2], 0, math.MaxInt64)), []byte(part[3]),
	}
}

func page[T any](
	ctx context.Context, q *Queue, what, batch string, skip int64, parse func(*shape, any) T,
) ([]T, error) {
	if skip > queue.MaxTasks { // or else a reader of all would never end
		return nil, q.failed("count", fmt.Errorf("%w: batch %s has more %s than tasks", ErrReply, batch, what))
	}
	return ask(ctx, q, "count", func(s *shape, v any) []T {
		return each(s, v, MaxItems, func(v any) T { return parse(s, v) })
	}, what, batch, skip)
}

// parts are those of a text with colons between them; what is missing is empty. The last one may have colons.
func (s *shape) parts(v any, n int) []string {
	part := strings.SplitN(s.text(v, maxBulk), ":", n)
	if len(part) < n {
		s.wrong("%s instead of %d parts", brief(v), n)
		return make([]string, n)
	}
	return part
}

// DeadTask is a task that is not tried again.
type DeadTask struct {
	Index           int64
	Attempt, Deaths int
	Died            time.Time // of Redis
	Reason          string
	Payload         []byte
}

// DeadTasks reads a page of a batch's dead tasks, oldest first, without the first skip ones. An empty page is the end.
func (q *Queue) DeadTasks(ctx context.Context, batch string, skip int64) ([]DeadTask, error) {
	return page(ctx, q, "dead", batch, skip, parseDead)
}

func parseDead(s *shape, v any) DeadTask {
	part := s.parts(v, 6)
	n := s.number(part[4], 0, int64(min(len(part[5]), maxText)))
	return DeadTask{
		s.count(part[0]), int(s.count(part[1])), int(s.count(part[2])), s.at(part[3]), part[5][:n], []byte(part[5][n:]),
	}
}

// DeadBatches lists up to n batches whose first dead task died before a time of Redis, also removed ones. n is at most
// MaxDeadBatches.
func (q *Queue) DeadBatches(ctx context.Context, before time.Time, n int) ([]string, error) {
	reply, err := q.client.Do(ctx, "zrange", q.prefix+"dead", "-inf", "("+strconv.FormatInt(before.UnixMilli(), 10),
		"byscore", "limit", 0, n).Result()
	if err != nil {
		return nil, q.failed("dead", err)
	}
	ids, err := take(reply, func(s *shape, v any) []string { return each(s, v, n, s.batch) })
	return ids, q.failed("dead", err)
}

// CountDead counts the dead tasks that are kept, also of removed batches: of the first MaxItems that have any.
func (q *Queue) CountDead(ctx context.Context) (sum int64, err error) {
	ids, err := q.DeadBatches(ctx, time.UnixMilli(maxMillis), MaxItems)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	counts := make([]*redis.Cmd, len(ids))
	_, err = q.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			counts[i] = p.Do(ctx, "llen", q.prefix+"d:"+id)
		}
		return nil
	})
	for i := 0; i < len(ids) && err == nil; i++ {
		var n int64
		n, err = take(counts[i].Val(), (*shape).count)
		sum += n
	}
	return sum, q.failed("dead", err)
}

// MaxDeadBatches is how many batches with dead tasks are listed at once.
const MaxDeadBatches = 100_000

// Limits of what stands in a reply.
const (
	maxText   = 2 << 10                   // of a name, a state or a reason; a script keeps 1 KiB of those
	maxCount  = 1 << 53                   // Lua has no larger one that is exact
	maxMillis = 253_402_300_799_999       // the end of the year 9999
	maxWait   = math.MaxInt64 / 1_000_000 // ms in a time.Duration
	maxListed = 2 * queue.MaxBatches      // batches in Redis: some have ended, and are not removed yet
)

// shape takes a reply apart. Its err is ErrReply and says what did not fit first; that is zero, and so is what follows.
type shape struct{ err error }

// take takes a reply apart. It is the zero T if something does not fit.
func take[T any](reply any, parse func(*shape, any) T) (out T, err error) {
	var s shape
	if v := parse(&s, reply); s.err == nil {
		out = v
	}
	return out, s.err
}

// each takes apart a list of at most so many items.
func each[T any](s *shape, v any, most int, item func(any) T) (all []T) {
	for _, v := range s.list(v, 0, most) {
		all = append(all, item(v))
	}
	return all
}

func (s *shape) wrong(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: "+format, append([]any{ErrReply}, args...)...)
	}
}

// list is an array of at least so many items, and at most: what is missing is nil.
func (s *shape) list(v any, least, most int) []any {
	l, ok := v.([]any)
	if !ok {
		s.wrong("%s instead of a list", brief(v))
	} else if len(l) < least || len(l) > most {
		s.wrong("a list of %d", len(l))
	}
	if s.err != nil {
		return make([]any, least)
	}
	return l
}

// text is a text of at most so many bytes.
func (s *shape) text(v any, most int) string {
	t, ok := v.(string)
	if !ok {
		s.wrong("%s instead of a text", brief(v))
	} else if len(t) > most {
		s.wrong("a text of %d bytes", len(t))
	}
	if s.err != nil {
		return ""
	}
	return t
}

// batch is the id of a batch, which is the name of a znode too.
func (s *shape) batch(v any) string {
	id := s.text(v, queue.MaxBatchID)
	if err := queue.CheckBatchID(id); err != nil && s.err == nil {
		s.wrong("%w", err)
	}
	if s.err != nil {
		return ""
	}
	return id
}

// number is a whole number within limits, also as a text.
func (s *shape) number(v any, least, most int64) int64 {
	n, ok := v.(int64)
	if t, is := v.(string); is {
		var err error
		n, err = strconv.ParseInt(t, 10, 64)
		ok = err == nil
	}
	if !ok || n < least || n > most {
		s.wrong("%s instead of a number from %d to %d", brief(v), least, most)
	}
	if s.err != nil {
		return 0
	}
	return n
}

// count is a number that is not negative.
func (s *shape) count(v any) int64 { return s.number(v, 0, maxCount) }

// wait is how long until something is due, in ms; negative: nothing is.
func (s *shape) wait(v any) time.Duration {
	return time.Duration(s.number(v, -1, maxWait)) * time.Millisecond
}

// at is a time in ms.
func (s *shape) at(v any) time.Time { return time.UnixMilli(s.number(v, 0, maxMillis)) }

func brief(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%.40q", v)
	case int64:
		return strconv.FormatInt(v, 10)
	case []any:
		return "a list"
	case error:
		return "an error"
	}
	return "nothing"
}
