package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Books is what Redis holds of a queue.
type Books struct {
	Now      time.Time // of Redis
	Virtual  float64   // virtual time in ns
	Bytes    int64     // Cost of everything held
	Mean     time.Duration
	Finished int64     // attempts
	Slots    int       // commands that all executors run at once
	Weights  int64     // of the batches that can be taken from
	Evicted  time.Time // when somebody last did
	Batches  int       // with keys
	Running  int       // that can be taken from
	Complete int       // that nobody claimed
	Late     int       // with late tasks
	WithDead int       // also removed ones
	Seats    []Seat    // by name
}

// Full reports whether nothing is executed until a batch ends: Redis holds more than twice the queue's max_bytes.
func (b Books) Full(maxBytes int64) bool { return b.Bytes > 2*maxBytes }

// Seat is a seat that said hello.
type Seat struct {
	Name  string
	Role  Role
	Slots int
	Seq   int64
	Shut  bool // is being evicted; evict it until nothing is left
}

// Batch is the books of a batch.
type Batch struct {
	ID, Broken                    string // Broken: what does not fit; the rest is empty then
	Life, State, Results          string
	Holder, Because               string // the watcher's seat; why the last try ended
	Number                        int64
	Weight, Attempts              int
	Version                       int64
	Declared, Sum                 int64 // bytes: as Begin said, as they came
	Tasks, Taken, Out, Done, Dead int64
	Bytes, Largest, LargestResult int64
	Virtual                       float64 // ns
	Mean                          time.Duration
	Finished                      int64 // attempts
	Tries, Falls                  int   // of watchers; deaths of watchers
	Waiting, Returned, Late       int64
}

// Books reads the books of the queue.
func (q *Queue) Books(ctx context.Context) (Books, error) {
	reply, err := q.call(ctx, "count", "queue")
	if err != nil {
		return Books{}, err
	}
	l := list(reply)
	if len(l) != 15 {
		return Books{}, fmt.Errorf("redis: count answered %d parts, not 15", len(l))
	}
	n := func(i int) int64 { return integer(l[i]) }
	b := Books{
		Now: time.UnixMilli(n(0)), Virtual: number(l[1]), Bytes: n(2), Mean: time.Duration(n(3)), Finished: n(4),
		Slots: int(n(6)), Weights: n(7), Evicted: time.UnixMilli(n(8)),
		Batches: int(n(9)), Running: int(n(10)), Complete: int(n(11)), Late: int(n(12)), WithDead: int(n(13)),
	}
	hands := list(l[14])
	for i := 0; i+1 < len(hands); i += 2 {
		b.Seats = append(b.Seats, parseSeat(text(hands[i]), text(hands[i+1])))
	}
	slices.SortFunc(b.Seats, func(x, y Seat) int { return strings.Compare(x.Name, y.Name) })
	return b, nil
}

func parseSeat(name, value string) Seat {
	part := strings.Split(value, ":")
	if len(part) == 4 && part[0] == "shut" {
		return Seat{Name: name, Role: Role(part[2]), Slots: int(integer(part[3])), Shut: true}
	}
	if len(part) != 3 {
		return Seat{Name: name}
	}
	return Seat{Name: name, Role: Role(part[0]), Slots: int(integer(part[1])), Seq: integer(part[2])}
}

// Batches reads the books of up to n batches, oldest first, without the first skip ones.
func (q *Queue) Batches(ctx context.Context, skip, n int) ([]Batch, error) {
	reply, err := q.call(ctx, "count", "batches", skip, min(n, MaxItems))
	if err != nil {
		return nil, err
	}
	var all []Batch
	for _, v := range list(reply) {
		all = append(all, parseBatch(list(v)))
	}
	return all, nil
}

// AllBatches reads the books of all batches, by id.
func (q *Queue) AllBatches(ctx context.Context) (map[string]Batch, error) {
	all := map[string]Batch{}
	for skip := 0; ; skip += MaxItems {
		page, err := q.Batches(ctx, skip, MaxItems)
		if err != nil {
			return nil, err
		}
		for _, b := range page {
			all[b.ID] = b
		}
		if len(page) < MaxItems {
			return all, nil
		}
	}
}

