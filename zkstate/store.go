package zkstate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"muster/apply/history"
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

	mu       sync.Mutex
	folders  map[string]bool // folders that exist
	resolved []string        // result of recordedACL
	opened   map[string]bool // generations that this Store has created, and not ended since

	listing   sync.Mutex      // held while the index is written
	listed    map[string]bool // roots that are in the index
	resolving sync.Mutex      // held while recordedACL asks ZooKeeper
}

// NewStore returns a Store that uses s. The error names an invalid ACL entry.
func NewStore(s *zkconn.Session, cfg Config) (*Store, error) {
	acl, err := ParseACL(cfg.ACL)
	if err != nil {
		return nil, err
	}
	return &Store{
		Reader: NewReader(s, cfg.Home, cfg.Kinds...), session: s, cfg: cfg, acl: acl,
		folders: map[string]bool{}, listed: map[string]bool{}, opened: map[string]bool{},
	}, nil
}

// makeRoot creates the folders of a kind below root.
func (s *Store) makeRoot(ctx context.Context, kind, root string) error {
	if err := s.makeFolder(ctx, znode.RecordDir(kind, root)); err != nil {
		return err
	}
	return s.makeFolder(ctx, znode.RunDir(root))
}

// makeFolder creates an empty persistent znode and its parents, if they do not exist.
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
		err := s.session.Once(ctx, func() error {
			_, err := s.session.Create(ctx, path, nil, zkconn.Persistent, s.acl)
			return err
		}, nil)
		if err != nil && !errors.Is(err, zkconn.ErrNodeExists) {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folders[path] = true
	return nil
}

// noteGeneration notes that a transaction of this Store creates generation g, or ends it.
func (s *Store) noteGeneration(g string, created bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if created {
		s.opened[g] = true
	} else {
		delete(s.opened, g)
	}
}

// forgetFolders makes the next commit check its folders again, since somebody may have removed one.
func (s *Store) forgetFolders() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.folders)
}

// NewID returns 128 random bits in hexadecimal: the id of a generation, an operation or a plan.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}
