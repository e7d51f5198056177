package stacks_test

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"muster/dev/zkmodel"
	"muster/resource"
	"muster/zkstate/znode"
)

// tree is every znode at one moment, by path.
type tree map[string]entry

type entry struct {
	data []byte
	stat zkmodel.Stat
	*decoded
}

// decoded is the Record in a znode; nil in other znodes.
type decoded struct {
	record
	err error
}

// treeOf reads the server. It decodes the Records that differ from those of an earlier tree.
func treeOf(s *zkmodel.Server, before tree) tree {
	t := make(tree, len(before))
	s.Walk(func(path string, data []byte, stat zkmodel.Stat) {
		e := entry{data: data, stat: stat}
		if was := before[path]; was.decoded != nil && was.stat.Mzxid == stat.Mzxid {
			e.decoded = was.decoded
		} else if _, _, ok := recordOf(path); ok {
			e.decoded = decode(path, data, stat.Version)
		}
		t[path] = e
	})
	return t
}

// has reports whether there is a znode at p.
func (t tree) has(p string) bool { _, ok := t[p]; return ok }

// below lists the names of the children of dir, sorted.
func (t tree) below(dir string) []string {
	var names []string
	for p := range t {
		if path.Dir(p) == dir && p != dir {
			names = append(names, path.Base(p))
		}
	}
	slices.Sort(names)
	return names
}

// live lists the members that are live in the resource at p.
func (t tree) live(p string) []string {
	return slices.DeleteFunc(t.below(p), func(name string) bool { return t[p+"/"+name].stat.EphemeralOwner == 0 })
}

// record is a Record in the tree.
type record struct {
	at   string // its znode
	kind string
	path string // of the resource
	resource.Record
	version int32
}

// recordOf tells of which resource at is the Record's znode.
func recordOf(at string) (kind, path string, ok bool) {
	top, rest, _ := strings.Cut(at, "/"+resource.Reserved+"/")
	kind, name, _ := strings.Cut(rest, "/")
	known := slices.Contains([]string{"job", "group", "queue"}, kind)
	return kind, top + "/" + name, known && top != "" && name != "" && !strings.Contains(name, "/")
}

// generationOf tells in which generation at is, and what below it.
func generationOf(at string) (run, rest string, ok bool) {
	top, below, found := strings.Cut(at, "/"+resource.Reserved+"/run/")
	if !found || top == "" {
		return "", "", false
	}
	g, rest, _ := strings.Cut(below, "/")
	return top + "/" + resource.Reserved + "/run/" + g, rest, true
}

// decode decodes the Record in a znode.
func decode(at string, data []byte, version int32) *decoded {
	d := &decoded{record: record{at: at, version: version}}
	d.kind, d.path, _ = recordOf(at)
	for _, k := range kinds() {
		if k.Name == d.kind {
			d.Record, d.err = znode.DecodeRecordAt(k.Kind, d.path, data)
			return d
		}
	}
	d.err = fmt.Errorf("%s is of no kind", at)
	return d
}

// record is the Record at this znode.
func (t tree) record(at string) (record, error) {
	if d := t[at].decoded; d != nil {
		return d.record, d.err
	}
	return record{}, fmt.Errorf("%s is no record", at)
}

// records lists the Records, sorted by path.
func (t tree) records() ([]record, error) {
	var found []*decoded
	for _, e := range t {
		if e.decoded != nil {
			found = append(found, e.decoded)
		}
	}
	slices.SortFunc(found, func(a, b *decoded) int { return strings.Compare(a.at, b.at) })
	var all []record
	for _, d := range found {
		if d.err != nil {
			return nil, d.err
		}
		all = append(all, d.record)
	}
	return all, nil
}

// run is the folder of the Record's generation.
func (r record) run() string { return znode.Run(path.Dir(r.path), r.Generation) }

// What problems says of a znode that nothing declares, of a Record, and of an open generation.
const (
	noRecord = " has no record"
	noZnode  = " has no znode in generation "
	unnamed  = " is open, and no record names it"
)

// problems says what is half-written: every Record has its znode, its generation with a gate, and the same bytes as its
// copy there, and is in the index of its stack; every gate and every znode of a resource has a Record. The words of a
// problem stay the same while it does.
func (t tree) problems() map[string]bool {
	bad := map[string]bool{}
	add := func(format string, args ...any) { bad[fmt.Sprintf(format, args...)] = true }
	records, err := t.records()
	if err != nil {
		add("%v", err)
	}
	named, paths := map[string]bool{}, map[string]bool{}
	for _, r := range records {
		named[r.run()], paths[r.path] = true, true
		g := r.Generation
		if !t.has(r.path) {
			add("%s%s%s", r.path, noZnode, g)
		}
		if !t.has(r.run() + "/gate") {
			add("%s has no gate in generation %s", r.path, g)
		}
		if !bytes.Equal(t[r.run()].data, t[r.at].data) {
			add("%s differs from its copy in generation %s", r.at, g)
		}
		if !t.listed(r) {
			add("%s is in no root that the index of %s lists", r.path, r.Stack)
		}
	}
	for p := range t {
		run, rest, ok := generationOf(p)
		if ok && rest == "gate" && !named[run] {
			add("%s%s", run, unnamed)
		}
		if isResource(p) && !paths[p] && t.has(path.Dir(p)+"/"+resource.Reserved) {
			add("%s%s", p, noRecord)
		}
	}
	return bad
}

// listed reports whether the index of the stack lists the root of r.
func (t tree) listed(r record) bool {
	index, err := znode.Decode[znode.Index](t[znode.Stack(r.Home, r.Stack)].data)
	return err == nil && slices.Contains(index.Roots, path.Dir(r.path))
}

// isResource reports whether p is at the level of the znodes of resources. All roots are at the top.
func isResource(p string) bool {
	return strings.Count(p, "/") == 2 && path.Base(p) != resource.Reserved && !strings.HasPrefix(p, home+"/") &&
		!strings.HasPrefix(p, "/zookeeper/")
}

// garbage lists the generations that no Record names.
func (t tree) garbage() []string {
	records, _ := t.records()
	var all []string
	for p := range t {
		run, rest, ok := generationOf(p)
		isNamed := func(r record) bool { return r.run() == run }
		if ok && rest == "" && !slices.ContainsFunc(records, isNamed) {
			all = append(all, run)
		}
	}
	slices.Sort(all)
	return all
}
