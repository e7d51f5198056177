package worker_test

import (
	"errors"
	"testing"

	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// addresses are those that m sees: of everybody who has joined, and of who is live.
func addresses(t *testing.T, m *worker.Member) (joined, live []string) {
	t.Helper()
	all, err := m.Joined(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		joined = append(joined, w.Address())
	}
	if all, err = m.Live(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		live = append(live, w.Address())
	}
	return joined, live
}

// sees fails unless m sees worker 0 at this address, wherever it looks.
func sees(t *testing.T, m *worker.Member, address string) {
	t.Helper()
	joined, live := addresses(t, m)
	if joined[0] != address || live[0] != address {
		t.Errorf("worker 0 has joined at %v, and is live at %v; want %s", joined, live, address)
	}
}

func advertise(t *testing.T, m *worker.Member, host string, port int) {
	t.Helper()
	if err := m.Advertise(t.Context(), host, port); err != nil {
		t.Fatal(err)
	}
}

// TestAnAddressThatIsAdvertisedLater holds over a lost session and a live znode that is deleted by hand, until the next
// life joins with its own.
func TestAnAddressThatIsAdvertisedLater(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	proxy := newProxy(t)
	m, err := worker.Join(t.Context(), dial(t, proxy.Addr()), config(j, "w0"))
	if err != nil {
		t.Fatal(err)
	}
	peer := join(t, j, "w1")
	sees(t, peer, "127.0.0.1:7000")
	advertise(t, m, "gpu-3.cluster.local", 29500)
	sees(t, peer, "gpu-3.cluster.local:29500")
	if m.Address() != "gpu-3.cluster.local:29500" {
		t.Errorf("it believes that it is at %s", m.Address())
	}
	s, live := dial(t), znode.Live(j.Root, j.Name, "w0")
	if err := s.Delete(t.Context(), live, -1); err != nil {
		t.Fatal(err)
	}
	advertise(t, m, "gpu-4", 29501)
	sees(t, peer, "gpu-4:29501")
	if err := s.Delete(t.Context(), live, -1); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "it is live again", func() bool {
		_, there, err := s.Exists(t.Context(), live)
		return there && err == nil
	})
	sees(t, peer, "gpu-4:29501")
	proxy.Refuse(true)
	proxy.Cut()
	<-m.Context().Done()
	again, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	sees(t, peer, "gpu-4:29501")
	if again.Address() != "gpu-4:29501" {
		t.Errorf("after a lost session it believes that it is at %s", again.Address())
	}
	if err := again.Leave(t.Context(), worker.End{}); err != nil {
		t.Fatal(err)
	}
	join(t, j, "w0")
	sees(t, peer, "127.0.0.1:7000")
}

// TestAdvertisingWithACutConnection: peers see one address in both places.
func TestAdvertisingWithACutConnection(t *testing.T) {
	t.Parallel()
	for fault, arm := range arms {
		t.Run(fault, func(t *testing.T) {
			j, _ := newJob(t, 1)
			proxy := newProxy(t)
			m, err := worker.Join(t.Context(), dial(t, proxy.Addr()), config(j, "w0"))
			if err != nil {
				t.Fatal(err)
			}
			cut := arm(proxy, func(op int32, req []byte) bool { return isMulti(op, req) && mentions(req, "late") })
			advertise(t, m, "late", 1)
			<-cut
			sees(t, m, "late:1")
		})
	}
}

// TestAnAddressWhoseReplyIsLostForGood is written again by the rejoin: it may not have been committed.
func TestAnAddressWhoseReplyIsLostForGood(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 1)
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	m, err := worker.Join(t.Context(), s, config(j, "w0"))
	if err != nil {
		t.Fatal(err)
	}
	cut := proxy.BeforeSend(func(op int32, req []byte) bool {
		if !isMulti(op, req) || !mentions(req, "late") {
			return false
		}
		proxy.Refuse(true)
		return true
	})
	go func() { <-cut; s.Close() }()
	if err := m.Advertise(t.Context(), "late", 1); !errors.Is(err, zkconn.ErrSessionLost) {
		t.Fatalf("without a session: %v", err)
	}
	again, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	sees(t, again, "late:1")
}

func TestAnAddressThatCannotBe(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 1)
	if err := ms[0].Advertise(t.Context(), "host", 1<<16); err == nil {
		t.Error("a port above 65535")
	}
	sees(t, ms[0], "127.0.0.1:7000")
}
