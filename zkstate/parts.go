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

// Parts looks one by one at the znodes of something that cannot be read as a whole, and says how it is mended. Its generation
// is found through its Record, or through o, which knows a copy of that.
func (r *Reader) Parts(ctx context.Context, kind resource.Kind, jobPath string, o *resource.Observed) (parts []Part, mend string, err error) {
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
	generation := ""
	if o != nil && o.Record != nil {
		generation = o.Record.Generation
	}
	if there {
		rec, bad := znode.DecodeRecordAt(kind, jobPath, body)
		newer = errors.Is(bad, znode.ErrFormat)
		if bad != nil {
			parts[0].State += ", " + bad.Error()
		} else {
			generation = rec.Generation
		}
	}
	if generation != "" {
		if err := r.lookAtGeneration(look, kind, root, generation, o); err != nil {
			return nil, "", err
		}
	}
	if _, _, err = look(kind.Name+" znode", jobPath); err != nil {
		return nil, "", err
	}
	switch {
	case o.Class() == resource.Damaged && o.Repairable():
		mend = "muster apply puts it back"
	case o.Class() == resource.Damaged && o.Record != nil:
		mend = "" // the row says it
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

// lookAtGeneration looks at the gate, and at the folders if some of them are lost.
func (r *Reader) lookAtGeneration(
	look func(what, path string) ([]byte, bool, error), kind resource.Kind, root, g string, o *resource.Observed,
) error {
	parts := [][2]string{{"generation", znode.Run(root, g)}, {"gate", znode.Gate(root, g)}}
	if k, ok := r.kind(kind.Name); ok && o != nil && o.BeyondRepair != "" {
		for _, folder := range k.Folders {
			parts = append(parts, [2]string{folder, resource.Join(znode.Run(root, g), folder)})
		}
	}
	for _, part := range parts {
		if _, _, err := look(part[0], part[1]); err != nil {
			return err
		}
	}
	return nil
}
