package worker_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// TestPlace: what a process says of its place and its ports is in the roll, and in what peers and status read. It stays
// when the process advertises another address or rejoins; the next process of the identity says it anew.
func TestPlace(t *testing.T) {
	t.Parallel()
	for _, format := range []job.RollFormat{job.Protobuf, job.Text} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			j, store := newJob(t, 2, rollFormat(format))
			peer := join(t, j, "w-1") // id 0
			c := config(j, "w-0")
			c.Info.Node = znode.Node{Rack: "r1", Datacenter: "eu-1"}
			c.Info.Ports = map[string]int{"metrics": 9090, "rpc": 7001}
			s := dial(t)
			joinIn(t, s, c)
			old := c.Info
			old.ID = 1
			says(t, store, j, peer, old)
			inRoll := old
			if format == job.Text {
				inRoll.Ports = nil
			}
			isInRoll := func() {
				t.Helper()
				all, err := peer.Roll(t.Context())
				if err != nil || len(all) != 2 {
					t.Fatalf("the roll: %v, %v", all, err)
				}
				if d := cmp.Diff(inRoll, all[1].Worker); d != "" {
					t.Errorf("the roll (-want +got):\n%s", d)
				}
			}
			isInRoll()

			s.Close()
			c.Info.Node = znode.Node{Rack: "r2"}
			c.Info.Ports = map[string]int{"rpc": 7002}
			m := lose(t, c)
			now := c.Info
			now.ID = 1
			says(t, store, j, peer, now)
			isInRoll() // it is written once

			m, err := m.Rejoin(t.Context(), dial(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Advertise(t.Context(), "127.0.0.1", 8000); err != nil {
				t.Fatal(err)
			}
			now.Port = 8000
			says(t, store, j, peer, now)
		})
	}
}

// says checks what peers and a status read of worker 1, who is live.
func says(t *testing.T, store *zkstate.Store, j job.Job, peer *worker.Member, want znode.Worker) {
	t.Helper()
	byID, err := peer.Lookup(t.Context(), 1)
	if d := cmp.Diff(want, byID.Worker); err != nil || d != "" {
		t.Errorf("its id: %v, (-want +got):\n%s", err, d)
	}
	live, err := peer.Live(t.Context())
	if err != nil || len(live) != 2 {
		t.Fatalf("live are %v, %v", live, err)
	}
	if d := cmp.Diff(want, live[1].Worker); d != "" {
		t.Errorf("its live znode (-want +got):\n%s", d)
	}
	all, _, err := store.Workers(t.Context(), j.Path())
	if err != nil || len(all) != 2 {
		t.Fatalf("the workers are %v, %v", all, err)
	}
	shown := all[1].View()
	got := znode.Worker{Node: znode.Node{Rack: shown.Rack, Datacenter: shown.Datacenter}, Ports: shown.Ports}
	if d := cmp.Diff(znode.Worker{Node: want.Node, Ports: want.Ports}, got); d != "" || shown.Address != want.Address() {
		t.Errorf("status shows %s, place (-want +got):\n%s", shown.Address, d)
	}
}

// TestJoinRefusesAPlace that does not fit into a roll.
func TestJoinRefusesAPlace(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1)
	for want, info := range map[string]znode.Worker{
		"rack: the name may hold":          {Node: znode.Node{Rack: "a,b"}},
		"data center: the name may hold":   {Node: znode.Node{Datacenter: "a b"}},
		"additional ports: a: 0 is not be": {Ports: map[string]int{"a": 0}},
	} {
		c := config(j, "w-0")
		c.Info.Node, c.Info.Ports = info.Node, info.Ports
		if _, err := worker.Join(t.Context(), dial(t), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if o := look(t, store, j); o.Status() != resource.StatusReady {
		t.Errorf("the job is %s", o.Status())
	}
}
