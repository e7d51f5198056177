package zkstate

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/apply/history"
	"muster/resource"
	"muster/text"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Config configures a Store. Its commits write these values into Records.
type Config struct {
	Home  string    // as for NewReader
	Stack string    // owner of what is created or updated
	By    string    // user@host
	At    time.Time // time of this run
	ACL   []string  // "scheme:id:perms" of znodes that are created; empty: anyone may do anything
	Kinds []Kind

	Who     history.Who // for the history; without an actor it is By
	Version string      // of muster, for the history
}

// Store is a Reader that can also write.
type Store struct {
	*Reader
	session *zkconn.Session
	cfg     Config
	acl     []zkconn.ACL

	// folders are the folders that exist. They are forgotten when ZooKeeper refuses a transaction: somebody may have
	// removed one.
	folders sync.Map
	opened  sync.Map // generations that this Store has created, and not ended since

	listing   sync.Mutex      // held while the index is written
	listed    map[string]bool // roots that are in the index
	resolving sync.Mutex      // held while recordedACL asks ZooKeeper
	resolved  []string        // result of recordedACL
}

// NewStore returns a Store that uses s. The error names an invalid ACL entry.
func NewStore(s *zkconn.Session, cfg Config) (*Store, error) {
	acl, err := ParseACL(cfg.ACL)
	if err != nil {
		return nil, err
	}
	return &Store{
		Reader: NewReader(s, cfg.Home, cfg.Kinds...), session: s, cfg: cfg, acl: acl, listed: map[string]bool{},
	}, nil
}

// By is who writes through the Store: user@host.
func (s *Store) By() string { return s.cfg.By }

// SetCommit sets the commit of the configuration, for the history of what follows.
func (s *Store) SetCommit(commit string) { s.cfg.Who.Commit = commit }

// makeFolder creates an empty persistent znode and its parents, if they do not exist.
func (s *Store) makeFolder(ctx context.Context, path string) error {
	if _, known := s.folders.Load(path); known || path == "/" {
		return nil
	}
	if ok, err := s.exists(path)(ctx); err != nil {
		return err
	} else if !ok {
		parent, _ := split(path)
		if err := s.makeFolder(ctx, parent); err != nil {
			return err
		}
		err := s.session.Once(ctx, func() error {
			_, err := s.session.Create(ctx, path, nil, zkconn.Persistent, s.acl)
			return err
		}, nil)
		if err != nil && !errors.Is(err, zkconn.ErrNodeExists) {
			return err
		}
	}
	s.folders.Store(path, true)
	return nil
}

