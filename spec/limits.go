package spec

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// MaxFile is how many bytes a file has at most: of configuration, of values, and what the function file reads.
const MaxFile = 2 << 20

// maxStack is by how many bytes the stacks of the process may grow. One that overflows, at four times that, ends the
// process. The parser and the evaluation recurse as deeply as a text or a value is nested.
const maxStack = 128 << 20

// Limits are what Load may cost. A zero field stands for its default.
type Limits struct {
	Time   time.Duration // 30 s
	Memory int64         // bytes by which the heap of the process may grow, garbage included; 1 GiB
	Rounds int           // of all for expressions of a configuration together; 1,000,000
}

func (m Limits) orDefaults() Limits {
	return Limits{cmp.Or(m.Time, 30*time.Second), cmp.Or(m.Memory, 1<<30), cmp.Or(m.Rounds, 1_000_000)}
}

// watch is what two goroutines share: the one that loads, and the one that watches it.
type watch struct {
	at   atomic.Pointer[step]
	over atomic.Bool // a limit has been exceeded

	exceeded string // the limit of which the loading goroutine found that, before it ended
}

// step is what the loader is doing: parsing a file, or evaluating an expression.
type step struct {
	in  string // the block
	rng hcl.Range
	src []byte // of the file
}

// begin notes the next step. If a limit has been exceeded, the goroutine ends here.
func (l *loader) begin(in string, rng hcl.Range) {
	if l.watch.over.Load() {
		runtime.Goexit()
	}
	l.watch.at.Store(&step{in, rng, l.sources[rng.Filename]})
}

// within does work and returns nil, or the finding that it exceeds a limit. Neither the parser nor the evaluation of
// HCL can be cancelled. So work is done in a goroutine, which is abandoned past a limit: it goes on, with its memory,
// until it begins another step, and a single expression can go on for ever. A program should end soon after.
func (l *loader) within(limits Limits, work func()) Diagnostics {
	limits = limits.orDefaults()
	before := measure()
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	deadline := time.NewTimer(limits.Time)
	defer deadline.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-done:
			if l.watch.exceeded != "" {
				return l.abandon(l.watch.exceeded, "smaller")
			}
			return nil
		case <-deadline.C:
			return l.abandon(limits.Time.String(), "smaller")
		case <-look.C:
			switch now := measure(); {
			case now.heap-before.heap > limits.Memory:
				return l.abandon(fmt.Sprintf("%d MiB of memory", limits.Memory>>20), "smaller")
			case now.stack-before.stack > maxStack:
				return l.abandon(fmt.Sprintf("%d MiB of stack", maxStack>>20), "less deep")
			}
		}
	}
}

// abandon reports which limit was exceeded, and at which step. It uses nothing that the abandoned goroutine may
// change.
func (l *loader) abandon(limit, remedy string) Diagnostics {
	l.watch.over.Store(true)
	f := findings{sources: map[string][]byte{}}
	d := f.add(codeCost, nil, "it takes more than %s to read this configuration", limit)
	if at := l.watch.at.Load(); at != nil {
		f.sources[at.rng.Filename] = at.src
		d.Range, d.Snippet = f.place(at.rng)
		d.In = at.in
	}
	d.Help = "make what is built here " + remedy + ", or split the configuration into several"
	return f.sorted()
}

// usage is the memory of the process, in bytes.
type usage struct{ heap, stack int64 }

func measure() usage {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
	}
	metrics.Read(samples)
	return usage{int64(samples[0].Value.Uint64()), int64(samples[1].Value.Uint64())}
}
