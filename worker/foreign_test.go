package worker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// foreign joins as the protocol says, with a WorkerInfo of its own: as a program in another language may.
func foreign(t *testing.T, j job.Job, identity, run string, info []byte) {
	t.Helper()
	world := zkconn.World(zkconn.PermAll)
	claim, err := znode.Encode(znode.Claim{Nonce: "0123456789abcdef0123456789abcdef", Lives: 1, State: znode.In})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t).Multi(t.Context(),
		zkconn.CheckOp(znode.Gate(j.Root, run), 0),
		zkconn.CreateOp(znode.ByIdentity(j.Root, run, identity), claim, zkconn.Persistent, world),
		zkconn.CreateOp(znode.NewID(j.Root, run), info, zkconn.PersistentSequential, world),
		zkconn.CreateOp(znode.Live(j.Root, j.Name, identity), info, zkconn.Ephemeral, world),
	); err != nil {
		t.Fatal(err)
	}
}

// TestForeignWorkerInfo that is not one, or is larger than allowed, does not end the others: they have the roll,
// without the address of that worker.
func TestForeignWorkerInfo(t *testing.T) {
	t.Parallel()
	good, err := znode.EncodeWorker(znode.Worker{ID: znode.NoID, IP: "10.0.0.9,x", Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []job.RollFormat{job.Protobuf, job.Text} {
		j, _ := newJob(t, 5, func(j *job.Job) { j.RollFormat = format })
		first := join(t, j, "w0")
		foreign(t, j, "alien-1", first.Generation, []byte("\xff\xff\xff not a message"))
		foreign(t, j, "alien-2", first.Generation, []byte(strings.Repeat("x", 400<<10)))
		foreign(t, j, "alien-3", first.Generation, good) // whose address does not fit into a text roll
		c := config(j, "w4")
		c.Info.Port = 7004
		last, err := worker.Join(t.Context(), dial(t), c)
		if err != nil {
			t.Fatal(err)
		}

		roll, err := first.Roll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, rows, odd := znode.DecodeRoll(rollBody(t, j))
		if len(rows) != 5 || len(odd) > 0 {
			t.Errorf("%s: the roll that was written has %d rows: %q", format, len(rows), odd)
		}
		joined, err := last.Joined(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		live, err := last.Live(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for what, ws := range map[string][]worker.Worker{"roll": roll, "joined": joined, "live": live} {
			for i, w := range ws {
				if known := i == 0 || i == 4 || i == 3 && (what != "roll" || format == job.Protobuf); w.ID != i ||
					known != (w.IP != "") {
					t.Errorf("%s %s: worker %d is %+v", format, what, i, w)
				}
			}
			if len(ws) != 5 {
				t.Errorf("%s %s: %d workers", format, what, len(ws))
			}
		}
		problems := []bool{false, true, true, false, false}
		for i, w := range live {
			if w.Problem != "" != problems[i] || len(w.Problem) > 200 {
				t.Errorf("%s: problem of worker %d: %q", format, i, w.Problem)
			}
		}
		if d := cmp.Diff("w4", live[4].Identity); d != "" {
			t.Error(d)
		}
		for ws, err := range last.Changes(t.Context()) {
			if err != nil || len(ws) != 5 {
				t.Errorf("%s: changes: %d, %v", format, len(ws), err)
			}
			break
		}
	}
}

func rollBody(t *testing.T, j job.Job) []byte {
	t.Helper()
	s := dial(t)
	var body []byte
	rig.Await(t, fmt.Sprint("the roll of ", j.Path()), func() bool {
		b, stat, err := s.Get(t.Context(), j.Path())
		body = b
		return err == nil && stat.Version > 0
	})
	return body
}
