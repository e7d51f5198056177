package member

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// KeyInfo describes one key of saved state.
type KeyInfo struct {
	Key     string
	Bytes   int
	By      string    // identity of the holder that saved it
	Epoch   int64     // of that holder
	Saved   time.Time // by ZooKeeper's clock
	Problem string    // why the key cannot be read; Bytes, By and Epoch are zero then
}

// Get returns what was saved under a key of any duty of the group, whole. It needs no hold.
func (m *Member) Get(ctx context.Context, duty, key string) ([]byte, error) {
	return ReadState(ctx, m.session, m.root, m.Generation, duty, key)
}

// Keys lists the keys of any duty of the group, sorted. It needs no hold.
func (m *Member) Keys(ctx context.Context, duty string) ([]KeyInfo, error) {
	return Keys(ctx, m.session, m.root, m.Generation, duty)
}

// ReadState returns what was saved under a key before now, whole: never a mix of two values. g is the group's
// generation. It returns ErrNoKey or ErrStateDamaged.
func ReadState(ctx context.Context, s *zkconn.Session, root, g, duty, key string) ([]byte, error) {
	if err := znode.CheckKey(key); err != nil {
		return nil, err
	}
	at := znode.State(root, g, duty, key)
	if err := s.Sync(ctx, at); err != nil {
		return nil, err
	}
	for {
		manifest, err := readManifest(ctx, s, at)
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", key, duty, err)
		}
		if manifest == nil {
			return nil, fmt.Errorf("%w: %s of %s", ErrNoKey, key, duty)
		}
		value, err := readValue(ctx, s, resource.Join(at, manifest.Value), *manifest)
		if errors.Is(err, zkconn.ErrNoNode) { // another value was saved meanwhile, or somebody deleted this one by hand
			now, nowErr := readManifest(ctx, s, at)
			if nowErr == nil && (now == nil || now.Value != manifest.Value) {
				continue
			}
			err = fmt.Errorf("%w: %w", ErrStateDamaged, err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", key, duty, err)
		}
		return value, nil
	}
}

// readManifest reads the manifest of a key; nil if there is no value.
func readManifest(ctx context.Context, s *zkconn.Session, at string) (*znode.Manifest, error) {
	body, _, err := s.Get(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	manifest, err := znode.DecodeAny[znode.Manifest](body)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrStateDamaged, err)
	}
	return manifest, err
}

func readValue(ctx context.Context, s *zkconn.Session, dir string, manifest znode.Manifest) ([]byte, error) {
	chunks := make([][]byte, manifest.Chunks)
	tasks, tasksCtx := errgroup.WithContext(ctx)
	tasks.SetLimit(chunksAtOnce)
	for i := range chunks {
		tasks.Go(func() (err error) {
			chunks[i], _, err = s.Get(tasksCtx, znode.Chunk(dir, i))
			return err
		})
	}
	if err := tasks.Wait(); err != nil {
		return nil, err
	}
	value := make([]byte, 0, manifest.Bytes)
	for _, chunk := range chunks {
		value = append(value, chunk...)
	}
	if sum := sha256.Sum256(value); hex.EncodeToString(sum[:]) != manifest.SHA256 {
		return nil, fmt.Errorf("%w: its checksum is another", ErrStateDamaged)
	}
	return value, nil
}

// Keys lists the keys of a duty, sorted. g is the group's generation. A duty that nobody has taken has no keys.
func Keys(ctx context.Context, s *zkconn.Session, root, g, duty string) ([]KeyInfo, error) {
	folder := znode.States(root, g, duty)
	if err := s.Sync(ctx, folder); err != nil {
		return nil, err
	}
	names, _, err := s.Children(ctx, folder)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := make([]*KeyInfo, len(names))
	tasks, tasksCtx := errgroup.WithContext(ctx)
	tasks.SetLimit(readsAtOnce)
	for i, key := range names {
		tasks.Go(func() (err error) {
			found[i], err = readKey(tasksCtx, s, resource.Join(folder, key), key)
			return err
		})
	}
	if err := tasks.Wait(); err != nil {
		return nil, err
	}
	var keys []KeyInfo
	for _, k := range found {
		if k != nil {
			keys = append(keys, *k)
		}
	}
	return keys, nil
}

// readKey describes one key; nil if it has no value.
func readKey(ctx context.Context, s *zkconn.Session, at, key string) (*KeyInfo, error) {
	body, stat, err := s.Get(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	manifest, err := znode.DecodeAny[znode.Manifest](body)
	switch {
	case err != nil:
		return &KeyInfo{Key: key, Saved: stat.Mtime, Problem: err.Error()}, nil
	case manifest == nil:
		return nil, nil
	}
	return &KeyInfo{
		Key: key, Bytes: manifest.Bytes, By: manifest.By, Epoch: manifest.Epoch, Saved: stat.Mtime,
	}, nil
}
