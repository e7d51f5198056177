package tasks

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"muster/resource"
	"muster/resource/queue"
)

// Source yields the payloads of a batch's tasks, in order. Submit reads it at least twice, and it must yield the same
// each time. A payload is valid until the next one. Of one that is larger than the queue allows, at least a byte too
// much is yielded.
type Source func(ctx context.Context, q queue.Queue) iter.Seq2[[]byte, error]

// Payloads is a source of payloads in memory.
func Payloads(all ...[]byte) Source {
	return func(context.Context, queue.Queue) iter.Seq2[[]byte, error] {
		return func(yield func([]byte, error) bool) {
			for _, p := range all {
				if !yield(p, nil) {
					return
				}
			}
		}
	}
}

// Lines is a source of the parts of f that end with a byte; the last one need not. An empty part is an empty task.
func Lines(f io.ReaderAt, end byte) Source {
	return func(_ context.Context, q queue.Queue) iter.Seq2[[]byte, error] {
		return parts(io.NewSectionReader(f, 0, 1<<62), end, int64(q.MaxTask))
	}
}

// Files is a source whose tasks are the contents of files.
func Files(names ...string) Source {
	return func(_ context.Context, q queue.Queue) iter.Seq2[[]byte, error] {
		return func(yield func([]byte, error) bool) {
			for _, name := range names {
				body, err := readFile(name, int64(q.MaxTask)+1)
				if !yield(body, err) || err != nil {
					return
				}
			}
		}
	}
}

func readFile(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// parts reads what ends with a byte. Of a part longer than limit it yields limit+1 bytes, and ends.
func parts(r io.Reader, end byte, limit int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		in := bufio.NewReaderSize(r, 1<<16)
		var part []byte
		for {
			some, err := in.ReadSlice(end)
			part = append(part, some...)
			whole := err == nil
			switch {
			case int64(len(bytes.TrimSuffix(part, []byte{end}))) > limit:
				yield(part[:limit+1], nil)
				return
			case whole:
				part = part[:len(part)-1]
			case errors.Is(err, bufio.ErrBufferFull):
				continue
			case !errors.Is(err, io.EOF):
				yield(nil, err)
				return
			case len(part) == 0:
				return
			}
			if !yield(part, nil) || !whole {
				return
			}
			part = part[:0]
		}
	}
}

// Stream is a source of the parts of what can be read only once, such as a pipe. It keeps them in a temporary
// file. Close it.
type Stream struct {
	r      io.Reader
	end    byte
	spool  spool
	whole  bool // all of r is in the spool
	broken bool // what came next was lost
}

// NewStream returns a Stream of the parts of r that end with a byte.
func NewStream(r io.Reader, end byte) *Stream { return &Stream{r: r, end: end} }

// Tasks is the source. A batch that is larger than the queue's max_bytes is refused before it fills a disk.
func (s *Stream) Tasks(ctx context.Context, q queue.Queue) iter.Seq2[[]byte, error] {
	kept := io.NewSectionReader(s.spool.file, 0, s.spool.size)
	if s.whole {
		return parts(kept, s.end, int64(q.MaxTask))
	}
	return parts(io.MultiReader(kept, &copying{ctx, s, int64(q.MaxBytes)}), s.end, int64(q.MaxTask))
}

// Close forgets what was read.
func (s *Stream) Close() error { return s.spool.Close() }

// copying reads from a Stream's reader, and keeps what it read.
type copying struct {
	ctx  context.Context
	s    *Stream
	most int64
}

// Read ends with ctx: that of a pipe may never end.
func (c *copying) Read(b []byte) (int, error) {
	type answer struct {
		n   int
		err error
	}
	if c.s.broken {
		return 0, errors.New("the tasks were read in part before")
	}
	buf, got := make([]byte, len(b)), make(chan answer, 1)
	go func() {
		n, err := c.s.r.Read(buf)
		got <- answer{n, err}
	}()
	var a answer
	select {
	case a = <-got:
	case <-c.ctx.Done():
		c.s.broken = true // the goroutine takes what comes next
		return 0, context.Cause(c.ctx)
	}
	if c.s.spool.size+int64(a.n) > c.most {
		return 0, fmt.Errorf("%w: more than the queue's max_bytes, %s: submit it in parts", ErrTooLarge,
			resource.Size(c.most))
	}
	if _, err := c.s.spool.Write(buf[:a.n]); err != nil {
		return 0, err
	}
	c.s.whole = errors.Is(a.err, io.EOF)
	return copy(b, buf[:a.n]), a.err
}
