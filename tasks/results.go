package tasks

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"
	"unicode/utf8"

	"muster/tasks/store"
)

// What an attempt leaves is kept in Redis as an Answer: one byte, the fields that this byte announces, and the body:
//
//	0xf8 + 1: exit  a varint
//	0xf8 + 2: host  its length as a uvarint, and its bytes
//	0xf8 + 4: tail  likewise
//
// No text in UTF-8 starts with such a byte: what does not is the body alone, such as the reasons that scripts write.

// Answer is what an attempt at a task left. Executors write it: as the data of Done, Again and Never.
type Answer struct {
	Exit *int   // of the command; nil: there was none, or it was ended by a signal
	Host string // where; "": not told
	Tail []byte // the end of what the command wrote to standard error
	Body []byte // the result; of a failure, why
}

const (
	answerMark = 0xf8
	answerExit = 1
	answerHost = 2
	answerTail = 4
)

// Encode encodes the answer. It costs one byte beside the body, if there is nothing else.
func (a Answer) Encode() []byte {
	out := make([]byte, 1, 1+2*binary.MaxVarintLen32+binary.MaxVarintLen64+len(a.Host)+len(a.Tail)+len(a.Body))
	out[0] = answerMark
	if a.Exit != nil {
		out[0] |= answerExit
		out = binary.AppendVarint(out, int64(*a.Exit))
	}
	if a.Host != "" {
		out[0] |= answerHost
		out = append(binary.AppendUvarint(out, uint64(len(a.Host))), a.Host...)
	}
	if len(a.Tail) > 0 {
		out[0] |= answerTail
		out = append(binary.AppendUvarint(out, uint64(len(a.Tail))), a.Tail...)
	}
	return append(out, a.Body...)
}

// DecodeAnswer decodes what an attempt left. What is not an Answer, or is damaged, is the body. A reason may have been
// cut: its tail then ends early.
func DecodeAnswer(data []byte) Answer {
	if len(data) == 0 || data[0] < answerMark {
		return Answer{Body: data}
	}
	var a Answer
	rest, good := data[1:], true
	if data[0]&answerExit != 0 {
		exit, n := binary.Varint(rest)
		code := int(exit)
		a.Exit, good = &code, n > 0
		rest = rest[max(n, 0):]
	}
	field := func(bit byte) (f []byte) {
		if data[0]&bit == 0 || !good {
			return nil
		}
		size, n := binary.Uvarint(rest)
		if good = n > 0; good {
			rest = rest[n:]
			cut := int(min(size, uint64(len(rest))))
			f, rest = rest[:cut], rest[cut:]
		}
		return f
	}
	a.Host, a.Tail = string(field(answerHost)), field(answerTail)
	if !good {
		return Answer{Body: data}
	}
	a.Body = rest
	return a
}

// Record is what became of a task, as readers of results see it: one line of JSON.
type Record struct {
	Index   int64 // from 0
	Attempt int   // from 1
	Exit    *int  // of the command; nil: not known
	MS      int64 // how long the attempt took; 0 of a dead task
	Host    string
	Tail    []byte // of standard error
	Result  []byte // of a done task

	// Of a dead task: why, when it died, and its payload.
	Dead  bool
	Error string
	Died  time.Time
	Task  []byte
}

// recordLine is a Record in JSON. What is not UTF-8 is in base64, under a name of its own.
type recordLine struct {
	Index      int64      `json:"index"`
	Attempt    int        `json:"attempt"`
	Exit       *int       `json:"exit,omitempty"`
	MS         int64      `json:"ms"`
	Host       string     `json:"host,omitempty"`
	Result     *string    `json:"result,omitempty"`
	Base64     []byte     `json:"base64,omitempty"`
	Stderr     string     `json:"stderr,omitempty"`
	Dead       bool       `json:"dead,omitempty"`
	Error      string     `json:"error,omitempty"`
	Died       *time.Time `json:"died,omitempty"`
	Task       *string    `json:"task,omitempty"`
	TaskBase64 []byte     `json:"task_base64,omitempty"`
}

func (r Record) MarshalJSON() ([]byte, error) {
	l := recordLine{
		Index: r.Index, Attempt: r.Attempt, Exit: r.Exit, MS: r.MS, Host: r.Host, Stderr: string(r.Tail),
		Dead: r.Dead, Error: r.Error,
	}
	if r.Dead {
		died := r.Died.UTC()
		l.Died = &died
		l.Task, l.TaskBase64 = TextOrBytes(r.Task)
	} else {
		l.Result, l.Base64 = TextOrBytes(r.Result)
	}
	return json.Marshal(l)
}

// TextOrBytes is what JSON has of bytes: a text, or what is not UTF-8.
func TextOrBytes(b []byte) (*string, []byte) {
	if !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}

