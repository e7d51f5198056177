package member_test

import (
	"testing"
	"time"

	"muster/group"
	"muster/member"
	"muster/resource"
	"muster/zkstate/zkconn"
)

// TestVacantAfterAnOutage: all members were lost and have come back, so all are young. Their duties are given at once.
func TestVacantAfterAnOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "first", "second")
	var sessions []*zkconn.Session
	come := func() (a, b *member.Member) {
		var ms []*member.Member
		for _, id := range []string{"a", "b"} {
			s := dial(t)
			m, err := member.Join(t.Context(), s, f.config(id, "1.0", "first", "second"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { m.Leave() })
			ms, sessions = append(ms, m), append(sessions, s)
		}
		return ms[0], ms[1]
	}
	a, b := come()
	f.take(a, "first")
	f.until("both to be members", func() bool { return f.memory().Size == 2 })
	f.change(func(g *group.Group) { g.Settle = resource.Duration(time.Hour) })
	f.until("both to read that", func() bool {
		return time.Duration(a.Group().Settle) == time.Hour && time.Duration(b.Group().Settle) == time.Hour
	})
	for _, s := range sessions {
		s.Close()
	}
	a, _ = come()
	f.take(a, "first")
}
