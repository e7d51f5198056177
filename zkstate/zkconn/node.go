package zkconn

import (
	"time"

	"github.com/go-zookeeper/zk"
)

// Mode says whether a znode ends with its session, and whether the server appends ten digits to its name.
type Mode int

// The modes. An ephemeral znode ends with the session that created it.
const (
	Persistent Mode = iota
	Ephemeral
	PersistentSequential
	EphemeralSequential
)

func (m Mode) flags() int32 {
	switch m {
	case Ephemeral:
		return zk.FlagEphemeral
	case PersistentSequential:
		return zk.FlagSequence
	case EphemeralSequential:
		return zk.FlagEphemeralSequential
	}
	return 0
}

// Permissions of an ACL. Combine them with |.
const (
	PermRead int32 = 1 << iota
	PermWrite
	PermCreate
	PermDelete
	PermAdmin
	PermAll int32 = 1<<iota - 1
)

// ACL grants permissions on a znode to an id of a scheme.
type ACL struct {
	Perms  int32
	Scheme string // world, auth, digest, ip, x509
	ID     string // for digest: user:hash, as ZooKeeper stores it
}

// World is the ACL that grants perms to everybody.
func World(perms int32) []ACL { return []ACL{{Perms: perms, Scheme: "world", ID: "anyone"}} }

// Stat is ZooKeeper's metadata of a znode.
type Stat struct {
	Czxid, Mzxid, Pzxid int64 // transactions that created it, last set its data, last changed its list of children
	Version, Cversion   int32 // number of changes of its data, and of its list of children
	EphemeralOwner      int64 // session id, or 0
	NumChildren         int32
	DataLength          int32 // bytes
	Ctime, Mtime        time.Time
}

func statOf(s *zk.Stat) Stat {
	if s == nil {
		return Stat{}
	}
	return Stat{
		Czxid: s.Czxid, Mzxid: s.Mzxid, Pzxid: s.Pzxid,
		Version: s.Version, Cversion: s.Cversion,
		EphemeralOwner: s.EphemeralOwner,
		NumChildren:    s.NumChildren,
		DataLength:     s.DataLength,
		Ctime:          time.UnixMilli(s.Ctime), Mtime: time.UnixMilli(s.Mtime),
	}
}

func libraryACL(acl []ACL) []zk.ACL {
	out := make([]zk.ACL, len(acl))
	for i, a := range acl {
		out[i] = zk.ACL{Perms: a.Perms, Scheme: a.Scheme, ID: a.ID}
	}
	return out
}

func aclOf(acl []zk.ACL) []ACL {
	out := make([]ACL, len(acl))
	for i, a := range acl {
		out[i] = ACL{Perms: a.Perms, Scheme: a.Scheme, ID: a.ID}
	}
	return out
}
