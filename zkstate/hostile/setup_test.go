package hostile_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path"
	"slices"
	"testing"
	"time"

	"muster/dev/redisserver"
	"muster/dev/zkmodel"
	"muster/dev/zkserver"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
)

// The servers of all tests of this package.
var (
	servers *zkserver.Ensemble
	rediss  *redisserver.Server
)

func TestMain(m *testing.M) {
	os.Exit(rig.Main(m, rig.ZooKeeper(&servers, zkserver.Options{}), rig.Redis(&rediss, redisserver.Options{})))
}

// ops is the user who applies. A worker of a stack is the user "worker-" and its name.
const ops = "ops"

// place is a ZooKeeper that holds nothing but one estate at a time.
type place struct {
	name string
	dial func(ctx context.Context, user string) (*zkconn.Session, error)
	look func(ctx context.Context, s *zkconn.Session) (picture, error)
	done func() error
}

// session is how every place is dialled.
func session(user string, servers ...string) zkconn.Config {
	return zkconn.Config{
		Servers: servers, Timeout: time.Minute,
		Auth: []zkconn.Auth{{Scheme: "digest", Data: []byte(user + ":secret")}},
	}
}

// real is the ZooKeeper of the tests, emptied.
func real(ctx context.Context) (*place, error) {
	p := &place{
		name: "real",
		dial: func(ctx context.Context, user string) (*zkconn.Session, error) {
			return zkconn.Dial(ctx, session(user, servers.Addrs()...))
		},
		look: take,
		done: func() error { return nil },
	}
	return p, p.clear(ctx)
}

// model is a new ZooKeeper in memory.
func model(context.Context) (*place, error) {
	server := zkmodel.New(zkmodel.Options{})
	return &place{
		name: "model",
		dial: func(ctx context.Context, user string) (*zkconn.Session, error) {
			c := session(user, "192.0.2.1:2181")
			c.Dial = func(context.Context, string) (net.Conn, error) {
				ours, its := net.Pipe()
				go server.ServeConn(its)
				return ours, nil
			}
			return zkconn.Dial(ctx, c)
		},
		look: func(context.Context, *zkconn.Session) (pic picture, err error) {
			server.Do(func() {
				server.Walk(func(path string, data []byte, stat zkmodel.Stat) {
					pic = append(pic, node{path: path, data: data, czxid: stat.Czxid, owner: stat.EphemeralOwner})
				})
			})
			return pic, nil
		},
		done: server.Close,
	}, nil
}

// clear deletes every znode but ZooKeeper's own.
func (p *place) clear(ctx context.Context) error {
	s, err := p.dial(ctx, ops)
	if err != nil {
		return err
	}
	defer s.Close()
	pic, err := take(ctx, s)
	if err != nil {
		return err
	}
	slices.SortFunc(pic, func(a, b node) int { return len(b.path) - len(a.path) }) // children are longer
	for chunk := range slices.Chunk(pic, atOnce) {
		var deletes []zkconn.Op
		for _, n := range chunk {
			if n.owner == 0 {
				deletes = append(deletes, zkconn.DeleteOp(n.path, -1))
			} else if err := s.Delete(ctx, n.path, -1); err != nil && !errors.Is(err, zkconn.ErrNoNode) {
				return err // its session ends at this moment
			}
		}
		if len(deletes) == 0 {
			continue
		}
		if _, err := s.Multi(ctx, deletes...); err != nil {
			return err
		}
	}
	return nil
}

// below is path.Join for a parent that may be the root.
func below(parent, name string) string { return path.Join(parent, name) }
