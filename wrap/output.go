package wrap

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// pipeGrace is how long the output of a run is read when its process group has ended: a process that has left the group
// may hold it open for ever. flushGrace is how long it is copied: a stream of this process may be blocked for ever.
const pipeGrace, flushGrace = time.Second, 2 * time.Second

// output copies what a run writes to this process's streams, and keeps the end of both together.
type output struct {
	pipes   [2]*os.File // for the run
	readers [2]*os.File
	copied  sync.WaitGroup

	mu   sync.Mutex
	tail tail
}

func openOutput(to ...*os.File) (*output, error) {
	o := new(output)
	for i := range o.pipes {
		var err error
		if o.readers[i], o.pipes[i], err = os.Pipe(); err != nil {
			o.close()
			return nil, fmt.Errorf("a pipe for the output: %w", err)
		}
		from := o.readers[i]
		o.copied.Go(func() { o.copy(to[i], from) })
	}
	return o, nil
}

// copy ends at the end of from. While the stream of this process is blocked, a run that writes waits; an error of that
// stream stops nothing.
func (o *output) copy(to, from *os.File) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			o.keep(b[:n])
			_, _ = to.Write(b[:n])
		}
		if err != nil {
			return
		}
	}
}

func (o *output) keep(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail.add(b)
}

// close is called when the run has ended. It returns the end of the output. What a blocked stream has not taken after
// flushGrace is left to it: what copy has read is written when the stream goes on, and the rest is dropped.
func (o *output) close() *tail {
	for i := range o.pipes {
		if o.pipes[i] == nil {
			continue
		}
		_ = o.pipes[i].Close()
		_ = o.readers[i].SetReadDeadline(time.Now().Add(pipeGrace))
	}
	copied := make(chan struct{})
	go func() {
		o.copied.Wait()
		close(copied)
	}()
	select {
	case <-copied:
	case <-time.After(flushGrace):
	}
	for _, from := range o.readers {
		if from != nil {
			_ = from.Close()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return &tail{slices.Clone(o.tail.buf)}
}
