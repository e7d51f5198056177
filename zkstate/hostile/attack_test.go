package hostile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// attack is what an attacker does, step by step.
type attack []step

// step writes, creates, or deletes with what is below it, one znode.
type step struct {
	do   deed
	path string
	body []byte
	why  string // what the body is
}

type deed string

const (
	write  deed = "write"
	create deed = "create"
	remove deed = "remove"
)

func (a attack) String() string {
	var all []string
	for _, s := range a {
		body := s.body
		if len(body) > 900 {
			body = body[:900]
		}
		all = append(all, fmt.Sprintf("%s %s (%s) %q", s.do, s.path, s.why, body))
	}
	return strings.Join(all, "\n  then ")
}

// names reports whether what the attacker writes names a generation or a resource.
func (a attack) names(it string) bool {
	return slices.ContainsFunc(a, func(s step) bool { return strings.Contains(string(s.body), it) })
}

// run does what the server allows.
func (a attack) run(ctx context.Context, s *zkconn.Session) (refused error) {
	for _, one := range a {
		err := one.run(ctx, s)
		if refused == nil {
			refused = err
		}
	}
	return refused
}

func (o step) run(ctx context.Context, s *zkconn.Session) error {
	switch o.do {
	case write:
		_, err := s.Set(ctx, o.path, o.body, -1)
		return err
	case create:
		_, err := s.Create(ctx, o.path, o.body, zkconn.Persistent, zkconn.World(zkconn.PermAll))
		return err
	}
	names, _, err := s.Children(ctx, o.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := (step{do: remove, path: below(o.path, name)}).run(ctx, s); err != nil {
			return err
		}
	}
	return s.Delete(ctx, o.path, -1)
}

// shape is a path without what is random or chosen in it. Znodes of one shape hold bodies of one kind; a record and its
// copies are of one shape, whatever they declare.
func shape(at string) string {
	rest, inRun := strings.CutPrefix(at, znode.RunDir(root)+"/")
	if !inRun {
		parts := strings.Split(at, "/")
		if len(parts) == 5 && parts[2] == resource.Reserved {
			return "record"
		}
		for i := len(root) / len("/jobs") * 3; i < len(parts); i++ {
			parts[i] = "*"
		}
		return strings.Join(parts, "/")
	}
	parts := strings.Split(rest, "/")[1:]
	if len(parts) == 0 {
		return "record"
	}
	for i := 1; i < len(parts); i++ {
		if parts[0] != "duty" || i != 2 {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}

// allows reports whether an ACL grants a permission to a user.
func allows(acl []zkconn.ACL, user string, perm int32) bool {
	return slices.ContainsFunc(acl, func(a zkconn.ACL) bool {
		return a.Perms&perm != 0 && (a.Scheme == "world" || a.Scheme+":"+a.ID == id(user))
	})
}
