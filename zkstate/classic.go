package zkstate

import (
	"context"
	"errors"
	"strings"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// observeWithoutRecord reads a znode without a Record: classic, foreign or missing.
func (r *Reader) observeWithoutRecord(
	ctx context.Context, path string, companions []string,
) (*resource.Observed, error) {
	body, _, err := r.source.Get(ctx, path)
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return nil, nil
	case errors.Is(err, zkconn.ErrNoAuth):
		return &resource.Observed{Companions: companions, Problem: "no permission to read " + path}, nil
	case err != nil:
		return nil, err
	}
	children, stat, err := r.source.Children(ctx, path)
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return nil, nil
	case errors.Is(err, zkconn.ErrNoAuth):
		return &resource.Observed{Companions: companions, Problem: "no permission to list " + path}, nil
	case err != nil:
		return nil, err
	}
	o := &resource.Observed{
		Companions: companions, Version: stat.Version, Pzxid: stat.Pzxid, Live: len(children), Created: stat.Ctime,
	}
	_, joined, problems := znode.DecodeRoll(body)
	classic := znode.LooksClassic(body, children)
	if !classic && len(body) == 0 {
		if classic, err = r.hasCounter(ctx, companions); err != nil {
			return nil, err
		}
	}
	switch {
	case classic:
		o.Classic, o.Counts = true, map[string]int{resource.CountJoined: len(joined)}
	case znode.LooksClassic(nil, children):
		o.Problem = "its roll is damaged: " + strings.Join(problems, "; ")
	default:
		o.Foreign, o.Problem = true, "it has no record and holds no roll"
	}
	return o, nil
}

// hasCounter reports whether a companion is a counter of ids: four bytes, which a classic worker creates before it
// joins. An empty znode with such a counter is a classic job whose first worker is about to join.
func (r *Reader) hasCounter(ctx context.Context, companions []string) (bool, error) {
	for _, c := range companions {
		if !strings.HasSuffix(c, "-dai-for-worker-id") && !strings.HasSuffix(c, "-dai") {
			continue
		}
		_, stat, err := r.source.Get(ctx, c)
		switch {
		case errors.Is(err, zkconn.ErrNoNode), errors.Is(err, zkconn.ErrNoAuth):
		case err != nil:
			return false, err
		case stat.DataLength == 4:
			return true, nil
		}
	}
	return false, nil
}