// Hands counts the tasks in the hands of these seats, by seat and batch.
func (q *Queue) Hands(ctx context.Context, seats []string) (map[string]map[string]int, error) {
	asked := make([]*redis.StringSliceCmd, len(seats))
	_, err := q.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, seat := range seats {
			asked[i] = p.HKeys(ctx, q.prefix+"h:"+seat)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("redis: hands: %w", err)
	}
	all := map[string]map[string]int{}
	for i, seat := range seats {
		all[seat] = map[string]int{}
		for _, field := range asked[i].Val() { // batch:index; others are of watchers, or notes
			if at := strings.LastIndexByte(field, ':'); at >= 0 && field[at+1:] != "watch" {
				all[seat][field[:at]]++
			}
		}
	}
	return all, nil
}

// Batch reads the books of one batch.
func (q *Queue) Batch(ctx context.Context, id string) (Batch, error) {
	reply, err := q.call(ctx, "count", "batch", id)
	if err != nil {
		return Batch{}, err
	}
	if len(list(reply)) < 2 {
		return Batch{}, fmt.Errorf("redis: count answered nothing about batch %s", id)
	}
	return parseBatch(list(reply)), nil
}

func parseBatch(l []any) Batch {
	b := Batch{ID: text(l[0]), Broken: text(l[1])}
	if b.Broken != "" || len(l) != 29 {
		return b
	}
	b.Life, b.State, b.Results, b.Holder, b.Because = text(l[2]), text(l[3]), text(l[4]), text(l[5]), text(l[6])
	n := func(i int) int64 { return integer(l[i+7]) }
	b.Number, b.Weight, b.Attempts, b.Version = n(0), int(n(1)), int(n(2)), n(3)
	b.Declared, b.Sum, b.Tasks, b.Taken, b.Out, b.Done, b.Dead = n(4), n(5), n(6), n(7), n(8), n(9), n(10)
	b.Bytes, b.Largest, b.LargestResult, b.Virtual = n(11), n(12), n(13), number(l[21])
	b.Mean, b.Finished, b.Tries, b.Falls = time.Duration(n(15)), n(16), int(n(17)), int(n(18))
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
	reply, err := q.call(ctx, "count", "results", batch, skip)
	if err != nil {
		return nil, err
	}
	var page []Finished
	for _, v := range list(reply) {
		part := strings.SplitN(text(v), ":", 4)
		if len(part) != 4 {
			return nil, fmt.Errorf("redis: batch %s: a result has %d parts, not 4", batch, len(part))
		}
		took := time.Duration(integer(part[2]))
		page = append(page, Finished{integer(part[0]), int(integer(part[1])), took, []byte(part[3])})
	}
	return page, nil
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
	reply, err := q.call(ctx, "count", "dead", batch, skip)
	if err != nil {
		return nil, err
	}
	var page []DeadTask
	for _, v := range list(reply) {
		part := strings.SplitN(text(v), ":", 6)
		n := -1
		if len(part) == 6 {
			n = int(integer(part[4]))
		}
		if n < 0 || n > len(part[5]) {
			return nil, fmt.Errorf("redis: batch %s: a dead task cannot be read", batch)
		}
		page = append(page, DeadTask{
			integer(part[0]), int(integer(part[1])), int(integer(part[2])), time.UnixMilli(integer(part[3])),
			part[5][:n], []byte(part[5][n:]),
		})
	}
	return page, nil
}

// DeadBatches lists up to n batches whose first dead task died before a time of Redis, also removed ones.
func (q *Queue) DeadBatches(ctx context.Context, before time.Time, n int) ([]string, error) {
	ids, err := q.client.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: q.prefix + "dead", ByScore: true,
		Start: "-inf", Stop: "(" + strconv.FormatInt(before.UnixMilli(), 10), Count: int64(n),
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("redis: dead: %w", err)
	}
	return ids, nil
}

func number(v any) float64 {
	n, _ := strconv.ParseFloat(text(v), 64)
	return n
}
