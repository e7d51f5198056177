// Package recipes has worlds of recipes with known bugs, which the simulation must find. It has no code of its own.
package recipes

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/sim"
	"muster/zkstate/zkconn"
)

const timeout = 10 * time.Second

// recipe is a recipe in two versions. The first has a known bug, which must be found. The second has not.
type recipe struct {
	name          string
	options       sim.Options
	flawed, sound func(*sim.World)
}

func recipes() []recipe {
	calm := sim.Options{Seeds: 200, Steps: 200, End: 2 * time.Minute}
	crashes, expiry := calm, calm
	crashes.Faults = sim.Faults{Crashes: 2, Cuts: 2, LostReplies: 2}
	expiry.Faults = sim.Faults{Expiries: 1}
	return []recipe{
		{"counter-and-append", crashes, counterAndAppend, claimAndNumber},
		{"modulo-barrier", crashes, moduloBarrier, numberedBarrier},
		{"last-leaver-by-cache", calm, lastLeaverByCache, lastLeaverByNumber},
		{"fifo-leader-with-late-latch", calm, lateLatch, earlyLatch},
		{"list-and-pop", calm, listAndPop, listAndTake},
		{"lowest-then-watch", expiry, lowestThenWatch, lowestOrListAgain},
	}
}

// TestFlawed: a checker that does not find known bugs is not trusted.
func TestFlawed(t *testing.T) {
	for _, r := range recipes() {
		t.Run(r.name, func(t *testing.T) { sim.Finds(t, r.options, r.flawed) })
	}
}

// TestSound: what is correct is not accused.
func TestSound(t *testing.T) {
	for _, r := range recipes() {
		t.Run(r.name, func(t *testing.T) { sim.Run(t, r.options, r.sound) })
	}
}

var open = zkconn.World(zkconn.PermAll)

// tree creates persistent znodes with the data 0 in Setup.
func tree(w *sim.World, paths ...string) {
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		for _, path := range paths {
			if _, err := s.Create(ctx, path, []byte("0"), zkconn.Persistent, open); err != nil {
				return err
			}
		}
		return nil
	})
}

// each declares n processes that run body with a session.
func each(w *sim.World, n, lives int, body func(ctx context.Context, p *sim.Process, s *zkconn.Session) error) {
	for i := range n {
		w.Process(string(rune('a'+i)), lives, sim.InSession(timeout, func(p *sim.Process, s *zkconn.Session) error {
			return body(p.Context(), p, s)
		}))
	}
}

// change sets the data of a znode to what f makes of it, by its version.
func change(ctx context.Context, s *zkconn.Session, path string, f func(string) string) (string, error) {
	for {
		data, stat, err := s.Get(ctx, path)
		if err != nil {
			return "", err
		}
		after := f(string(data))
		if _, err = s.Set(ctx, path, []byte(after), stat.Version); !errors.Is(err, zkconn.ErrBadVersion) {
			return after, err
		}
	}
}

func plusOne(number string) string { return fmt.Sprint(atoi(number) + 1) }

func atoi(number string) (n int) {
	fmt.Sscan(number, &n)
	return n
}

