package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"muster/tasks/store"
)

// ErrIncomplete means that Redis does not have what became of every task: it lost some, or the batch is not complete.
var ErrIncomplete = errors.New("what became of some tasks is missing")

// spoolMemory is how much a spool keeps in memory.
const spoolMemory = 4 << 20

// spool keeps bytes in memory, and what is too much for that in a temporary file that has no name any more.
type spool struct {
	memory []byte
	file   *os.File
	size   int64
}

// Write appends.
func (s *spool) Write(b []byte) (int, error) {
	if s.file == nil && s.size+int64(len(b)) <= spoolMemory {
		s.memory = append(s.memory, b...)
		s.size += int64(len(b))
		return len(b), nil
	}
	if s.file == nil {
		if err := s.open(); err != nil {
			return 0, err
		}
	}
	n, err := s.file.WriteAt(b, s.size)
	s.size += int64(n)
	return n, err
}

// open moves the bytes to a file.
func (s *spool) open() error {
	f, err := os.CreateTemp("", "muster-")
	if err != nil {
		return fmt.Errorf("temporary file: %w", err)
	}
	if err = os.Remove(f.Name()); err == nil {
		_, err = f.WriteAt(s.memory, 0)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("temporary file: %w", err), f.Close())
	}
	s.file, s.memory = f, nil
	return nil
}

// ReadAt implements io.ReaderAt.
func (s *spool) ReadAt(b []byte, at int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(b, at)
	}
	if at >= int64(len(s.memory)) {
		return 0, io.EOF
	}
	n := copy(b, s.memory[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// Close removes what is there.
func (s *spool) Close() error {
	s.memory = nil
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// InOrder yields records in the order of their tasks' indexes, of which there are total. Those that come early wait in
// memory, up to 4 MiB, and otherwise in a temporary file: then each takes up to 40 bytes of memory. The sequence ends
// with ErrIncomplete at an index that does not come.
func InOrder(records iter.Seq2[Record, error], total int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		o := order{held: map[int64]Record{}, early: map[int64]place{}}
		defer o.spool.Close()
		var next int64
		for r, err := range records {
			switch {
			case err == nil && r.Index >= total:
				err = fmt.Errorf("%w: the batch has %d tasks, and there is a result of task %d", store.ErrReply, total, r.Index)
			case err == nil && r.Index > next:
				err = o.keep(r)
			case err == nil && r.Index == next:
				if !yield(r, nil) {
					return
				}
				next, err = o.flush(next+1, yield)
			}
			if errors.Is(err, errStop) {
				return
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

// errStop means that the reader wants no more.
var errStop = errors.New("stop")

// order keeps records that came early.
type order struct {
	held  map[int64]Record // by index
	bytes int              // of held
	spool spool
	early map[int64]place // those in the spool
}

// recordCost is what a record takes beside its bytes.
const recordCost = 300

func cost(r Record) int {
	return recordCost + len(r.Result) + len(r.Task) + len(r.Tail) + len(r.Error) + len(r.Host)
}

// place is where a record is in the spool.
type place struct {
	at   int64
	size int32
}

func (o *order) keep(r Record) error {
	if n := cost(r); o.bytes+n <= spoolMemory {
		o.held[r.Index], o.bytes = r, o.bytes+n
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	o.early[r.Index] = place{o.spool.size, int32(len(line))}
	_, err = o.spool.Write(line)
	return err
}

// flush yields the records that are there from an index on, and returns the first index that is not.
func (o *order) flush(next int64, yield func(Record, error) bool) (int64, error) {
	for {
		r, there, err := o.take(next)
		if !there || err != nil {
			return next, err
		}
		if next++; !yield(r, nil) {
			return next, errStop
		}
	}
}

// take returns a record that came early.
func (o *order) take(index int64) (r Record, there bool, err error) {
	if r, there = o.held[index]; there {
		delete(o.held, index)
		o.bytes -= cost(r)
		return r, true, nil
	}
	p, there := o.early[index]
	if !there {
		return r, false, nil
	}
	delete(o.early, index)
	line := make([]byte, p.size)
	if _, err := o.spool.ReadAt(line, p.at); err != nil {
		return r, true, fmt.Errorf("temporary file: %w", err)
	}
	if len(o.early) == 0 {
		o.spool.size, o.spool.memory = 0, o.spool.memory[:0] // what is in it was read
	}
	return r, true, json.Unmarshal(line, &r)
}
