package sim

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// replay follows the lines of a trace. It skips a line that does not fit. After the last line comes the fair end.
type replay struct{ lines []string }

func (r *replay) next(w *World) (step, bool) {
	for len(r.lines) > 0 {
		line := r.lines[0]
		r.lines = r.lines[1:]
		if s, ok := fitting(w, line); ok {
			return s, true
		}
	}
	return step{}, false
}

func fitting(w *World, line string) (step, bool) {
	fields := strings.SplitN(line, " ", 3)
	switch verb(fields[0]) {
	case wait:
		s := step{verb: wait}
		if len(fields) == 3 {
			s.time, _ = time.ParseDuration(fields[2])
		}
		return s, true
	case start, apply, deliver, drop, resume, up:
		return find(w.moves(), line)
	}
	return find(w.faults(true), line)
}

func find(all []step, line string) (step, bool) {
	for _, s := range all {
		if s.String() == line {
			return s, true
		}
	}
	return step{}, false
}

// replayed runs the schedule of a trace.
func replayed(t *testing.T, o Options, world func(*World), lines []string) outcome {
	return inBubble(t, o, world, &replay{lines})
}

func replayFile(t *testing.T, o Options, world func(*World), file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	out := replayed(t, o, world, lines)
	if out.err != nil {
		t.Fatalf("%s: %v\n\n%s", o.Name, out.err, story(out))
	}
	t.Logf("the trace leads to no failure; what happened:\n%s", story(out))
}

// story is a trace for a reader.
func story(o outcome) string {
	text := numbered(o.trace)
	if len(o.after) > 0 {
		text += "      then without faults, one process after the other:\n      " + strings.Join(o.after, "\n      ") + "\n"
	}
	return text
}

func numbered(trace []string) string {
	var b strings.Builder
	for i, line := range trace {
		fmt.Fprintf(&b, "%4d  %s\n", i+1, line)
	}
	return b.String()
}
