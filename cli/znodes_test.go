package cli_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// znodes reads and changes ZooKeeper for a script.
type znodes struct {
	ts *testscript.TestScript
	s  *zkconn.Session
}

var anyone = zkconn.World(zkconn.PermAll)

func (z znodes) tree(dir, indent string) string {
	names, _, err := z.s.Children(context.Background(), dir)
	if errors.Is(err, zkconn.ErrNoAuth) {
		return indent + "(closed)\n"
	}
	z.ts.Check(err)
	var b strings.Builder
	for _, name := range names {
		b.WriteString(indent + name + "\n" + z.tree(path.Join(dir, name), indent+"  "))
	}
	return b.String()
}

func (z znodes) writes(p string) string {
	stat, ok, err := z.s.Exists(context.Background(), p)
	if err == nil && !ok {
		return ""
	}
	z.ts.Check(err)
	lines := fmt.Sprintf("%s %x %x\n", p, stat.Mzxid, stat.Pzxid)
	names, _, err := z.s.Children(context.Background(), p)
	z.ts.Check(err)
	for _, name := range names {
		lines += z.writes(path.Join(p, name))
	}
	return lines
}

func (z znodes) create(p, text string, mode zkconn.Mode, acl ...zkconn.ACL) {
	if acl == nil {
		acl = anyone
	}
	if parent := path.Dir(p); parent != "/" {
		if _, ok, err := z.s.Exists(context.Background(), parent); err == nil && !ok {
			z.create(parent, "", zkconn.Persistent)
		}
	}
	_, err := z.s.Create(context.Background(), p, []byte(text), mode, acl)
	z.ts.Check(err)
}

func (z znodes) read(p string) (string, zkconn.Stat) {
	body, stat, err := z.s.Get(context.Background(), p)
	z.ts.Check(err)
	return string(body), stat
}

func (z znodes) edit(p, old, new string) {
	body, stat := z.read(p)
	if !strings.Contains(body, old) {
		z.ts.Fatalf("%s does not hold %q: %s", p, old, body)
	}
	_, err := z.s.Set(context.Background(), p, []byte(strings.Replace(body, old, new, 1)), stat.Version)
	z.ts.Check(err)
}

// delete deletes a znode and all that is below it, in one transaction: a live worker makes its znode again at once.
func (z znodes) delete(p string) {
	for {
		_, err := z.s.Multi(context.Background(), z.deletes(p)...)
		if !errors.Is(err, zkconn.ErrNotEmpty) {
			z.ts.Check(err)
			return
		}
	}
}

func (z znodes) deletes(p string) []zkconn.Op {
	names, _, err := z.s.Children(context.Background(), p)
	z.ts.Check(err)
	var ops []zkconn.Op
	for _, name := range names {
		ops = append(ops, z.deletes(path.Join(p, name))...)
	}
	return append(ops, zkconn.DeleteOp(p, -1))
}

// forbid creates a childless znode again so that nobody may read it.
func (z znodes) forbid(p string) {
	body := ""
	if _, ok, err := z.s.Exists(context.Background(), p); err == nil && ok {
		body, _ = z.read(p)
		z.delete(p)
	}
	acl := zkconn.ACL{Perms: zkconn.PermDelete | zkconn.PermCreate, Scheme: "world", ID: "anyone"}
	z.create(p, body, zkconn.Persistent, acl)
}

// record reads the Record of a job, group or queue, and returns the root and the path of the Record too.
func (z znodes) record(p string) (root, at string, rec resource.Record) {
	root, name := path.Dir(p), path.Base(p)
	var kind resource.Kind
	for _, kind = range []resource.Kind{group.Kind(), queue.Kind(), job.Kind()} {
		at = znode.Record(kind.Name, root, name)
		if _, there, err := z.s.Exists(context.Background(), at); err == nil && there {
			break
		}
	}
	body, _ := z.read(at)
	rec, err := znode.DecodeRecord(kind, []byte(body))
	z.ts.Check(err)
	return root, at, rec
}

// part is the path of a part of the generation of a job, group or queue.
func (z znodes) part(p, name string) string {
	root, _, rec := z.record(p)
	return resource.Join(znode.Run(root, rec.Generation), name)
}

// remove deletes a job as apply does if it is no longer declared.
func (z znodes) remove(jobPath string) {
	root, at, rec := z.record(jobPath)
	_, err := z.s.Multi(context.Background(),
		zkconn.DeleteOp(jobPath, -1), zkconn.DeleteOp(at, -1), zkconn.DeleteOp(znode.Gate(root, rec.Generation), -1))
	z.ts.Check(err)
}

// complete does what a worker does when its command ends with 0.
func (z znodes) complete(jobPath, identity string) {
	root, _, rec := z.record(jobPath)
	claim := znode.ByIdentity(root, rec.Generation, identity)
	_, stat := z.read(claim)
	zero := 0
	done, err := znode.Encode(znode.Claim{Nonce: "n", Lives: 1, State: znode.Done, Exit: &zero})
	z.ts.Check(err)
	_, err = z.s.Multi(context.Background(),
		zkconn.CheckOp(znode.Gate(root, rec.Generation), 0),
		zkconn.SetOp(claim, done, stat.Version),
		zkconn.CreateOp(znode.NewEnd(root, rec.Generation), nil, zkconn.PersistentSequential, anyone),
	)
	z.ts.Check(err)
}
