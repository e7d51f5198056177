package browser

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"muster/dev/zkserver"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

const (
	manyJobs    = 10_000
	manyWorkers = 10_000
)

// newCrowd is a world of 10,000 jobs /many/j-0000 … and one job of 10,000 workers, /big/job, all of whom are live.
func newCrowd(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, zkserver.Options{Heap: "1g", Netty: true})
	w.apply("crowd", `"/many", "/big"`, fmt.Sprintf(`job "many" {
  for_each = toset(flatten([for a in range(100) : [for b in range(%d) : format("%%02d%%02d", a, b)]]))
  name     = "j-${each.key}"
  root     = "/many"
  workers  = 8
  labels   = { team = "data" }
}
job "job" {
  root    = "/big"
  workers = %d
}
`, manyJobs/100, manyWorkers))
	w.joinAll("/big", "job", manyWorkers)
	return w
}

// identityOf is a worker of joinAll. Their ids follow no order.
func identityOf(i int) string { return fmt.Sprintf("w-%05d", i) }

// joinAll lets n workers join a job as one process cannot: many transactions at a time, all of one session.
func (w *world) joinAll(root, name string, n int) {
	w.t.Helper()
	g := w.generation("job", root, name)
	ctx, acl := w.t.Context(), zkconn.World(zkconn.PermAll)
	var folders []zkconn.Op
	for _, dir := range []string{znode.IDs(root, g), znode.By(root, g), znode.End(root, g), znode.Barriers(root, g)} {
		folders = append(folders, zkconn.CreateOp(dir, nil, zkconn.Persistent, acl))
	}
	if _, err := w.s.Multi(ctx, folders...); err != nil {
		w.t.Fatal(err)
	}
	var joins errgroup.Group
	joins.SetLimit(100)
	for i := range n {
		joins.Go(func() error {
			info, err := znode.EncodeWorker(znode.Worker{ID: znode.NoID, IP: "10.0.0.1", Port: 7000})
			if err != nil {
				return err
			}
			claim, err := znode.Encode(znode.Claim{Nonce: fmt.Sprintf("n%d", i), Lives: 1, State: znode.In})
			if err != nil {
				return err
			}
			_, err = w.s.Multi(ctx,
				zkconn.CreateOp(znode.ByIdentity(root, g, identityOf(i)), claim, zkconn.Persistent, acl),
				zkconn.CreateOp(znode.NewID(root, g), info, zkconn.PersistentSequential, acl),
				zkconn.CreateOp(znode.Live(root, name, identityOf(i)), info, zkconn.Ephemeral, acl))
			return err
		})
	}
	if err := joins.Wait(); err != nil {
		w.t.Fatal(err)
	}
}
