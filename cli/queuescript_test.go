package cli_test

import (
	"context"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"muster/resource"
	"muster/resource/queue"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

type queueKey struct{}

// cmdQueue writes what the processes of a queue write into ZooKeeper. There is no Redis.
//
//	queue join ROLE NAME PATH    is live as NAME until it leaves
//	queue leave NAME
//	queue submit PATH ID STATE   an unfinished batch
//	queue end PATH ID
func cmdQueue(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: queue join|leave|submit|end ARGS")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s := ts.Value(sessionKey{}).(*zkconn.Session)
	all := ts.Value(queueKey{}).(map[string]*zkconn.Session)
	switch {
	case args[0] == "join" && len(args) == 4:
		member, err := zkconn.Dial(ctx, zkconn.Config{Servers: []string{scriptServer}, Timeout: 10 * time.Second})
		ts.Check(err)
		all[args[2]] = member
		ts.Defer(func() { member.Close() })
		process, err := znode.Encode(znode.QueueProcess{
			Nonce: args[2], Role: queue.Role(args[1]), Host: "here", Parallel: 4,
		})
		ts.Check(err)
		seat, err := znode.Encode(znode.QueueSeat{
			Identity: args[2], Nonce: args[2], Role: queue.Role(args[1]),
		})
		ts.Check(err)
		root, g := beginQueue(ctx, ts, s, args[3])
		_, err = member.Multi(ctx, zkconn.CheckOp(znode.Gate(root, g), 0),
			zkconn.CreateOp(znode.NewSeat(root, g), seat, zkconn.EphemeralSequential, zkconn.World(zkconn.PermAll)),
			zkconn.CreateOp(resource.Join(args[3], args[2]), process, zkconn.Ephemeral, zkconn.World(zkconn.PermAll)))
		ts.Check(err)
	case args[0] == "leave":
		ts.Check(all[args[1]].Close())
	case args[0] == "submit" && len(args) == 4:
		body, err := znode.Encode(znode.BatchManifest{
			Tasks: 5000, Bytes: 35_000, SHA256: strings.Repeat("0a", 32), Weight: 2, Results: queue.ResultsWatcher,
			By: "ann@desk", Since: time.Unix(1700000000, 0), State: znode.BatchState(args[3]),
		})
		ts.Check(err)
		root, g := beginQueue(ctx, ts, s, args[1])
		_, err = s.Multi(ctx, zkconn.CheckOp(znode.Gate(root, g), 0), zkconn.CreateOp(
			znode.Batch(root, g, args[2]), body, zkconn.Persistent, zkconn.World(zkconn.PermAll)))
		ts.Check(err)
	case args[0] == "end" && len(args) == 3:
		root, g := beginQueue(ctx, ts, s, args[1])
		ts.Check(s.Delete(ctx, znode.Batch(root, g, args[2]), -1))
	default:
		ts.Fatalf("queue %s is not known", args[0])
	}
}

// cmdRedis gives a script the Redis of the tests, as var.redis and with its password in the environment.
func cmdRedis(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: redis")
	}
	t := ts.Value(testKey{}).(testing.TB)
	ts.Setenv("MUSTER_VAR_redis", "redis://"+sharedRedis(t).Addr()+"/0")
	for _, name := range []string{"MUSTER_REDIS_PASSWORD", "MUSTER_REDIS_HOSTS"} {
		ts.Setenv(name, credentials(name))
	}
}

// beginQueue creates the folders of the queue's generation, unless they are there.
func beginQueue(ctx context.Context, ts *testscript.TestScript, s *zkconn.Session, at string) (root, g string) {
	o, err := zkstate.NewReader(s, "", zkstate.Queue()).Look(ctx, at)
	ts.Check(err)
	if o == nil || o.Record == nil {
		ts.Fatalf("there is no queue at %s", at)
	}
	root, g = path.Dir(at), o.Record.Generation
	ops := []zkconn.Op{zkconn.CheckOp(znode.Gate(root, g), 0)}
	for _, folder := range znode.QueueFolders() {
		ops = append(ops, zkconn.CreateOp(
			resource.Join(znode.Run(root, g), folder), nil, zkconn.Persistent, zkconn.World(zkconn.PermAll)))
	}
	if _, there, err := s.Exists(ctx, znode.Batches(root, g)); err != nil || !there {
		ts.Check(err)
		_, err = s.Multi(ctx, ops...)
		ts.Check(err)
	}
	return root, g
}