// await waits until a znode exists.
func await(ctx context.Context, s *zkconn.Session, path string) error {
	for {
		_, there, changed, err := s.ExistsW(ctx, path)
		if err != nil || there {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const parties = 3

// releasedTogether demands that nobody is released before all have come.
func releasedTogether(w *sim.World) (came map[string]bool, released func(*sim.Process)) {
	came = map[string]bool{}
	early := ""
	w.Check(func() error {
		if early != "" {
			return fmt.Errorf("%s is released, and only %d of %d have come", early, len(came), parties)
		}
		return nil
	})
	return came, func(p *sim.Process) {
		p.Saw(func() {
			if len(came) < parties && early == "" {
				early = p.String()
			}
		})
	}
}

// moduloBarrier counts arrivals. Every third arrival releases the waiters. A process that crashes while it waits is
// counted twice.
func moduloBarrier(w *sim.World) {
	tree(w, "/count", "/released")
	came, released := releasedTogether(w)
	each(w, parties, 1, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		p.Saw(func() { came[p.Name()] = true })
		count, err := change(ctx, s, "/count", plusOne)
		if err != nil {
			return err
		}
		round := fmt.Sprintf("/released/%d", (atoi(count)-1)/parties)
		if atoi(count)%parties == 0 {
			_, err = s.Create(ctx, round, nil, zkconn.Persistent, open)
		} else {
			err = await(ctx, s, round)
		}
		if err == nil {
			released(p)
		}
		return err
	})
}

// numberedBarrier counts each name once, and the third arrival is what everybody waits for.
func numberedBarrier(w *sim.World) {
	tree(w, "/by", "/c")
	came, released := releasedTogether(w)
	each(w, parties, 1, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		p.Saw(func() { came[p.Name()] = true })
		_, err := s.Multi(ctx,
			zkconn.CreateOp("/by/"+p.Name(), nil, zkconn.Persistent, open),
			zkconn.CreateOp("/c/c-", nil, zkconn.PersistentSequential, open))
		if err := sim.Unless(err, zkconn.ErrNodeExists); err != nil {
			return err
		}
		if err := await(ctx, s, fmt.Sprintf("/c/c-%010d", parties-1)); err != nil {
			return err
		}
		released(p)
		return nil
	})
}

// gapless demands ids from 0 without gaps, and one of each process.
func gapless(w *sim.World, n int) map[string]int {
	ids := map[string]int{}
	w.AtEnd(func() error {
		used := map[int]string{}
		for name, id := range ids {
			if other, ok := used[id]; ok || id < 0 || id >= n {
				return fmt.Errorf("%s has id %d, which is wrong or also that of %q", name, id, other)
			}
			used[id] = name
		}
		return nil
	})
	return ids
}

// counterAndAppend increments a counter for an id, and then appends the id to a list. A process that crashes between
// the two takes another id after its restart. So does one that loses the reply to its increment.
func counterAndAppend(w *sim.World) {
	tree(w, "/next", "/list")
	ids := gapless(w, 3)
	each(w, 3, 1, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		list, _, err := s.Get(ctx, "/list")
		if err != nil {
			return err
		}
		id := 0
		if _, mine, ok := strings.Cut(string(list), p.Name()+"="); ok {
			id = atoi(mine)
		} else {
			next, err := change(ctx, s, "/next", plusOne)
			if err != nil {
				return err
			}
			id = atoi(next) - 1
			add := func(list string) string { return fmt.Sprintf("%s %s=%d", list, p.Name(), id) }
			if _, err := change(ctx, s, "/list", add); err != nil {
				return err
			}
		}
		p.Saw(func() { ids[p.Name()] = id })
		return nil
	})
}

// claimAndNumber claims its name and takes a number in one transaction.
func claimAndNumber(w *sim.World) {
	tree(w, "/by", "/n")
	ids := gapless(w, 3)
	each(w, 3, 1, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		_, err := s.Multi(ctx,
			zkconn.CreateOp("/by/"+p.Name(), nil, zkconn.Persistent, open),
			zkconn.CreateOp("/n/n-", []byte(p.Name()), zkconn.PersistentSequential, open))
		if err != nil && !errors.Is(err, zkconn.ErrNodeExists) {
			return err
		}
		for id := 0; ; id++ {
			name, _, err := s.Get(ctx, fmt.Sprintf("/n/n-%010d", id))
			if err != nil {
				return err
			}
			if string(name) == p.Name() {
				p.Saw(func() { ids[p.Name()] = id })
				return nil
			}
		}
	})
}

// contend creates a candidate and returns its name.
func contend(ctx context.Context, s *zkconn.Session) (string, error) {
	at, err := s.Create(ctx, "/c/c-", nil, zkconn.EphemeralSequential, open)
	return path.Base(at), err
}

// lowestThenWatch lists the candidates, and watches the one before its own. It takes one that is gone for one that does
// not change, and waits for ever.
func lowestThenWatch(w *sim.World) { lowest(w, false) }

// lowestOrListAgain lists again if the one before it is gone.
func lowestOrListAgain(w *sim.World) { lowest(w, true) }

