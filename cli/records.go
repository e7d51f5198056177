package cli

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

// With --log-format json every line that muster writes on standard error is a JSON object with time, level and msg: the
// log, and what is for people otherwise. The lines of a command that muster runs are its own.

// records makes such objects. Its Write takes text.
type records struct {
	all *slog.Logger // of every level

	mu   sync.Mutex
	rest []byte // of a line that is not complete
}

// wholeLines passes on one line at a time, so that two logs can share a stream.
type wholeLines struct {
	mu sync.Mutex
	to *stream
}

func (w *wholeLines) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.write(line)
}

// wantsJSON reports whether the arguments ask for JSON on standard error. It looks before they are parsed, because what
// is wrong with them is to be JSON too.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch {
		case arg == "--":
			return false
		case arg == "--log-format=json", arg == "--log-format" && i+1 < len(args) && args[i+1] == "json":
			return true
		}
	}
	return false
}

// makeRecords turns all that is written to the stream from now on into records.
func (s *stream) makeRecords() {
	s.lines = &wholeLines{to: s}
	everything := &slog.HandlerOptions{Level: slog.LevelDebug}
	s.records = &records{all: slog.New(slog.NewJSONHandler(s.lines, everything))}
}

// Write makes a record of each line.
func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, b...)
	for {
		line, after, complete := bytes.Cut(r.rest, []byte("\n"))
		if !complete {
			return len(b), nil
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			r.all.Info(text)
		}
		r.rest = bytes.Clone(after)
	}
}

// flush makes a record of what is left of a line, such as a prompt.
func (r *records) flush() {
	if len(r.rest) > 0 {
		_, _ = r.Write([]byte("\n"))
	}
}

// logHandler is where the log of this process goes.
func (p *process) logHandler(level slog.Level) slog.Handler {
	opts := &slog.HandlerOptions{Level: level}
	if p.err.records != nil {
		opts.ReplaceAttr = durationAsText
		return slog.NewJSONHandler(p.err.lines, opts)
	}
	return slog.NewTextHandler(p.err, opts)
}

// durationAsText makes a duration of a record "10s", as in text, where slog would write nanoseconds.
func durationAsText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// record writes one record with attributes, and reports whether standard error takes records.
func (p *process) record(ctx context.Context, level slog.Level, msg string, attrs ...any) bool {
	if p.err.records == nil {
		return false
	}
	p.err.records.all.Log(ctx, level, msg, attrs...)
	return true
}
