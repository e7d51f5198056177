package member

import (
	"context"

	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// JoinKnowing is Join for software that knows the methods of assignment up to knows.
func JoinKnowing(ctx context.Context, s *zkconn.Session, c Config, knows int) (*Member, error) {
	j := &join{s: s, c: c, knows: knows, waiter: zkstate.Waiter{Session: s}, present: znode.Present{
		Nonce: zkstate.NewID(), Version: c.Version, Can: c.Can, Ready: true,
	}}
	return j.join(ctx)
}
