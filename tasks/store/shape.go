package store

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"muster/resource/queue"
)

// Limits of what stands in a reply.
const (
	maxText   = 2 << 10                   // of a name, a state or a reason; a script keeps 1 KiB of those
	maxCount  = 1 << 53                   // Lua has no larger one that is exact
	maxMillis = 253_402_300_799_999       // the end of the year 9999
	maxWait   = math.MaxInt64 / 1_000_000 // ms in a time.Duration
	maxListed = 2 * queue.MaxBatches      // batches in Redis: some have ended, and are not removed yet
)

// shape takes a reply apart. Its err is ErrReply and says what did not fit first; that is zero, and so is what follows.
type shape struct{ err error }

func (s *shape) wrong(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: "+format, append([]any{ErrReply}, args...)...)
	}
}

// list is an array of at least so many items, and at most: what is missing is nil.
func (s *shape) list(v any, least, most int) []any {
	l, ok := v.([]any)
	if !ok {
		s.wrong("%s instead of a list", brief(v))
	} else if len(l) < least || len(l) > most {
		s.wrong("a list of %d", len(l))
	}
	if s.err != nil {
		return make([]any, least)
	}
	return l
}

// text is a text of at most so many bytes.
func (s *shape) text(v any, most int) string {
	t, ok := v.(string)
	if !ok {
		s.wrong("%s instead of a text", brief(v))
	} else if len(t) > most {
		s.wrong("a text of %d bytes", len(t))
	}
	if s.err != nil {
		return ""
	}
	return t
}

// batch is the id of a batch, which is the name of a znode too.
func (s *shape) batch(v any) string {
	id := s.text(v, queue.MaxBatchID)
	if err := queue.CheckBatchID(id); err != nil && s.err == nil {
		s.wrong("%w", err)
	}
	if s.err != nil {
		return ""
	}
	return id
}

// number is a whole number within limits, also as a text.
func (s *shape) number(v any, least, most int64) int64 {
	n, ok := v.(int64)
	if t, is := v.(string); is {
		var err error
		n, err = strconv.ParseInt(t, 10, 64)
		ok = err == nil
	}
	if !ok || n < least || n > most {
		s.wrong("%s instead of a number from %d to %d", brief(v), least, most)
	}
	if s.err != nil {
		return 0
	}
	return n
}

// count is a number that is not negative.
func (s *shape) count(v any) int64 { return s.number(v, 0, maxCount) }

// wait is how long until something is due, in ms; negative: nothing is.
func (s *shape) wait(v any) time.Duration {
	return time.Duration(s.number(v, -1, maxWait)) * time.Millisecond
}

// at is a time in ms.
func (s *shape) at(v any) time.Time { return time.UnixMilli(s.number(v, 0, maxMillis)) }

// float is a finite number as a text.
func (s *shape) float(v any) float64 {
	n, err := strconv.ParseFloat(s.text(v, maxText), 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		s.wrong("%s instead of a number", brief(v))
	}
	if s.err != nil {
		return 0
	}
	return n
}

// brief is how an error shows what did not fit.
func brief(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%.40q", v)
	case int64:
		return strconv.FormatInt(v, 10)
	case []any:
		return "a list"
	case error:
		return "an error"
	}
	return "nothing"
}