// NewID returns 128 random bits in hexadecimal: the id of a generation, an operation or a plan.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}

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
		all := slices.Clone(acl)
		for i, e := range all {
			if user, _, ok := strings.Cut(e.ID, ":"); ok && e.Scheme == "digest" {
				all[i].ID = user
			}
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

// isAuth reports whether an entry of an ACL has the scheme auth: it then depends on the session that uses it.
func isAuth(entry string) bool { return strings.HasPrefix(entry, schemeAuth+":") }

// recordedACL is the Store's ACL, with the ids of this session in place of auth. Members create znodes with the
// recorded ACL. With auth it would mean their own ids, and apply could no longer replace what they created.
func (s *Store) recordedACL(ctx context.Context) ([]string, error) {
	if !slices.ContainsFunc(s.cfg.ACL, isAuth) {
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
		if !isAuth(entry) {
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
	ids := text.Each(found, func(a zkconn.ACL) string { return a.Scheme + ":" + a.ID })
	return ids, err
}

// The index of a stack, <home>/stack/<stack>, lists every root in which the stack owns something, or once did. Before
// anything is created in a root, the root is listed: and a root that is listed stays so. The first apply of the stack
// that changes something creates the index. The history of the stack is below it.

// Roots lists the roots in which a stack owns something, or once did; none before its first create.
func (r *Reader) Roots(ctx context.Context, stack string) ([]string, error) {
	index, _, _, err := r.index(ctx, stack)
	return index.Roots, err
}

// Stacks lists the stacks of the home, sorted.
func (r *Reader) Stacks(ctx context.Context) ([]string, error) {
	stacks, err := r.children(ctx, znode.StackDir(r.home))
	if err != nil {
		return nil, fmt.Errorf("the index of stacks: %w", err)
	}
	return stacks, nil
}

// Searched returns roots and those that the index of the stack lists, sorted. If the index cannot be read, unindexed
// says why, and roots are returned alone.
func (r *Reader) Searched(ctx context.Context, stack string, roots []string) (
	all []string, unindexed string, err error,
) {
	listed, err := r.Roots(ctx, stack)
	switch {
	case unanswered(ctx, err):
		return nil, "", err
	case err != nil:
		unindexed = err.Error()
	}
	all = slices.Concat(roots, listed)
	slices.Sort(all)
	return slices.Compact(all), unindexed, nil
}

// unanswered reports whether err is that of a session which has no connection, or of a caller who has gone: then
// nothing else can be read either.
func unanswered(ctx context.Context, err error) bool {
	return errors.Is(err, zkconn.ErrSessionLost) || errors.Is(err, zkconn.ErrUnreachable) ||
		err != nil && ctx.Err() != nil
}

// AllRoots lists the roots of all stacks. With an error that is no loss of the connection, those of the stacks that
// could be read: the error is that of the first other one.
func (r *Reader) AllRoots(ctx context.Context) (all []string, problem error) {
	stacks, err := r.Stacks(ctx)
	if err != nil {
		return nil, err
	}
	for _, stack := range stacks {
		roots, err := r.Roots(ctx, stack)
		switch {
		case unanswered(ctx, err):
			return nil, err
		case problem == nil:
			problem = err
		}
		all = append(all, roots...)
	}
	slices.Sort(all)
	return slices.Compact(all), problem
}

// index reads the index of a stack. It does not exist before the first create of the stack.
func (r *Reader) index(ctx context.Context, stack string) (index znode.Index, version int32, exists bool, err error) {
	at := znode.Stack(r.home, stack)
	body, stat, there, err := zkconn.IfThere(r.source.Get(ctx, at))
	if err != nil {
		err = fmt.Errorf("the index of stack %s: %w", stack, err)
	}
	if !there {
		return znode.Index{}, 0, false, err
	}
	if index, err = znode.Decode[znode.Index](body); err != nil {
		err = fmt.Errorf("%s does not hold an index (set it to {}, and the next apply lists the roots that it knows): %w",
			at, err)
	}
	return index, stat.Version, true, err
}

// ListRoots adds roots to the index of the Store's stack. One caller at a time writes.
func (s *Store) ListRoots(ctx context.Context, roots []string) error {
	s.listing.Lock()
	defer s.listing.Unlock()
	roots = slices.DeleteFunc(slices.Clone(roots), func(root string) bool { return s.listed[root] })
	if len(roots) == 0 {
		return nil
	}
	err := s.rewriteIndex(ctx, func(i *znode.Index) bool {
		before := len(i.Roots)
		for _, root := range roots {
			if !slices.Contains(i.Roots, root) {
				i.Roots = append(i.Roots, root)
			}
		}
		return len(i.Roots) != before
	})
	if err != nil {
		return err
	}
	for _, root := range roots {
		s.listed[root] = true
	}
	return nil
}

// rewriteIndex changes the index by edit, again if somebody else changed it meanwhile. edit reports whether it changed
// anything.
func (s *Store) rewriteIndex(ctx context.Context, edit func(*znode.Index) bool) error {
	if err := s.makeFolder(ctx, znode.StackDir(s.home)); err != nil {
		return err
	}
	at := znode.Stack(s.home, s.cfg.Stack)
	for {
		index, version, exists, err := s.index(ctx, s.cfg.Stack)
		if err != nil {
			return err
		}
		if !edit(&index) && exists {
			return nil
		}
		body, err := znode.Encode(index)
		if err != nil {
			return err
		}
		err = s.session.Once(ctx, func() error {
			if exists {
				_, err = s.session.Set(ctx, at, body, version)
			} else {
				_, err = s.session.Create(ctx, at, body, zkconn.Persistent, s.acl)
			}
			return err
		}, nil) // the second time it is refused if it has happened
		if !zkconn.PreconditionFailed(err) { // nil too
			return err
		}
	}
}
