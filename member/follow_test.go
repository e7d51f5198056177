package member_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/member"
	"muster/resource/group"
	"muster/zkstate/znode"
)

// TestFollowersSeeEachLeader: who holds a duty, with the epoch that its holder has, and nobody in between.
func TestFollowersSeeEachLeader(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var members []*member.Member
	var holds []*member.Hold
	var seen []member.Leader
	for l, err := range member.Follow(ctx, dial(t), f.group.Root, f.group.Name, "coordinator") {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, l)
		if len(seen) == 5 {
			break
		}
		switch {
		case l == member.Leader{} && len(holds) < 2:
			m := f.join([]string{"a", "b"}[len(holds)], "1.2.0", "coordinator")
			members, holds = append(members, m), append(holds, f.take(m, "coordinator"))
		case l != member.Leader{}:
			h := holds[len(holds)-1]
			if l.Epoch != h.Epoch || l.Address != "127.0.0.1:7000" || l.Version != "1.2.0" || l.Since.IsZero() {
				t.Errorf("leader %+v of a hold with epoch %d", l, h.Epoch)
			}
			if err := members[len(members)-1].Leave(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var who []string
	for _, l := range seen {
		who = append(who, l.Identity)
	}
	t.Logf("leaders: %q", who)
	if !slices.Equal(who, []string{"", "a", "", "b", ""}) {
		t.Errorf("leaders: %q, want nobody before, between and after a and b", who)
	}
}

// TestFollowerKeepsItsWatchOfTheRecord: a watch cannot be removed, so a new one for each change of leader would be kept
// for ever.
func TestFollowerKeepsItsWatchOfTheRecord(t *testing.T) {
	t.Parallel()
	f, proxy := newFixture(t, "coordinator"), newProxy(t)
	record := []byte(znode.Record(group.KindName, f.group.Root, f.group.Name) + "\x01") // with a watch
	var watched atomic.Int32
	proxy.BeforeSend(func(op int32, req []byte) bool {
		if op == zkserver.OpGetData && bytes.HasSuffix(req, record) {
			watched.Add(1)
		}
		return false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m := f.join("a", "1.2.0", "coordinator")
	var hold *member.Hold
	changes := 0
	for l, err := range member.Follow(ctx, dial(t, proxy.Addr()), f.group.Root, f.group.Name, "coordinator") {
		if err != nil {
			t.Fatal(err)
		}
		if changes++; changes > 8 {
			break
		}
		if l == (member.Leader{}) {
			hold = f.take(m, "coordinator")
		} else if err := hold.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := watched.Load(); n != 1 {
		t.Errorf("%d watches of the Record, which has not changed", n)
	}
}

func TestFollowOfNoGroup(t *testing.T) {
	t.Parallel()
	for _, err := range member.Follow(t.Context(), dial(t), "/nowhere", "g", "d") {
		if !errors.Is(err, member.ErrNoGroup) {
			t.Errorf("error = %v", err)
		}
	}
}
