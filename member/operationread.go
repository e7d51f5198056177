package member

import (
	"context"
	"errors"
	"time"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// OperationInfo describes an open operation.
type OperationInfo struct {
	Name    string
	ID      string
	Script  string    // digest
	By      string    // identity of the holder that opened it, or was the last to resume it
	Epoch   int64     // of that holder
	Runs    int       // how often it was opened or resumed
	Opened  time.Time // by ZooKeeper's clock
	Steps   int       // that have begun
	Done    int       // of these
	Bytes   int       // of their outputs
	Problem string    // why it cannot be read; what could not be read is zero
}

// Operations lists the open operations of any duty of the group, by name. It needs no hold.
func (m *Member) Operations(ctx context.Context, duty string) ([]OperationInfo, error) {
	return Operations(ctx, m.session, m.root, m.Generation, duty)
}

// Operations lists the open operations of a duty, by name. g is the group's generation.
func Operations(ctx context.Context, s *zkconn.Session, root, g, duty string) ([]OperationInfo, error) {
	folder := znode.Ops(root, g, duty)
	if err := s.Sync(ctx, folder); err != nil {
		return nil, err
	}
	names, _, err := s.Children(ctx, folder)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var open []OperationInfo
	for _, name := range names {
		info, err := readOperation(ctx, s, root, g, duty, name)
		if err != nil {
			return nil, err
		}
		if info != nil {
			open = append(open, *info)
		}
	}
	return open, nil
}

// readOperation describes an operation; nil if it is not open.
func readOperation(ctx context.Context, s *zkconn.Session, root, g, duty, name string) (*OperationInfo, error) {
	body, stat, err := s.Get(ctx, znode.Operation(root, g, duty, name))
	if errors.Is(err, zkconn.ErrNoNode) || err == nil && len(body) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info := &OperationInfo{Name: name, Opened: stat.Ctime}
	opening, err := znode.DecodeAny[znode.Opening](body)
	if err != nil {
		info.Problem = err.Error()
		return info, nil
	}
	info.ID, info.Script, info.By, info.Epoch, info.Runs =
		opening.ID, opening.Script, opening.By, opening.Epoch, opening.Runs
	body, _, err = s.Get(ctx, znode.Steps(root, g, duty, name, opening.ID))
	if errors.Is(err, zkconn.ErrNoNode) { // closed meanwhile, or deleted by hand
		if body, _, again := s.Get(ctx, znode.Operation(root, g, duty, name)); again == nil && len(body) > 0 {
			info.Problem = "its journal is gone"
			return info, nil
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	journal, err := znode.Decode[znode.Journal](body)
	if err != nil {
		info.Problem = err.Error()
		return info, nil
	}
	info.Steps, info.Done, info.Bytes = journal.Steps, journal.Done, journal.Bytes
	return info, nil
}
