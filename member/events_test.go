package member

import (
	"context"
	"fmt"
	"testing"

	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
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

// JoinKnowing is Join for software that knows the methods of assignment up to knows.
func JoinKnowing(ctx context.Context, s *zkconn.Session, c Config, knows int) (*Member, error) {
	return joinKnowing(ctx, s, c, knows, znode.Present{
		Nonce: zkstate.NewID(), Version: c.Version, Can: c.Can, Ready: true,
	})
}
