package sim

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Bounds of a shrinker's work.
const (
	tries    = 600
	tryLimit = time.Minute
)

// shrink drops lines of a trace while the schedule still fails: all of one process or life, then parts of the trace,
// smaller and smaller.
func shrink(t *testing.T, o Options, world func(*World), f failure) failure {
	s := shrinker{failure: f, end: time.Now().Add(tryLimit), replay: func(lines []string) outcome {
		return replayed(t, o, world, lines)
	}}
	for _, who := range s.who() {
		s.try(slices.DeleteFunc(slices.Clone(s.trace), func(line string) bool { return subject(line) == who }))
	}
	for size := len(s.trace) / 2; size > 0; size /= 2 {
		for at := 0; at < len(s.trace); {
			end := min(at+size, len(s.trace))
			if !s.try(slices.Concat(s.trace[:at], s.trace[end:])) {
				at = end
			}
		}
	}
	return s.failure
}

// shrinker holds the shortest trace so far.
type shrinker struct {
	failure
	replay func(lines []string) outcome
	tries  int
	end    time.Time
}

// try keeps lines if they are fewer and fail as before: a hang must not hide what is wrong.
func (s *shrinker) try(lines []string) bool {
	if s.tries++; s.tries > tries || time.Now().After(s.end) || len(lines) >= len(s.trace) {
		return false
	}
	out := s.replay(lines)
	if out.err == nil || isHang(out.err) != isHang(s.err) || len(out.trace) >= len(s.trace) {
		return false
	}
	s.outcome = out
	return true
}

func isHang(err error) bool { return strings.Contains(err.Error(), hangs) }

// who lists what the lines are about: lives of processes, or -.
func (s *shrinker) who() []string {
	var all []string
	for _, line := range s.trace {
		if who := subject(line); !slices.Contains(all, who) {
			all = append(all, who)
		}
	}
	return all
}

func subject(line string) string {
	fields := strings.Fields(line)
	return fields[min(1, len(fields)-1)]
}
