package member_test

import (
	"testing"

	"muster/member"
	"muster/zkserver"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

func TestReady(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	c := f.config("a", "1.0", "coordinator")
	c.NotReady = true
	m, err := member.Join(t.Context(), dial(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Leave() })
	for range 2 {
		if err := m.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.take(m, "coordinator")
}

// TestReadyWritesNoOtherMember: a frozen member's live znode is deleted by hand, and another process has its identity.
func TestReadyWritesNoOtherMember(t *testing.T) {
	t.Parallel()
	f, p := newFixture(t, "coordinator"), newProxy(t)
	c := f.config("a", "1.0", "coordinator")
	c.NotReady = true
	m, err := member.Join(t.Context(), dial(t, p.Addr()), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Leave() })
	live := znode.Live(f.group.Root, f.group.Name, "a")
	f.until("it to know its seat", func() bool { return len(f.seats()) == 1 })
	p.Hang(true)
	asked := func() int { return p.Requests()[zkserver.OpGetData] + p.Requests()[zkserver.OpSetData] }
	before, ready := asked(), make(chan error, 1)
	go func() { ready <- m.Ready(t.Context()) }()
	f.until("its request", func() bool { return asked() > before })
	if err := f.s.Delete(t.Context(), live, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Create(t.Context(), live, []byte("another process"), zkconn.Ephemeral, f.acl()); err != nil {
		t.Fatal(err)
	}
	p.Hang(false)
	if err := receive(t, ready, "Ready"); err == nil {
		t.Error("it is ready")
	}
	if body, _, err := f.s.Get(t.Context(), live); err != nil || string(body) != "another process" {
		t.Errorf("the other process's znode is %q, %v", body, err)
	}
}
