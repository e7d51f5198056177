package zkstate

import (
	"fmt"
	"strings"

	"muster/zkstate/zkconn"
)

// permissions are the letters of zkCli, in the order of ZooKeeper's bits.
const permissions = "rwcda"

// ParseACL reads entries of the form scheme:id:permissions ("digest:ops:Zm9v=:cdrwa"). No entries mean that anyone
// may do anything.
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
