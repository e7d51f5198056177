package daemon

import (
	"strings"
	"sync"
)

const maxOutput = 64 << 10

// Output keeps the last maxOutput bytes that a process wrote.
type Output struct {
	mu  sync.Mutex
	end []byte
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end = append(o.end, b...)
	if over := len(o.end) - maxOutput; over > 0 {
		o.end = append(o.end[:0], o.end[over:]...)
	}
	return len(b), nil
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.end)
}

// Lines are the last n lines, without the indented lines of stack traces.
func (o *Output) Lines(n int) string {
	var kept []string
	for line := range strings.Lines(o.String()) {
		if line = strings.TrimRight(line, "\n"); line != "" && line[0] != '\t' {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(0, len(kept)-n):], "\n")
}
