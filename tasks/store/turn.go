package store

import (
	"context"
	"strconv"
	"time"
)

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
	reply, err := q.call(ctx, "turn", args...)
	if err != nil {
		return Turned{}, err
	}
	out, err := parseTurn(reply, len(t.Results))
	return out, q.failed("turn", err)
}

// parseTurn takes apart the answer to a turn with so many results.
func parseTurn(reply any, results int) (Turned, error) {
	var s shape
	l := s.list(reply, 4, 4)
	out := Turned{Due: s.wait(l[0]), Level: int(s.number(l[3], 0, 3))}
	if out.Level == 3 {
		out.Level, out.Alone = 0, true
	}
	for _, v := range s.list(l[1], 0, results) {
		r := s.list(v, 2, 2)
		out.Refused = append(out.Refused, Refused{int(s.number(r[0], 0, int64(results)-1)), s.text(r[1], maxText)})
	}
	for _, v := range s.list(l[2], 0, MaxItems) {
		g := s.list(v, 4, 4)
		payloads := s.list(g[3], 1, MaxItems)
		grant := Grant{s.batch(g[0]), s.count(g[1]), int(s.number(g[2], 1, maxCount)), make([][]byte, len(payloads))}
		for i, p := range payloads {
			grant.Payloads[i] = []byte(s.text(p, maxBulk))
		}
		out.Granted = append(out.Granted, grant)
	}
	if s.err != nil {
		return Turned{}, s.err
	}
	return out, nil
}

// Held is something a seat believes to hold: a task at an attempt, or with Claim a batch.
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
		attempt := h.Attempt
		if h.Claim {
			attempt = 0
		}
		args = append(args, h.field(), attempt)
	}
	reply, err := q.call(ctx, "sync", args...)
	if err != nil {
		return nil, false, err
	}
	has, more, err := parseSync(reply)
	if err != nil {
		return nil, false, q.failed("sync", err)
	}
	for _, h := range keep {
		if has[h.field()] {
			kept = append(kept, h)
		}
	}
	return kept, more, nil
}

func parseSync(reply any) (has map[string]bool, more bool, err error) {
	var s shape
	l := s.list(reply, 1, maxItems)
	has, more = map[string]bool{}, s.number(l[0], 0, 1) == 1
	for _, v := range l[1:] {
		has[s.text(v, maxText)] = true
	}
	return has, more, s.err
}
