package zkmodel

import (
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
)

// Stat is the metadata of a znode, as clients see it.
type Stat struct {
	Czxid, Mzxid, Pzxid int64 // transactions that created it, last set its data, last changed its list of children
	Ctime, Mtime        int64 // ms since 1970
	Version             int32 // number of changes of its data
	Cversion            int32 // number of changes of its list of children
	Aversion            int32 // number of changes of its ACL
	EphemeralOwner      int64 // session id, or 0
	DataLength          int32 // bytes
	NumChildren         int32
}

// node is a znode. meta.Cversion counts only the children that were created: it is the number of the next sequential
// child.
type node struct {
	path     string
	parent   *node
	data     []byte // nil is ZooKeeper's null; never changed in place
	meta     Stat   // without DataLength and NumChildren
	acl      []ACL  // never changed in place
	children map[string]*node
}

func (n *node) stat() Stat {
	s := n.meta
	s.DataLength, s.NumChildren = int32(len(n.data)), int32(len(n.children))
	s.Cversion = 2*s.Cversion - s.NumChildren // creates and deletes
	return s
}

// names of the children, sorted.
func (n *node) names() []string { return slices.Sorted(maps.Keys(n.children)) }

func (n *node) name() string { return n.path[len(n.parent.path)+1:] }

// tree is all znodes. The root has the paths "" and "/" and, as a node, the path "".
type tree struct {
	nodes map[string]*node
	undo  []func() // of the transaction that runs, oldest first
}

func newTree() *tree {
	root := &node{children: map[string]*node{}, acl: worldAll}
	t := &tree{nodes: map[string]*node{"": root, "/": root}}
	for _, path := range []string{"/zookeeper", quota, "/zookeeper/config"} {
		parent, _ := parentOf(path)
		n := &node{path: path, parent: t.nodes[parent], data: []byte{}, acl: worldAll}
		t.link(n)
	}
	config := t.nodes["/zookeeper/config"]
	config.acl, config.meta.Aversion = worldRead, -1
	root.data = []byte{}
	return t
}

// quota is the folder of ZooKeeper's quotas, which the model does not know.
const quota = "/zookeeper/quota"

// reserved reports whether the znode may not be deleted.
func reserved(path string) bool {
	return path == "/" || path == "/zookeeper" || path == quota || path == "/zookeeper/config"
}

func (t *tree) link(n *node) {
	t.nodes[n.path] = n
	if n.parent.children == nil {
		n.parent.children = map[string]*node{}
	}
	n.parent.children[n.name()] = n
}

func (t *tree) unlink(n *node) {
	delete(t.nodes, n.path)
	delete(n.parent.children, n.name())
}

// ownedBy returns the ephemeral znodes of a session, sorted by path.
func (t *tree) ownedBy(session int64) []*node {
	var owned []*node
	for _, n := range t.nodes {
		if n.meta.EphemeralOwner == session {
			owned = append(owned, n)
		}
	}
	slices.SortFunc(owned, func(a, b *node) int { return strings.Compare(a.path, b.path) })
	return owned
}

// keep remembers the znode's data and metadata, before a change.
func (t *tree) keep(n *node) {
	data, meta := n.data, n.meta
	t.undo = append(t.undo, func() { n.data, n.meta = data, meta })
}

func (t *tree) add(n *node, zxid int64) {
	t.keep(n.parent)
	t.undo = append(t.undo, func() { t.unlink(n) })
	n.parent.meta.Cversion++
	n.parent.meta.Pzxid = zxid
	t.link(n)
}

func (t *tree) remove(n *node, zxid int64) {
	t.keep(n.parent)
	t.undo = append(t.undo, func() { t.link(n) })
	n.parent.meta.Pzxid = zxid
	t.unlink(n)
}

func (t *tree) rollback() {
	for _, undo := range slices.Backward(t.undo) {
		undo()
	}
	t.commit()
}

func (t *tree) commit() {
	clear(t.undo)
	t.undo = t.undo[:0]
}

// parentOf is the path of the parent; "" is the root's other name. ok is false without a slash.
func parentOf(path string) (parent string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 || strings.IndexByte(path, 0) >= 0 {
		return "", false
	}
	return path[:i], true
}

// validPath reports whether a znode may have the path. Source: PathUtils.validatePath.
func validPath(path string) bool {
	if path == "/" {
		return true
	}
	if path == "" || path[0] != '/' {
		return false
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	return strings.IndexFunc(path, forbidden) < 0
}

// forbidden reports whether no path may hold the character. ZooKeeper looks at UTF-16 units, so it forbids all beyond
// the first 65536.
func forbidden(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}

// ACL grants permissions on a znode to an id of a scheme.
type ACL struct {
	Perms  int32
	Scheme string // world, digest; auth in requests
	ID     string
}

const (
	permRead int32 = 1 << iota
	permWrite
	permCreate
	permDelete
	permAdmin
	permAll int32 = 1<<iota - 1
)

var (
	worldAll  = []ACL{{permAll, "world", "anyone"}}
	worldRead = []ACL{{permRead, "world", "anyone"}}
)

// identity is a credential that a client has proved.
type identity struct{ scheme, id string }

// digestIdentity is the identity of user:password. Source: DigestAuthenticationProvider.generateDigest.
func digestIdentity(credential []byte) identity {
	user, _, _ := strings.Cut(string(credential), ":")
	sum := sha1.Sum(credential)
	return identity{"digest", user + ":" + base64.StdEncoding.EncodeToString(sum[:])}
}

// permitted reports whether the ACL grants one of the permissions to somebody with these identities.
func permitted(acl []ACL, perms int32, ids []identity) bool {
	return slices.ContainsFunc(acl, func(a ACL) bool {
		return a.Perms&perms != 0 && (a.Scheme == "world" || slices.Contains(ids, identity{a.Scheme, a.ID}))
	})
}

// fixACL is the ACL to store for one in a request: without doubles, and with the client's identities for auth.
// Source: PrepRequestProcessor.fixupACL.
func fixACL(asked []ACL, ids []identity) ([]ACL, Code) {
	if len(asked) == 1 && asked[0] == worldAll[0] {
		return worldAll, OK
	}
	var acl []ACL
	for i, a := range asked {
		switch {
		case slices.Contains(asked[:i], a):
		case a.Scheme == "world" && a.ID == "anyone":
			acl = append(acl, a)
		case a.Scheme == "auth":
			if len(ids) == 0 {
				return nil, InvalidACL
			}
			for _, id := range ids {
				acl = append(acl, ACL{a.Perms, id.scheme, id.id})
			}
		case a.Scheme == "digest" && strings.Count(strings.TrimRight(a.ID, ":"), ":") == 1:
			acl = append(acl, a)
		default:
			return nil, InvalidACL
		}
	}
	if len(acl) == 0 {
		return nil, InvalidACL
	}
	return acl, OK
}

// withoutHashes is the ACL for a client that may not change it.
func withoutHashes(acl []ACL) []ACL {
	acl = slices.Clone(acl)
	for i, a := range acl {
		if user, _, ok := strings.Cut(a.ID, ":"); ok && a.Scheme == "digest" {
			acl[i].ID = user + ":x"
		}
	}
	return acl
}
