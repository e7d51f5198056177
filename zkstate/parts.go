package zkstate

import (
	"context"
	"errors"
	"fmt"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Part is one of the znodes of a resource.
type Part struct {
	Name, Path string
	State      string // "missing", "present, 120 bytes, 2 children", …
}

// Parts reads each znode of a damaged or unreadable resource, and says how to repair it. The generation is the one of
// its Record, or else of o, which may have a copy.
func (r *Reader) Parts(
	ctx context.Context, kind resource.Kind, path string, o *resource.Observed,
) (parts []Part, repair string, err error) {
	root, name := split(path)
	noPermission, newer := false, false
	readPart := func(what, path string) (body []byte, there bool, err error) {
		body, stat, err := r.source.Get(ctx, path)
		p := Part{what, path, fmt.Sprintf("present, %d bytes, %d children", stat.DataLength, stat.NumChildren)}
		switch {
		case errors.Is(err, zkconn.ErrNoNode):
			p.State = "missing"
		case errors.Is(err, zkconn.ErrNoAuth):
			p.State, noPermission = "present, and there is no permission to read it", true
		case err != nil:
			return nil, false, err
		}
		parts = append(parts, p)
		return body, err == nil, nil
	}
	body, there, err := readPart("record", znode.Record(kind.Name, root, name))
	if err != nil {
		return nil, "", err
	}
	generation := ""
	if o != nil && o.Record != nil {
		generation = o.Record.Generation
	}
	if there {
		rec, bad := znode.DecodeRecordAt(kind, path, body)
		newer = errors.Is(bad, znode.ErrFormat)
		if bad != nil {
			parts[0].State += ", " + bad.Error()
		} else {
			generation = rec.Generation
		}
	}
	if o != nil && !o.Has(resource.PartReference) {
		parts[0].State += fmt.Sprintf(", it names generation %s, which is not its own", generation)
		if generation = ""; o.Record != nil {
			generation = o.Record.Generation
		}
	}
	if generation != "" {
		for _, part := range r.generationParts(kind, root, generation, o) {
			if _, _, err := readPart(part[0], part[1]); err != nil {
				return nil, "", err
			}
		}
	}
	if _, _, err = readPart(kind.Name+" znode", path); err != nil {
		return nil, "", err
	}
	return parts, howToRepair(o, newer, noPermission), nil
}

func howToRepair(o *resource.Observed, newer, noPermission bool) string {
	switch {
	case o.Class() == resource.Damaged && o.Repairable():
		return "muster apply puts it back"
	case o.Class() == resource.Damaged && o.Record != nil:
		return "" // the row says it
	case !o.Has(resource.PartReference):
		return "touch nothing in the generation that its record names: that may be another's. Once none of its workers is " +
			"live, delete the record, then the job znode (zkCli.sh: delete PATH); the next apply makes it anew if it is declared"
	case newer:
		return "leave it alone, and use the muster that wrote it"
	case noPermission:
		return "name credentials that may read it in MUSTER_ZK_AUTH"
	}
	return "once none of its workers is live, delete what is present of it, the gate first, then the record, " +
		"then the job znode (zkCli.sh: delete PATH); the next apply makes it anew if it is declared"
}

// generationParts returns name and path of the generation, of its gate, and of its folders if some of them are lost.
func (r *Reader) generationParts(kind resource.Kind, root, g string, o *resource.Observed) [][2]string {
	parts := [][2]string{{"generation", znode.Run(root, g)}, {"gate", znode.Gate(root, g)}}
	if k, ok := r.kind(kind.Name); ok && o != nil && o.BeyondRepair != "" {
		for _, folder := range k.Folders {
			parts = append(parts, [2]string{folder, resource.Join(znode.Run(root, g), folder)})
		}
	}
	return parts
}
