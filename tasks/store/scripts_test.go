package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const manyBytes = 1 << 30

func payloads(n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = fmt.Append(nil, "task ", i)
	}
	return all
}

func (q *testQueue) submit(id string, weight, attempts int, tasks ...[]byte) {
	q.t.Helper()
	ctx := q.t.Context()
	b := NewBatch{ID: id, Life: "life-" + id, Weight: weight, Attempts: attempts, Results: "watcher"}
	for _, p := range tasks {
		b.Bytes += Cost(p)
	}
	must(q.Begin(ctx, b, manyBytes))(q.t)
	at := int64(0)
	for chunk := range slices.Chunk(tasks, MaxItems) {
		at = must(q.Append(ctx, id, b.Life, at, chunk))(q.t)
	}
	if !must(q.Open(ctx, id, b.Life, at))(q.t) {
		q.t.Fatalf("batch %s was open", id)
	}
}

// testSeat is a seat that remembers its seq and its hand.
type testSeat struct {
	q    *testQueue
	name string
	seq  int64
	hand []Held
	data map[Task]string
}

func (q *testQueue) seat(name string, role Role, slots int) *testSeat {
	q.t.Helper()
	must(q.Hello(q.t.Context(), name, role, slots))(q.t)
	return &testSeat{q: q, name: name, data: map[Task]string{}}
}

func (s *testSeat) turn(t Turn) Turned {
	s.q.t.Helper()
	if t.MaxBytes == 0 {
		t.MaxBytes = manyBytes
	}
	s.seq++
	out := must(s.q.Turn(s.q.t.Context(), s.name, s.seq, t))(s.q.t)
	sent := map[Task]bool{}
	for _, r := range t.Results {
		sent[r.Task] = true
	}
	s.hand = slices.DeleteFunc(s.hand, func(h Held) bool { return sent[h.Task] })
	for _, g := range out.Granted {
		for i, p := range g.Payloads {
			task := Task{g.Batch, g.Index + int64(i)}
			s.hand = append(s.hand, Held{Task: task, Attempt: g.Attempt})
			s.data[task] = string(p)
		}
	}
	return out
}

// finish are the results of the whole hand.
func (s *testSeat) finish(o Outcome, took time.Duration) []Result {
	var all []Result
	for _, h := range s.hand {
		all = append(all, Result{h.Task, h.Attempt, o, took, []byte("result of " + s.data[h.Task])})
	}
	return all
}

func (s *testSeat) claim() *Claimed {
	s.q.t.Helper()
	s.seq++
	got, _, err := s.q.Claim(s.q.t.Context(), s.name, s.seq)
	return must(got, err)(s.q.t)
}

// evict evicts seats, all pages.
func (q *testQueue) evict(how End, seats ...string) {
	q.t.Helper()
	for more := true; more; {
		var damaged []string
		var err error
		more, damaged, err = q.Evict(context.Background(), how, seats...)
		if err != nil || len(damaged) > 0 {
			q.t.Fatal(damaged, err)
		}
	}
}

