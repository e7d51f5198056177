package member

import (
	"context"

	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// JoinKnowing is Join for software that knows the methods of assignment up to knows.
func JoinKnowing(ctx context.Context, s *zkconn.Session, c Config, knows int) (*Member, error) {
	return joinKnowing(ctx, s, c, knows, znode.Present{
		Nonce: zkstate.NewID(), Version: c.Version, Can: c.Can, Ready: true,
	})
}
