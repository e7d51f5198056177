package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/sim/rig"
	"muster/sim/soak"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// believers wait for events of many znodes, in each way that there is, and note what they have read last.
type believers struct {
	session *zkconn.Session
	root    string
	paths   []string

	mu      sync.Mutex
	beliefs map[string]string // by way and path
}

// TestNoEventIsLostSoak: on three servers, connections break all the time, and so a session changes its server. When
// all is quiet, everybody who waits for events has read what is there.
func TestNoEventIsLostSoak(t *testing.T) {
	t.Parallel()
	lasts := 5 * time.Second
	if soak.Long() {
		lasts = 2 * time.Minute
	}
	random := rand.New(rand.NewPCG(soak.Seed(t), 1))
	e, err := zkserver.Start(t.Context(), zkserver.Options{Servers: 3, Heap: "256m"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Stop() })
	var proxies []*zkserver.Proxy
	var addrs []string
	for _, addr := range e.Addrs() {
		p := rig.Proxy(t, addr)
		proxies, addrs = append(proxies, p), append(addrs, p.Addr())
	}
	dial := func(addrs []string) *zkconn.Session {
		s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: addrs, Timeout: 40 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	b := &believers{session: dial(addrs), root: "/w", beliefs: map[string]string{}}
	for i := range 150 {
		b.paths = append(b.paths, fmt.Sprint(b.root, "/", i))
	}
	other := dial(e.Addrs())
	if _, err := other.Create(t.Context(), b.root, nil, zkconn.Persistent, anyone()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting, busy sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	b.wait(ctx, t, &waiting)
	quiet, stop := context.WithTimeout(ctx, lasts)
	defer stop()
	for i := range uint64(8) {
		random := rand.New(rand.NewPCG(random.Uint64(), i))
		busy.Go(func() { b.change(quiet, t, other, random) })
	}
	cuts := breakConnections(quiet, random, proxies)
	busy.Wait()
	soak.Await(t, 2*time.Minute, "everybody knows what is there", func() string { return b.differ(t, other) })
	t.Logf("%d faults, %d times watches were set again", cuts, setAgain(proxies))
}

// breakConnections until ctx ends, also while answers are on their way, and one server's for a while.
func breakConnections(ctx context.Context, random *rand.Rand, proxies []*zkserver.Proxy) (n int) {
	all := func(do func(p *zkserver.Proxy)) {
		for _, p := range proxies {
			do(p)
		}
	}
	for ; ctx.Err() == nil; n++ {
		soak.Pause(ctx, time.Duration(random.IntN(150))*time.Millisecond)
		away, silent := proxies[random.IntN(len(proxies))], random.IntN(2) == 0
		away.Refuse(true)
		if silent {
			all(func(p *zkserver.Proxy) { p.Mute(true) })
			soak.Pause(ctx, 10*time.Millisecond)
		}
		all((*zkserver.Proxy).Cut)
		if silent {
			all(func(p *zkserver.Proxy) { p.Mute(false) })
		}
		soak.Pause(ctx, 20*time.Millisecond)
		away.Refuse(false)
	}
	return n
}

func setAgain(proxies []*zkserver.Proxy) (n int) {
	for _, p := range proxies {
		n += p.Requests()[zkserver.OpSetWatches]
	}
	return n
}

// change creates, sets and deletes znodes until ctx ends.
func (b *believers) change(ctx context.Context, t *testing.T, s *zkconn.Session, random *rand.Rand) {
	for ctx.Err() == nil {
		path, err := b.paths[random.IntN(len(b.paths))], error(nil)
		switch random.IntN(3) {
		case 0:
			_, err = s.Create(t.Context(), path, nil, zkconn.Persistent, anyone())
		case 1:
			err = s.Delete(t.Context(), path, -1)
		default:
			_, err = s.Set(t.Context(), path, nil, -1)
		}
		if err != nil && !errors.Is(err, zkconn.ErrNoNode) && !errors.Is(err, zkconn.ErrNodeExists) {
			t.Error(err)
			return
		}
	}
}

// wait waits in each way until ctx ends.
func (b *believers) wait(ctx context.Context, t *testing.T, all *sync.WaitGroup) {
	start := func(wait func() error) {
		all.Go(func() {
			if err := wait(); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	mirror := zkstate.NewMirror(b.session)
	start(func() error { return b.look(ctx, mirror) })
	start(func() error {
		return again(ctx, func() (<-chan struct{}, error) {
			_, stat, changed, err := b.session.ChildrenW(ctx, b.root)
			b.believe("children", b.root, fmt.Sprint(stat.Pzxid))
			return changed, err
		})
	})
	for _, path := range b.paths {
		start(func() error {
			return b.session.Follow(ctx, path, func(_ []byte, stat zkconn.Stat, _ bool) error {
				b.believe("follow", path, fmt.Sprint(stat.Mzxid))
				return nil
			})
		})
		start(func() error {
			return again(ctx, func() (<-chan struct{}, error) {
				stat, _, changed, err := b.session.ExistsW(ctx, path)
				b.believe("exists", path, fmt.Sprint(stat.Mzxid))
				return changed, err
			})
		})
	}
}

func (b *believers) look(ctx context.Context, mirror *zkstate.Mirror) error {
	var last *zkstate.Look
	return again(ctx, func() (<-chan struct{}, error) {
		look := mirror.Look()
		_, stat, err := look.Children(ctx, b.root)
		b.believe("look at children", b.root, fmt.Sprint(stat.Pzxid))
		for _, path := range b.paths {
			if err == nil {
				_, stat, err = look.Get(ctx, path)
			}
			if errors.Is(err, zkconn.ErrNoNode) {
				err = nil
			}
			b.believe("look", path, fmt.Sprint(stat.Mzxid))
		}
		if last != nil {
			last.Close()
		}
		last = look
		return look.Changed(), err
	})
}

// again reads after each change.
func again(ctx context.Context, read func() (<-chan struct{}, error)) error {
	for {
		changed, err := read()
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *believers) believe(way, path, what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beliefs[way+" "+path] = what
}

// differ says what somebody believes otherwise than it is.
func (b *believers) differ(t *testing.T, s *zkconn.Session) string {
	if err := s.Sync(t.Context(), b.root); err != nil {
		t.Fatal(err)
	}
	truth := map[string]string{}
	for _, path := range append(b.paths, b.root) {
		stat, _, err := s.Exists(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range []string{"look", "follow", "exists"} {
			truth[way+" "+path] = fmt.Sprint(stat.Mzxid)
		}
		truth["children "+path] = fmt.Sprint(stat.Pzxid)
		truth["look at children "+path] = fmt.Sprint(stat.Pzxid)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for what, believed := range b.beliefs {
		if believed != truth[what] {
			return fmt.Sprintf("%s: %s, want %s", what, believed, truth[what])
		}
	}
	if n := len(b.beliefs); n != 3*len(b.paths)+2 {
		return fmt.Sprintf("only %d beliefs", n)
	}
	return ""
}