func lowest(w *sim.World, again bool) {
	tree(w, "/c")
	each(w, 3, 0, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		mine, err := contend(ctx, s)
		if err != nil {
			return err
		}
		for {
			all, _, err := s.Children(ctx, "/c")
			if err != nil {
				return err
			}
			i := slices.Index(all, mine)
			if i <= 0 {
				return nil // it leads, and is done
			}
			_, _, changed, err := s.GetW(ctx, "/c/"+all[i-1])
			if errors.Is(err, zkconn.ErrNoNode) && again {
				continue
			}
			if err := sim.Unless(err, zkconn.ErrNoNode); err != nil {
				return err
			}
			select {
			case <-changed:
			case <-s.Context().Done():
				return zkconn.ErrSessionLost
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// lateLatch leads in order of arrival. It should give up when a newer version is there: a cache tells it by a latch,
// and the latch is made after the cache has begun.
func lateLatch(w *sim.World) { latch(w, true) }

// earlyLatch makes the latch first.
func earlyLatch(w *sim.World) { latch(w, false) }

func latch(w *sim.World, late bool) {
	tree(w, "/c", "/m", "/config")
	each(w, 2, 0, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		newest := p.Name() == "b"
		mine, err := contend(ctx, s)
		if err != nil {
			return err
		}
		if _, err := s.Create(ctx, "/m/"+p.Name(), nil, zkconn.Persistent, open); err != nil {
			return err
		}
		if err := awaitTurn(ctx, s, mine); err != nil {
			return err
		}
		if newest {
			return nil // it leads for good, and is done
		}
		var l latchOf
		if !late {
			l.make()
		}
		go cache(ctx, s, l.down)
		for range 2 { // the cache sees what is there meanwhile
			if _, _, err := s.Get(ctx, "/config"); err != nil {
				return err
			}
		}
		if late {
			l.make()
		}
		select {
		case <-l.ch:
			return nil // gives up
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// latchOf is a latch that may not be there yet.
type latchOf struct {
	mu   sync.Mutex
	ch   chan struct{}
	once sync.Once
}

func (l *latchOf) make() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ch = make(chan struct{})
}

func (l *latchOf) down() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ch != nil {
		l.once.Do(func() { close(l.ch) })
	}
}

// cache calls better once when the newest version is there.
func cache(ctx context.Context, s *zkconn.Session, better func()) {
	if await(ctx, s, "/m/b") == nil {
		better()
	}
}

// awaitTurn waits until no candidate is before mine.
func awaitTurn(ctx context.Context, s *zkconn.Session, mine string) error {
	for {
		all, _, changed, err := s.ChildrenW(ctx, "/c")
		if err != nil || len(all) > 0 && all[0] == mine {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tidied demands that /job, which has two members, is deleted at the end.
func tidied(w *sim.World) {
	tree(w, "/job", "/job/a", "/job/b")
	w.AtEnd(func() error {
		if _, _, there := w.Server().Get("/job"); there {
			return errors.New("all have left, and /job is still there")
		}
		return nil
	})
}

// lastLeaverByCache lists who is there, and the one that finds itself alone deletes all. Two that leave at the same
// time both see two.
func lastLeaverByCache(w *sim.World) {
	tidied(w)
	each(w, 2, 0, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		members, _, err := s.Children(ctx, "/job")
		if err != nil {
			return err
		}
		if err := s.Delete(ctx, "/job/"+p.Name(), 0); err != nil {
			return err
		}
		if len(members) > 1 {
			return nil
		}
		err = sim.Unless(s.Delete(ctx, "/job", 0), zkconn.ErrNotEmpty)
		return sim.Unless(err, zkconn.ErrNoNode)
	})
}

// lastLeaverByNumber takes a number when it leaves. Who gets the last one deletes all.
func lastLeaverByNumber(w *sim.World) {
	const n = 2
	tidied(w)
	tree(w, "/job/left")
	each(w, n, 0, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		results, err := s.Multi(ctx,
			zkconn.CreateOp("/job/left/n-", nil, zkconn.PersistentSequential, open),
			zkconn.DeleteOp("/job/"+p.Name(), 0))
		if err != nil || !strings.HasSuffix(results[0].Path, fmt.Sprintf("%010d", n-1)) {
			return err
		}
		for i := range n {
			if err := s.Delete(ctx, path.Join("/job/left", fmt.Sprintf("n-%010d", i)), 0); err != nil {
				return err
			}
		}
		if err := s.Delete(ctx, "/job/left", 0); err != nil {
			return err
		}
		return s.Delete(ctx, "/job", 0)
	})
}

// allDone demands that every task was executed.
func allDone(w *sim.World) (done map[string]bool) {
	tree(w, "/q", "/q/1", "/q/2", "/q/3")
	done = map[string]bool{}
	w.AtEnd(func() error {
		for _, task := range []string{"1", "2", "3"} {
			if !done[task] {
				return fmt.Errorf("nobody has executed task %s", task)
			}
		}
		return nil
	})
	return done
}

// listAndPop looks at the first task, executes it, and then removes the first, which may be another by then.
func listAndPop(w *sim.World) {
	listAnd(w, func(ctx context.Context, s *zkconn.Session, _ string) error { return pop(ctx, s) })
}

// listAndTake removes the task that it has executed.
func listAndTake(w *sim.World) {
	listAnd(w, func(ctx context.Context, s *zkconn.Session, task string) error {
		return sim.Unless(s.Delete(ctx, "/q/"+task, 0), zkconn.ErrNoNode)
	})
}

// listAnd executes the first task, and then calls remove, until no task is left.
func listAnd(w *sim.World, remove func(ctx context.Context, s *zkconn.Session, task string) error) {
	done := allDone(w)
	each(w, 2, 0, func(ctx context.Context, p *sim.Process, s *zkconn.Session) error {
		for {
			tasks, _, err := s.Children(ctx, "/q")
			if err != nil || len(tasks) == 0 {
				return err
			}
			p.Saw(func() { done[tasks[0]] = true })
			if err := remove(ctx, s, tasks[0]); err != nil {
				return err
			}
		}
	})
}

// pop removes the first task.
func pop(ctx context.Context, s *zkconn.Session) error {
	for {
		tasks, _, err := s.Children(ctx, "/q")
		if err != nil || len(tasks) == 0 {
			return err
		}
		if err = s.Delete(ctx, "/q/"+tasks[0], 0); !errors.Is(err, zkconn.ErrNoNode) {
			return err
		}
	}
}
