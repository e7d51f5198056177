package zkmodel

import (
	"crypto/sha1"
	"encoding/base64"
	"slices"
	"strings"
)

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
