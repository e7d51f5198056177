package zkconn

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// rateLimited logs a message that comes again and again ever more rarely: a second after the first time, then after
// twice as long, up to a minute. A session that cannot connect tries many times a second, and a process can have
// thousands of sessions.
type rateLimited struct {
	to *slog.Logger

	mu   sync.Mutex
	last map[string]repeated
}

// repeated is when a message was logged last, and how long it is not logged after that.
type repeated struct {
	at    time.Time
	quiet time.Duration
}

const shortestQuiet, longestQuiet = time.Second, time.Minute

// Printf logs a message of the library.
func (l *rateLimited) Printf(format string, args ...any) {
	l.log(slog.LevelDebug, "zookeeper client library", "says", fmt.Sprintf(format, args...))
}

func (l *rateLimited) log(level slog.Level, msg string, args ...any) {
	if l.to.Enabled(context.Background(), level) && l.due(msg) {
		l.to.Log(context.Background(), level, msg, args...)
	}
}

func (l *rateLimited) due(msg string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	last := l.last[msg]
	since := now.Sub(last.at)
	if since < last.quiet {
		return false
	}
	if l.last == nil {
		l.last = map[string]repeated{}
	}
	quiet := min(2*last.quiet, longestQuiet)
	if since > 2*last.quiet { // it had ended, or never begun
		quiet = shortestQuiet
	}
	l.last[msg] = repeated{now, quiet}
	return true
}
