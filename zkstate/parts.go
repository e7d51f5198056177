package zkstate

import (
	"context"
	"errors"
	"fmt"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Part is one of the znodes that a job is made of.
type Part struct {
	Name, Path string
	State      string // "missing", "present, 120 bytes, 2 children", …
}

// Parts looks at the znodes of a job one by one, for a job that cannot be read as a whole, and says how it is mended. A gate
// is found through the record only.
func (r *Reader) Parts(ctx context.Context, kind resource.Kind, jobPath string) (parts []Part, mend string, err error) {
	root, name := split(jobPath)
	closed, newer := false, false
	look := func(what, path string) (body []byte, there bool, err error) {
		body, stat, err := r.session.Get(ctx, path)
		p := Part{what, path, fmt.Sprintf("present, %d bytes, %d children", stat.DataLength, stat.NumChildren)}
		switch {
		case errors.Is(err, zkconn.ErrNoNode):
			p.State = "missing"
		case errors.Is(err, zkconn.ErrNoAuth):
			p.State, closed = "present, and there is no permission to read it", true
		case err != nil:
			return nil, false, err
		}
		parts = append(parts, p)
		return body, err == nil, nil
	}
	body, there, err := look("record", znode.Record(kind.Name, root, name))
	if err != nil {
		return nil, "", err
	}
	if there {
		rec, bad := znode.DecodeRecordAt(kind, jobPath, body)
		newer = errors.Is(bad, znode.ErrFormat)
		if bad != nil {
			parts[0].State += ", " + bad.Error()
		} else if _, _, err = look("gate", znode.Gate(root, rec.Generation)); err != nil {
			return nil, "", err
		}
	}
	if _, _, err = look(kind.Name+" znode", jobPath); err != nil {
		return nil, "", err
	}
	switch {
	case newer:
		mend = "leave it alone, and use the muster that wrote it"
	case closed:
		mend = "name credentials that may read it in MUSTER_ZK_AUTH"
	default:
		mend = "once none of its workers is live, delete what is present of it, the gate first, then the record, then the job " +
			"znode (zkCli.sh: delete PATH); the next apply makes it anew if it is declared"
	}
	return parts, mend, nil
}
