package member

import (
	"context"
	"fmt"
	"testing"
)

// TestSlowReaderIsTold: the oldest events are dropped, the reader is told how many, and the newest are there.
func TestSlowReaderIsTold(t *testing.T) {
	t.Parallel()
	m := &Member{}
	events := m.Events(t.Context())
	for i := range maxEvents + 7 {
		m.emit(Event{Kind: EventGiven, Duty: fmt.Sprint(i)})
	}
	m.events.close(context.Canceled)
	var got []Event
	for e := range events {
		got = append(got, e)
	}
	if len(got) != maxEvents+1 || got[0].Kind != EventMissed || got[0].Text != "7 events" || got[1].Duty != "7" {
		t.Errorf("%d events, the first are %+v", len(got), got[:2])
	}
	if last := got[len(got)-1]; last.Duty != fmt.Sprint(maxEvents+6) {
		t.Errorf("the last event is %+v", last)
	}
}

// TestReaderThatStopsIsForgotten: whether the loop or the context ends.
func TestReaderThatStopsIsForgotten(t *testing.T) {
	t.Parallel()
	m := &Member{}
	ctx, cancel := context.WithCancel(t.Context())
	_ = m.Events(ctx) // never read
	cancel()
	events := m.Events(t.Context())
	m.emit(Event{Kind: EventGiven})
	for range events {
		break
	}
	for range m.Events(ctx) {
		t.Error("an event after the end")
	}
	m.events.mu.Lock()
	defer m.events.mu.Unlock()
	if n := len(m.events.readers); n > 1 { // that of ctx is taken away in the background
		t.Errorf("%d readers are left", n)
	}
}