// Records reads what became of the tasks of a batch that are finished: the results in the order in which they came,
// then the dead tasks. It holds one page in memory. After an error it calls away, which waits or returns why not, and
// reads the page again; nil does not wait. An error ends the sequence.
func Records(ctx context.Context, st *store.Queue, id string, away func(error) error) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		results := paged(func(skip int64) ([]store.Finished, error) { return st.Results(ctx, id, skip) }, away,
			func(f store.Finished) Record {
				a := DecodeAnswer(f.Data)
				return Record{
					Index: f.Index, Attempt: f.Attempt, Exit: a.Exit, MS: f.Took.Milliseconds(), Host: a.Host,
					Tail: a.Tail, Result: a.Body,
				}
			})
		for _, all := range []iter.Seq2[Record, error]{results, DeadTasks(ctx, st, id, away)} {
			for r, err := range all {
				if !yield(r, err) || err != nil {
					return
				}
			}
		}
	}
}

// DeadTasks is Records of the dead tasks only, the oldest first; also of a batch that has ended.
func DeadTasks(ctx context.Context, st *store.Queue, id string, away func(error) error) iter.Seq2[Record, error] {
	return paged(func(skip int64) ([]store.DeadTask, error) { return st.DeadTasks(ctx, id, skip) }, away,
		func(d store.DeadTask) Record {
			a := DecodeAnswer([]byte(d.Reason))
			return Record{
				Index: d.Index, Attempt: d.Attempt, Exit: a.Exit, Host: a.Host, Tail: a.Tail,
				Dead: true, Error: string(a.Body), Died: d.Died, Task: d.Payload,
			}
		})
}

// paged reads page after page until an empty one.
func paged[T any](
	page func(skip int64) ([]T, error), away func(error) error, record func(T) Record,
) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var skip int64
		for {
			var all []T
			err := until(away, func() (err error) {
				all, err = page(skip)
				return err
			})
			if err != nil {
				yield(Record{}, err)
				return
			}
			for _, one := range all {
				if !yield(record(one), nil) {
					return
				}
			}
			if len(all) == 0 {
				return
			}
			skip += int64(len(all))
		}
	}
}

// ErrIncomplete means that Redis does not have what became of every task: it lost some, or the batch is not complete.
var ErrIncomplete = errors.New("what became of some tasks is missing")

// spool keeps bytes in a temporary file that has no name any more.
type spool struct {
	file *os.File // nil before the first Write
	size int64
}

// Write appends.
func (s *spool) Write(b []byte) (int, error) {
	if s.file == nil {
		f, err := os.CreateTemp("", "muster-")
		if err != nil {
			return 0, fmt.Errorf("temporary file: %w", err)
		}
		s.file = f
		if err := os.Remove(f.Name()); err != nil {
			return 0, fmt.Errorf("temporary file: %w", err)
		}
	}
	n, err := s.file.WriteAt(b, s.size)
	s.size += int64(n)
	return n, err
}

// Close removes what is there.
func (s *spool) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// InOrder yields records in the order of their tasks' indexes, of which there are total. Those that come early wait in
// a temporary file, and each takes up to 40 bytes of memory. The sequence ends with ErrIncomplete at an index that does
// not come.
func InOrder(records iter.Seq2[Record, error], total int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		o := order{early: map[int64]place{}}
		defer o.spool.Close()
		var next int64
		for r, err := range records {
			if err == nil && r.Index >= total {
				err = fmt.Errorf("%w: the batch has %d tasks, and there is a result of task %d", store.ErrReply, total, r.Index)
			}
			if err == nil && r.Index > next {
				err = o.keep(r)
			}
			for there := r.Index == next; there && err == nil; r, there, err = o.take(next) {
				if next++; !yield(r, nil) {
					return
				}
			}
			if err != nil {
				yield(Record{}, err)
				return
			}
		}
		if next < total {
			yield(Record{}, fmt.Errorf("%w: from task %d on, of %d", ErrIncomplete, next, total))
		}
	}
}

// order keeps records that came early.
type order struct {
	spool spool
	early map[int64]place // by index
}

// place is where a record is in the spool.
type place struct {
	at   int64
	size int32
}

// plain is a Record as it is in the spool.
type plain Record

func (o *order) keep(r Record) error {
	line, err := json.Marshal(plain(r))
	if err != nil {
		return err
	}
	o.early[r.Index] = place{o.spool.size, int32(len(line))}
	_, err = o.spool.Write(line)
	return err
}

// take returns a record that came early.
func (o *order) take(index int64) (r Record, there bool, err error) {
	p, there := o.early[index]
	if !there {
		return r, false, nil
	}
	delete(o.early, index)
	line := make([]byte, p.size)
	if _, err := o.spool.file.ReadAt(line, p.at); err != nil {
		return r, true, fmt.Errorf("temporary file: %w", err)
	}
	if len(o.early) == 0 {
		o.spool.size = 0 // what is in it was read
	}
	return r, true, json.Unmarshal(line, (*plain)(&r))
}
