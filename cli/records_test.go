package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A duration in a record of --log-format json is what it is in text, not a number of nanoseconds.
func TestDurationsOfRecordsAreText(t *testing.T) {
	var b bytes.Buffer
	p := &process{err: &stream{w: &b}}
	p.err.makeRecords()
	slog.New(p.logHandler(slog.LevelInfo)).Info("waiting", "since", 10*time.Second)
	if !strings.Contains(b.String(), `"since":"10s"`) {
		t.Errorf("record %s has no since of 10s", b.String())
	}
}
