package zkconn

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// rateLimited logs each message at most once a second. A session that cannot connect tries many times a second, and a
// process can have thousands of sessions.
type rateLimited struct {
	to *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time
}

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
	if now.Sub(l.last[msg]) < time.Second {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	l.last[msg] = now
	return true
}