func TestABatchFromSubmitToItsEnd(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.submit("b", 1, 3, payloads(10)...)
	e, w := q.seat("e1", Executor, 2), q.seat("w1", Watcher, 0)
	if c := w.claim(); c != nil {
		t.Errorf("claimed before it was complete: %+v", c)
	}
	for e.turn(Turn{Idle: 2}); len(e.hand) > 0; {
		e.turn(Turn{Idle: 2, Results: e.finish(Done, time.Millisecond)})
	}
	want := &Claimed{Batch: "b", Life: "life-b", Done: 10, Try: 1}
	if d := cmp.Diff(want, w.claim()); d != "" {
		t.Errorf("claimed (-want +got):\n%s", d)
	}
	got := map[int64]string{}
	for _, r := range must(q.Results(t.Context(), "b", 0))(t) {
		got[r.Index] = string(r.Data)
	}
	for i, p := range payloads(10) {
		if got[int64(i)] != "result of "+string(p) {
			t.Errorf("result %d is %q", i, got[int64(i)])
		}
	}
	if !must(q.Remove(t.Context(), "b", "life-b"))(t) || must(q.Remove(t.Context(), "b", "life-b"))(t) {
		t.Error("removed twice, or not at all")
	}
	q.evict(Died, "e1")
	q.evict(Died, "w1")
	left := q.keys()
	delete(left, "wake:e")
	delete(left, "wake:w")
	if b := must(q.Books(t.Context()))(t); b.Bytes != 0 || len(left) != 1 || !left["q"] {
		t.Errorf("left: %d bytes, keys %v", b.Bytes, left)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	ctx := t.Context()
	q.submit("b", 1, 3, payloads(3)...)
	e := q.seat("e1", Executor, 1)
	e.turn(Turn{Idle: 1})
	big := make([]byte, MaxBytes+1)
	_, turnErr := q.Turn(ctx, "e1", 1, Turn{})
	_, unknown := q.Turn(ctx, "nobody", 1, Turn{})
	_, noBatch := q.Append(ctx, "x", "l", 0, payloads(1))
	_, life := q.Append(ctx, "b", "other", 0, payloads(1))
	_, offset := q.Append(ctx, "b", "life-b", 9, payloads(1))
	_, state := q.Append(ctx, "b", "life-b", 3, payloads(1))
	_, items := q.Append(ctx, "b", "life-b", 3, payloads(1001))
	_, size := q.Append(ctx, "b", "life-b", 3, [][]byte{big, big})
	large := NewBatch{ID: "c", Life: "c", Weight: 1, Attempts: 1, Results: "watcher", Bytes: manyBytes}
	_, full := q.Begin(ctx, large, manyBytes)
	q2 := *q.Queue
	q2.id = "queue-2"
	_, other := q2.Hello(ctx, "e9", Executor, 1)
	for _, c := range []struct{ got, want error }{
		{turnErr, ErrSeq}, {unknown, ErrNoSeat}, {noBatch, ErrNoBatch}, {life, ErrLife}, {offset, ErrOffset},
		{state, ErrState}, {items, ErrLimit}, {size, ErrLimit}, {full, ErrFull}, {other, ErrOtherQueue},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
}

// TestOnePoisonTask: the task that kills its executors dies; of the others beside it none is charged an attempt.
func TestOnePoisonTask(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.submit("b", 1, 3, payloads(1000)...)
	const poison = 500
	killed := 0
	for n := 0; ; n++ {
		e := q.seat(fmt.Sprint("e", n), Executor, 1)
		e.turn(Turn{Idle: 1000, Room: time.Hour})
		if len(e.hand) == 0 {
			break
		}
		dies := false
		for _, h := range e.hand {
			dies = dies || h.Index == poison
			if h.Index != poison && h.Attempt != 1 {
				t.Fatalf("task %d is at attempt %d", h.Index, h.Attempt)
			}
		}
		if dies {
			killed++
			q.evict(Died, e.name)
			continue
		}
		e.turn(Turn{Results: e.finish(Done, time.Millisecond)})
		for range 1000 {
			e.turn(Turn{Idle: 1000, Room: time.Hour})
			if len(e.hand) == 0 || slices.ContainsFunc(e.hand, func(h Held) bool { return h.Index == poison }) {
				break
			}
			e.turn(Turn{Results: e.finish(Done, time.Millisecond)})
		}
		if len(e.hand) > 0 {
			killed++
		}
		q.evict(Died, e.name)
	}
	b := must(q.Batches(t.Context(), 0, 1))(t)[0]
	dead := must(q.DeadTasks(t.Context(), "b", 0))(t)
	if b.Done != 999 || len(dead) != 1 || dead[0].Index != poison || dead[0].Deaths != 5 || killed != 5 {
		t.Errorf("%d done, %d executors died, dead: %+v", b.Done, killed, dead)
	}
}

// TestAnOutageChargesNobody: all executors die, again and again, with all tasks of a batch in their hands, until these
// are suspects, and after that. One attempt would be too many.
func TestAnOutageChargesNobody(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.submit("b", 1, 1, payloads(100)...)
	for round := range 6 {
		names, inHand := []string{}, 0
		for i := range 10 {
			s := q.seat(fmt.Sprint("e", round, "-", i), Executor, 10)
			s.turn(Turn{Idle: 10})
			names, inHand = append(names, s.name), inHand+len(s.hand)
		}
		if want := []int{100, 100, 5, 5, 5, 5}[round]; inHand != want {
			t.Errorf("%d tasks are in hand in round %d, not %d", inHand, round, want)
		}
		q.evict(Died, names...)
	}
	e := q.seat("last", Executor, 1)
	for e.turn(Turn{Idle: 1}); len(e.hand) > 0; {
		e.turn(Turn{Idle: 1, Results: e.finish(Done, time.Millisecond)})
	}
	if b := must(q.Batches(t.Context(), 0, 1))(t)[0]; b.Done != 100 || b.Dead != 0 {
		t.Errorf("%+v", b)
	}
}

// TestASuspectIsAlone: a hand that has others runs empty for it, of one executor only. Others go on with what is no
// suspect, and who has the suspect is granted nothing.
func TestASuspectIsAlone(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.submit("b", 1, 3, payloads(5)...)
	e1, e2 := q.seat("e1", Executor, 2), q.seat("e2", Executor, 2)
	e1.turn(Turn{Idle: 1})
	e1.turn(Turn{Idle: 1, Results: e1.finish(Done, time.Second)}) // one is known
	e2.turn(Turn{Idle: 1})
	for _, name := range []string{"d1", "d2"} {
		q.seat(name, Executor, 1).turn(Turn{Idle: 1})
		q.evict(Died, name)
	}
	if out := e1.turn(Turn{Idle: 1}); len(out.Granted) != 0 || !out.Alone {
		t.Errorf("the first one does not wait for its hand: %+v", out)
	}
	if out := e2.turn(Turn{Idle: 1}); len(out.Granted) != 1 || out.Granted[0].Index == 3 || out.Alone {
		t.Errorf("the other one does not go on: %+v", out)
	}
	out := e1.turn(Turn{Idle: 2, Room: time.Hour, Results: e1.finish(Done, time.Second)})
	if len(e1.hand) != 1 || out.Granted[0].Index != 3 {
		t.Errorf("its hand is empty: %+v", out)
	}
	if out := e1.turn(Turn{Idle: 1, Room: time.Hour}); len(out.Granted) != 0 || !out.Alone {
		t.Errorf("beside the suspect: %+v", out)
	}
	q.evict(Died, "e1", "e2")
	e3 := q.seat("e3", Executor, 1)
	if out := e3.turn(Turn{Idle: 1}); out.Granted[0].Index != 3 || out.Granted[0].Attempt != 1 {
		t.Errorf("one of two had a suspect: %+v", out)
	}
	q.evict(Died, "e3")
	if out := q.seat("e4", Executor, 1).turn(Turn{Idle: 1}); out.Granted[0].Index != 3 || out.Granted[0].Attempt != 2 {
		t.Errorf("all had a suspect: %+v", out)
	}
}
