package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/dev/zkmodel"
	"muster/resource/job"
	"muster/sim"
	"muster/worker"
	"muster/zkstate/znode"
)

// valuesWorld has three processes, two of them of one identity, that publish under one key and get what the others
// have published. The job has so many workers that each has room for one small value of its own, and takes the rest
// from the room that all share.
func valuesWorld(w *sim.World) {
	k := newJobs(w, 20_000, func(j *job.Job) { j.Lifecycle.OnComplete = job.Retain })
	w.Check(func() error {
		for g, r := range k.book.runs {
			if b := k.book; b.record != nil && b.record.Generation == g {
				return r.values.check(b.job.Workers)
			}
		}
		return nil
	})
	for _, name := range []string{"a1", "a2", "b"} {
		k.worker(name, name[:1], 1, func(p *sim.Process, m *member) error {
			for n, size := range []int{3000, 6000, 100} {
				value := fmt.Sprintf("%s %d ", p, n) + strings.Repeat("x", size)
				if err := m.publish("key", value); err != nil {
					return err
				}
			}
			if err := m.values("key"); err != nil {
				return err
			}
			return m.leave()
		})
	}
	k.hand()
}

// publish is over when the value is there. Nobody but a later life of the identity replaces it.
func (m *member) publish(key, value string) error {
	err := m.do(func() error { return m.Publish(m.p.Context(), key, []byte(value)) })
	if err == nil {
		m.p.Saw(func() {
			r := m.k.book.run(m.Generation)
			if r.holders[m.Identity] == m.life && !slices.Equal([]string{value}, last(r.values.published[m.ID][key])) {
				err = fmt.Errorf("%s has published %.10q, and it is not there", m.life.name, value)
			}
		})
	}
	return err
}

func last(values []string) []string { return values[max(0, len(values)-1):] }

// values gets what the first two workers have published, unless they do not come.
func (m *member) values(key string) error {
	var found []worker.Published
	end := time.Now().Add(time.Minute)
	err := m.do(func() (err error) {
		ctx, cancel := context.WithDeadline(m.p.Context(), end)
		defer cancel()
		found, err = m.Values(ctx, key, []int{0, 1})
		return err
	})
	var unpublished *worker.UnpublishedError
	if errors.As(err, &unpublished) {
		return nil
	}
	if err != nil {
		return err
	}
	m.p.Saw(func() {
		for _, v := range found {
			if !slices.Contains(m.k.book.run(m.Generation).values.published[v.ID][key], string(v.Value)) {
				err = fmt.Errorf("%s gets %.10q of %d, who has not published it", m.life.name, v.Value, v.ID)
			}
		}
	})
	return err
}

// values is what the workers of a generation have published.
type values struct {
	sizes     map[int]map[string]int      // of the newest value, by id and key
	published map[int]map[string][]string // all values, oldest first
	shared    int                         // bytes taken of the room that all share
}

func newValues() values {
	return values{sizes: map[int]map[string]int{}, published: map[int]map[string][]string{}}
}

func (v *values) applyShared(op zkmodel.Op) (err error) {
	if op.Type == zkmodel.OpSetData {
		v.shared, err = znode.DecodeShared(op.Data)
	}
	return err
}

// apply notes a value. Only the worker of that id writes there, and says which of its lives it is.
func (v *values) apply(s step, r *run, op zkmodel.Op, p place) error {
	id, err := znode.IDNumber(p.parts[1])
	if err != nil || op.Type == zkmodel.OpDelete {
		return err
	}
	if s.who == nil || s.who.id != id {
		return fmt.Errorf("it publishes a value of %d", id)
	}
	value, err := znode.DecodeValue(op.Data)
	if err != nil {
		return err
	}
	if lives := r.claims[s.who.identity].Lives; value.Life != lives {
		return fmt.Errorf("it publishes a value of life %d in life %d", value.Life, lives)
	}
	if v.sizes[id] == nil {
		v.sizes[id], v.published[id] = map[string]int{}, map[string][]string{}
	}
	key := p.parts[2]
	v.sizes[id][key] = len(op.Data) + keyCost
	v.published[id][key] = append(v.published[id][key], string(value.Data))
	return nil
}

// keyCost is what docs/protocol/jobs.md says that each value counts besides its body.
const keyCost = 256

// check reports whether the shared room is what the workers have taken of it.
func (v *values) check(workers int) error {
	taken := 0
	for _, keys := range v.sizes {
		total := 0
		for _, size := range keys {
			total += size
		}
		taken += max(0, total-worker.MaxData/2/workers)
	}
	if taken != v.shared {
		return fmt.Errorf("the workers have %d bytes of the shared room, and it says %d", taken, v.shared)
	}
	return nil
}

// addressWorld has workers that advertise one address after the other, and somebody who deletes their live znodes by
// hand. After an Advertise, what peers read is that address.
func addressWorld(w *sim.World) {
	k := newJobs(w, 2)
	w.Check(k.checkAddresses)
	for _, name := range []string{"a1", "a2", "b"} {
		k.worker(name, name[:1], 1, func(p *sim.Process, m *member) (err error) {
			for n := 1; n < 4 && err == nil; n++ {
				port := address(name[:1]).Port + 1000*n
				p.Saw(func() { m.life.port = 0 })
				err = m.do(func() error { return m.Advertise(p.Context(), "192.0.2.7", port) })
				if err == nil {
					p.Saw(func() { m.life.port = port })
				}
			}
			if err == nil {
				err = m.leave()
			}
			return err
		})
	}
	k.hand()
}

// checkAddresses checks what peers read of each worker that has advertised an address, and is still a member.
func (k *jobs) checkAddresses() error {
	if k.book.record == nil {
		return nil
	}
	g := k.book.record.Generation
	for identity, who := range k.book.run(g).holders {
		if who.port == 0 || who.left || who.done {
			continue
		}
		paths := []string{znode.ID(k.book.job.Root, g, who.id)}
		if k.book.owners[k.book.live[identity]] == who {
			paths = append(paths, znode.Live(k.book.job.Root, k.book.job.Name, identity))
		}
		for _, path := range paths {
			body, _, _ := k.Server().Get(path)
			if read, err := znode.DecodeWorker(body); err != nil || read.Port != who.port || read.ID != who.id {
				return fmt.Errorf("%s has advertised port %d, and %s says %v", who.name, who.port, path, read)
			}
		}
	}
	return nil
}
