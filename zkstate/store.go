package zkstate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Config of a Store: what its commits write into records.
type Config struct {
	Home  string    // as for NewReader
	Stack string    // owner mark of what is created or updated
	By    string    // user@host
	At    time.Time // of this run
	ACL   []string  // "scheme:id:perms" of what is created from now on; empty: anyone may do anything
	Kinds []Kind
}

// Store is a Reader that also commits.
type Store struct {
	*Reader
	cfg Config
	acl []zkconn.ACL

	mu       sync.Mutex
	folders  map[string]bool  // made or found by this Store
	listed   map[string]int32 // roots, and the version of the index that lists them
	resolved []string         // cfg.ACL as it is recorded, once that is known

	listing   sync.Mutex // held while the index is written
	resolving sync.Mutex // held while the ACL is resolved
}

// NewStore writes through s. The error names an ACL entry that cannot be understood.
func NewStore(s *zkconn.Session, cfg Config) (*Store, error) {
	acl, err := ParseACL(cfg.ACL)
	if err != nil {
		return nil, err
	}
	return &Store{
		Reader: NewReader(s, cfg.Home, cfg.Kinds...), cfg: cfg, acl: acl, folders: map[string]bool{}, listed: map[string]int32{},
	}, nil
}

// makeRoot makes the folders that the znodes of a kind below root stand in.
func (s *Store) makeRoot(ctx context.Context, kind, root string) error {
	if err := s.makeFolder(ctx, znode.RecordDir(kind, root)); err != nil {
		return err
	}
	return s.makeFolder(ctx, znode.RunDir(root))
}

// makeFolder makes a persistent empty znode and the path to it. An existing one is as good.
func (s *Store) makeFolder(ctx context.Context, path string) error {
	s.mu.Lock()
	known := s.folders[path]
	s.mu.Unlock()
	if known || path == "/" {
		return nil
	}
	if _, ok, err := s.session.Exists(ctx, path); err != nil {
		return err
	} else if !ok {
		parent, _ := split(path)
		if err := s.makeFolder(ctx, parent); err != nil {
			return err
		}
		_, err := s.session.Create(ctx, path, nil, zkconn.Persistent, s.acl)
		if errors.Is(err, zkconn.ErrUnknown) { // made or not: the same create again tells
			if err = s.session.Settled(ctx); err == nil {
				_, err = s.session.Create(ctx, path, nil, zkconn.Persistent, s.acl)
			}
		}
		if err != nil && !errors.Is(err, zkconn.ErrNodeExists) {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folders[path] = true
	return nil
}

// forgetFolders makes the next commit look again: somebody removed one.
func (s *Store) forgetFolders() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.folders)
}

// NewID is 128 random bits in hexadecimal: the name of a generation, an operation or a plan.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}
