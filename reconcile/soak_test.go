package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/resource"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestSoak: two reconcilers beside people, workers and faults. No live worker loses its job, what a person has
// terminated stays away, and at the end all is as the files say. Its short form makes 30 faults; the long one, with
// MUSTER_SOAK, makes 800.
func TestSoak(t *testing.T) {
	t.Parallel()
	faults := 30
	if rig.Long() {
		faults = 800
	}
	k := &soak{estate: newEstate(t, names...), random: rand.New(rand.NewPCG(rig.Seed(t), 0))}
	k.applies("gone", "b")
	for i := range k.proxies {
		k.proxies[i] = rig.Proxy(t, servers.Addrs()[0])
		k.begin(i)
	}
	ctx, end := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for _, name := range []string{"a", "w"} {
		working.Go(func() { k.work(ctx, name) })
	}
	for range faults {
		k.fault()
		zkconn.Pause(t.Context(), rig.Between(k.random, 0, time.Second))
	}
	end()
	working.Wait()
	k.calm(t)
	t.Logf("%v; %d joins", k.made, k.joins)
}

// names are the jobs that the files declare.
var names = []string{"a", "b:barrier=3m", "c", "t", "w"}

type soak struct {
	*estate
	random  *rand.Rand
	proxies [2]*fault.Proxy
	running [2]*running
	made    map[string]int

	mu    sync.Mutex
	joins int
}

// begin starts a reconciler.
func (k *soak) begin(i int) {
	k.running[i] = k.start(func(c *Config) {
		c.Connect, c.Allow, c.RestartAfter = connectTo(k.proxies[i].Addr()), Words(), 5*time.Second
		c.Every, c.Patience = 5*time.Second, 3*time.Second
		c.MaxDelete, c.MaxReplace = 1000, 1000
	})
}

// work joins a job again and again, and leaves it. While it is live nobody may end its generation.
func (k *soak) work(ctx context.Context, name string) {
	for n := 0; ctx.Err() == nil; n++ {
		s, err := zkconn.Dial(ctx, zkconn.Config{Servers: servers.Addrs(), Timeout: 10 * time.Second})
		if err != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		m, err := worker.Join(limited, s, worker.Config{
			Root: k.root, Job: name, Identity: fmt.Sprint(name, n%2), Info: znode.Worker{IP: "127.0.0.1", Port: 1},
		})
		cancel()
		if err == nil {
			k.mu.Lock()
			k.joins++
			k.mu.Unlock()
			zkconn.Pause(ctx, 2*time.Second)
			if cause := context.Cause(m.Context()); errors.Is(cause, worker.ErrFenced) {
				k.t.Errorf("a live worker of %s: %v", name, cause)
			}
		}
		s.Close()
	}
}

// fault does something that a person, a network or a machine does.
func (k *soak) fault() {
	if k.made == nil {
		k.made = map[string]int{}
	}
	i := k.random.IntN(2)
	p := k.proxies[i]
	ctx := k.t.Context()
	kinds := []string{"cut", "away", "restart", "damage", "edit", "apply", "terminate", "half", "pause"}
	kind := kinds[k.random.IntN(len(kinds))]
	k.made[kind]++
	switch kind {
	case "cut":
		p.Cut()
	case "away": // for longer than a session
		for _, p := range k.proxies {
			p.Refuse(true)
			p.Cut()
		}
		zkconn.Pause(ctx, 6*time.Second)
		for _, p := range k.proxies {
			p.Refuse(false)
		}
	case "restart":
		k.running[i].stop()
		rig.Receive(k.t, k.running[i].ended, "its end")
		k.begin(i)
	case "damage":
		o := k.look("c")
		if o == nil || o.Record == nil || len(o.Lost) > 0 {
			return // of what has lost two parts nobody can tell whose it is: muster leaves it alone
		}
		at := []string{k.path("c"), znode.Gate(k.root, o.Record.Generation), znode.Record("job", k.root, "c")}
		_ = k.s.Delete(ctx, at[k.random.IntN(len(at))], -1) // it may be gone
	case "edit":
		at := znode.Record("job", k.root, "b")
		body, _, err := k.s.Get(ctx, at)
		if err == nil { // else it is gone
			_, _ = k.s.Set(ctx, at, bytes.Replace(body, []byte(`"workers":2`), []byte(`"workers":3`), 1), -1)
		}
	case "apply":
		k.applies("a", "b:barrier=9m", "c", "t", "w")
		k.resume()
	case "terminate":
		k.terminate()
	case "half":
		whole := k.files
		k.load(func() (*Configuration, error) { return nil, errHalf })
		zkconn.Pause(ctx, time.Second)
		k.load(whole)
	case "pause":
		k.edit(func(r *znode.Reconcile) {
			r.All = &znode.Hold{Why: znode.Paused, By: "ann", Since: time.Now(), Until: time.Now().Add(time.Second)}
		})
	}
}

// resume lets the files count again, and what is contested or was held.
func (k *soak) resume() {
	found, err := k.store.History(k.t.Context(), stack, 1)
	if err != nil {
		k.t.Fatal(err)
	}
	k.edit(func(r *znode.Reconcile) {
		r.Held, r.All, r.Shut, r.Changed, r.Deleted, r.Replaced = nil, nil, nil, nil, nil, nil
		if len(found) > 0 {
			r.Seen = found[0].Number + 1
		}
	})
}

// terminate terminates a job, which stays away until that is resumed.
func (k *soak) terminate() {
	if _, there, err := k.store.Reconcile(k.t.Context(), stack); err != nil || !there {
		return // no reconciler has acted yet
	}
	if err := k.store.Terminate(k.t.Context(), k.path("t"), rig.Patience, nil); err != nil {
		return // it is not there, say
	}
	zkconn.Pause(k.t.Context(), rig.Between(k.random, 0, 4*time.Second))
	if k.there("t") {
		k.t.Errorf("a terminated job is there; %+v", k.kept().Held)
	}
	k.edit(func(r *znode.Reconcile) { delete(r.Held, k.path("t")) })
}

// calm: without faults all is as the files say, and nothing else is there.
func (k *soak) calm(t *testing.T) {
	t.Helper()
	k.resume()
	rig.Until(t, 2*time.Minute, "all as the files say", func() string {
		for _, name := range []string{"a", "b", "c", "t", "w"} {
			o := k.look(name)
			if o == nil || o.Record == nil || o.Record.Edited() || o.Class() != resource.Ready {
				return fmt.Sprintf("%s is %s: %+v; kept %+v", name, o.Status(), o, k.kept())
			}
		}
		if k.barrier("b") != 3*time.Minute || k.there("gone") {
			return fmt.Sprintf("b has %s, and gone is there: %v", k.barrier("b"), k.there("gone"))
		}
		return ""
	})
}
