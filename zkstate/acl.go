package zkstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/resource"
	"muster/zkstate/zkconn"
)

// permissions are the letters that zkCli uses, in the order of ZooKeeper's bits.
const permissions = "rwcda"

// ParseACL parses entries of the form scheme:id:permissions ("digest:ops:Zm9v=:cdrwa"). Without entries, anyone may do
// anything.
func ParseACL(entries []string) ([]zkconn.ACL, error) {
	if len(entries) == 0 {
		entries = []string{"world:anyone:cdrwa"}
	}
	acl := make([]zkconn.ACL, 0, len(entries))
	for _, e := range entries {
		first, last := strings.Index(e, ":"), strings.LastIndex(e, ":")
		if first < 1 || last == first || last == len(e)-1 {
			return nil, fmt.Errorf("acl entry %q: write scheme:id:permissions, such as auth::cdrwa", e)
		}
		perms := int32(0)
		for _, c := range e[last+1:] {
			bit := strings.IndexRune(permissions, c)
			if bit < 0 {
				return nil, fmt.Errorf("acl entry %q: %q is not a permission; use letters of cdrwa", e, c)
			}
			perms |= 1 << bit
		}
		acl = append(acl, zkconn.ACL{Perms: perms, Scheme: e[:first], ID: e[first+1 : last]})
	}
	return acl, nil
}

// sameACL reports whether two ACLs have the same entries. ZooKeeper shows the hashes of passwords only to those who may
// change the ACL, so the names are compared.
func sameACL(a, b []zkconn.ACL) bool {
	named := func(acl []zkconn.ACL) []zkconn.ACL {
		var all []zkconn.ACL
		for _, e := range acl {
			if user, _, ok := strings.Cut(e.ID, ":"); ok && e.Scheme == "digest" {
				e.ID = user
			}
			all = append(all, e)
		}
		slices.SortFunc(all, func(x, y zkconn.ACL) int {
			return cmp.Or(cmp.Compare(x.Scheme, y.Scheme), cmp.Compare(x.ID, y.ID), cmp.Compare(x.Perms, y.Perms))
		})
		return slices.Compact(all)
	}
	return slices.Equal(named(a), named(b))
}

// schemeAuth stands for the session that creates a znode. ZooKeeper replaces it by the ids of that session.
const schemeAuth = "auth"

// usesAuth reports whether an ACL has an entry of the scheme auth: it then depends on the session that uses it.
func usesAuth(entries []string) bool {
	return slices.ContainsFunc(entries, func(e string) bool { return strings.HasPrefix(e, schemeAuth+":") })
}

// recordedACL is the Store's ACL, with the ids of this session in place of auth. Members create znodes with the
// recorded ACL. With auth it would mean their own ids, and apply could no longer replace what they created.
func (s *Store) recordedACL(ctx context.Context) ([]string, error) {
	if !usesAuth(s.cfg.ACL) {
		return s.cfg.ACL, nil
	}
	s.resolving.Lock()
	defer s.resolving.Unlock()
	if s.resolved != nil {
		return s.resolved, nil
	}
	ids, err := s.ownIDs(ctx)
	if err != nil {
		return nil, fmt.Errorf("who this session is: %w", err)
	}
	var acl []string
	for _, entry := range s.cfg.ACL {
		if !usesAuth([]string{entry}) {
			acl = append(acl, entry)
			continue
		}
		for _, id := range ids {
			acl = append(acl, id+entry[strings.LastIndexByte(entry, ':'):])
		}
	}
	slices.Sort(acl)
	s.resolved = slices.Compact(acl)
	return s.resolved, nil
}

// ownIDs returns the ids of this session as scheme:id. It creates a znode with the scheme auth and reads its ACL, since
// only the server knows the ids of every scheme.
func (s *Store) ownIDs(ctx context.Context) ([]string, error) {
	if err := s.makeFolder(ctx, s.home); err != nil {
		return nil, err
	}
	everything := []zkconn.ACL{{Perms: 1<<len(permissions) - 1, Scheme: schemeAuth}}
	path, err := s.session.Create(ctx, resource.Join(s.home, "whoami-"), nil, zkconn.EphemeralSequential, everything)
	if err != nil {
		return nil, err // if the reply was lost, the znode ends with the session
	}
	found, _, err := s.session.ACL(ctx, path)
	if err := s.session.Delete(ctx, path, 0); err != nil && !errors.Is(err, zkconn.ErrUnknown) {
		return nil, err
	}
	var ids []string
	for _, a := range found {
		ids = append(ids, a.Scheme+":"+a.ID)
	}
	return ids, err
}
