package queues_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/dev/zkmodel"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim"
	"muster/tasks"
	"muster/tasks/store/storemodel"
	"muster/zkstate/znode"
)

// book is what the checker of a world knows, from committed transactions, calls of Redis, and what processes saw. It is
// used under the world's lock, or by the scheduler while all processes are blocked.
type book struct {
	k       *shop
	err     error                         // what a call of Redis has broken
	seats   map[string]string             // the paths of seats that stand, by their names in Redis
	leaving map[string]bool               // seats whose processes give them back
	works   map[string]string             // batch:index of a life → the seat that works on it
	claimed map[string]string             // life → the seat whose watcher is called
	batches map[string]*batch             // by life
	current map[string]string             // id → the life that has a manifest
	retried bool                          // somebody has begun to retry
	paused  map[string]bool               // batches that an operator has paused, and not resumed
	weights map[string]int                // that an operator has set
	hands   map[string]map[string]float64 // by seat: what it has, and at which attempt
	deaths  map[string]int                // of executors, by life:index of the task in hand
}

// batch is one life of a batch.
type batch struct {
	id        string
	g         string // its generation
	manifest  znode.BatchManifest
	written   time.Time
	submitted bool            // somebody was told that it is there
	collected map[string]bool // the lives of processes whose do has succeeded
	ended     int
}

func newBook(k *shop) *book {
	return &book{
		k: k, seats: map[string]string{}, leaving: map[string]bool{}, works: map[string]string{},
		claimed: map[string]string{}, batches: map[string]*batch{}, current: map[string]string{},
		paused: map[string]bool{}, weights: map[string]int{}, deaths: map[string]int{},
	}
}

func hex(zxid int64) string { return strconv.FormatInt(zxid, 16) }

// place is the generation of a path below run/<g>, and the names below that.
func place(path string) (g string, below []string) {
	rest, ok := strings.CutPrefix(path, znode.RunDir(root)+"/")
	if !ok {
		return "", nil
	}
	parts := strings.Split(rest, "/")
	return parts[0], parts[1:]
}

// note checks a transaction against what is known, and notes it.
func (b *book) note(t *zkmodel.Txn) error {
	if t.Err != 0 {
		return nil
	}
	who := b.k.w.Who(t.Session)
	for i, op := range t.Ops {
		g, below := place(op.Path)
		if g == "" || len(below) == 0 {
			continue
		}
		err := b.mayWrite(t, who, g, below, op)
		switch {
		case err != nil || op.Type == zkmodel.OpCheck:
		case below[0] == "seat" && len(below) == 2:
			err = b.noteSeat(t, op, g)
		case below[0] == "batch" && len(below) == 2:
			err = b.noteBatch(t, who, below[1], op, t.Ops[i+1:])
		case below[0] == "health" && op.Type == zkmodel.OpSetData:
			err = b.noteHealth(g, op)
		}
		if err != nil {
			return fmt.Errorf("%s: %s %s: %w", who, op.Type, op.Path, err)
		}
	}
	return nil
}

// mayWrite demands that processes of the queue write only in a generation that is open. Who asks for the time writes
// nothing, and the end of a session deletes what it had.
func (b *book) mayWrite(t *zkmodel.Txn, who, g string, below []string, op zkmodel.Op) error {
	asks := op.Type == zkmodel.OpSetData && len(below) == 1 && below[0] == "ended" && len(op.Data) == 0
	if strings.HasPrefix(who, "setup") || strings.HasPrefix(who, "admin") || op.Type == zkmodel.OpCheck || asks ||
		t.Ops[0].Type == zkmodel.OpClose {
		return nil
	}
	if _, _, open := b.k.w.Server().Get(znode.Gate(root, g)); !open {
		return errors.New("the generation is closed")
	}
	return nil
}

// record is what is declared now; nil: nothing.
func (b *book) record() *resource.Record {
	body, _, ok := b.k.w.Server().Get(znode.Record(queue.KindName, root, name))
	if !ok {
		return nil
	}
	rec, err := znode.DecodeRecordAt(queue.Kind(), b.k.queue.Path(), body)
	if err != nil {
		return nil
	}
	return &rec
}

// mayCome demands that the queue is open for what comes in.
func (b *book) mayCome(g string) error {
	switch rec := b.record(); {
	case rec == nil:
		return errors.New("the queue is not declared")
	case rec.Generation != g:
		return errors.New("the queue has another generation")
	case rec.State == resource.StateTerminating:
		return errors.New("the queue was asked to stop")
	}
	return nil
}

func (b *book) noteSeat(t *zkmodel.Txn, op zkmodel.Op, g string) error {
	if op.Type == zkmodel.OpDelete {
		for seat, path := range b.seats {
			if path == op.Path {
				delete(b.seats, seat)
			}
		}
		return nil
	}
	b.seats[hex(t.Zxid)] = op.Path
	return b.mayCome(g)
}

// noteHealth demands that who writes what is amiss still looks after the queue.
func (b *book) noteHealth(g string, op zkmodel.Op) error {
	h, err := znode.DecodeOrZero[znode.Health](op.Data)
	if err != nil || h.Seat == "" {
		return err
	}
	if _, _, stands := b.k.w.Server().Get(znode.SeatAt(root, g, h.Seat)); !stands {
		return fmt.Errorf("the seat %s is gone", h.Seat)
	}
	return nil
}

// noteBatch checks a write of a manifest. after is what follows in the same transaction.
func (b *book) noteBatch(t *zkmodel.Txn, who, id string, op zkmodel.Op, after []zkmodel.Op) error {
	switch op.Type {
	case zkmodel.OpCreate:
		m, err := znode.Decode[znode.BatchManifest](op.Data)
		b.current[id] = hex(t.Zxid)
		g, _ := place(op.Path)
		b.batches[hex(t.Zxid)] = &batch{
			id: id, g: g, manifest: m, written: time.Now(), collected: map[string]bool{},
		}
		return errors.Join(err, b.mayCome(g))
	case zkmodel.OpSetData:
		m, err := znode.Decode[znode.BatchManifest](op.Data)
		if err != nil {
			return err
		}
		one := b.batches[b.current[id]]
		err = one.mayBecome(m)
		one.manifest, one.written = m, time.Now()
		return err
	case zkmodel.OpDelete:
		one := b.batches[b.current[id]]
		life := b.current[id]
		delete(b.current, id)
		if one == nil {
			return nil
		}
		one.ended++
		if len(after) == 0 {
			return one.mayUnmake()
		}
		end, err := znode.Decode[znode.BatchEnd](after[len(after)-1].Data)
		if err == nil {
			err = b.mayEnd(who, life, one, end)
		}
		return err
	}
	return nil
}

// mayBecome checks a change of a manifest. One that was taken back and made again for the same tasks may be written by
// a submitter that has read the first: then it only has the earlier time.
func (one *batch) mayBecome(m znode.BatchManifest) error {
	was := one.manifest
	switch {
	case was.State == znode.BatchCancelled && m.State != znode.BatchCancelled:
		return fmt.Errorf("it was cancelled, and is %s", m.State)
	case was.State != znode.BatchSubmitting && m.State == znode.BatchSubmitting:
		return fmt.Errorf("it was %s, and is submitting", was.State)
	case m.SHA256 != was.SHA256 || m.Since.After(was.Since):
		return errors.New("it is another batch")
	}
	return nil
}

// mayUnmake checks a delete of a manifest without an end.
func (one *batch) mayUnmake() error {
	if one.submitted || one.manifest.State != znode.BatchSubmitting {
		return errors.New("a batch that is there vanishes")
	}
	return nil
}

// mayEnd checks the end of a batch.
func (b *book) mayEnd(who, life string, one *batch, end znode.BatchEnd) error {
	switch {
	case end.How == znode.EndCancelled:
		if one.manifest.State != znode.BatchCancelled {
			return fmt.Errorf("it ends as cancelled, and is %s", one.manifest.State)
		}
		return nil
	case end.How == znode.EndUnattended && time.Since(one.written) < time.Hour:
		return fmt.Errorf("it ends as unattended %s after it was written", time.Since(one.written))
	case end.How == znode.EndCollected && !one.collected[who]:
		return fmt.Errorf("it ends as collected, and %s has not collected it", who)
	}
	g := ""
	if rec := b.record(); rec != nil {
		g = rec.Generation
	}
	var err error
	b.k.redis.Look(g, func(q *storemodel.Queue) {
		r := q.Batches[one.id]
		if r == nil || r.Life != life {
			return
		}
		all := r.State != "submitting" && r.Done()+r.Dead == r.Tasks() // also if it is cancelled now
		if end.How != znode.EndUnattended && !all && !b.k.loses {
			err = fmt.Errorf("it ends as %s, and not all its tasks have ended", end.How)
		}
	})
	return err
}

// called checks a call of Redis.
func (b *book) called(q *storemodel.Queue, script string, args []string, reply any) {
	if _, refused := reply.(storemodel.Refused); refused || b.err != nil {
		return
	}
	if script == "evict" {
		for _, seat := range args[1:] {
			if path := b.seats[seat]; path != "" && !b.leaving[seat] {
				b.err = fmt.Errorf("the seat %s is shut, and %s stands", seat, path)
			}
		}
	}
	if err := b.noteHands(q, script, args); err != nil && b.err == nil {
		b.err = err
	}
	if err := q.Check(); err != nil && b.err == nil {
		b.err = fmt.Errorf("after %s %q: %w", script, args[:min(len(args), 4)], err)
	}
}

// check is what holds after every step.
func (b *book) check() error {
	for id, life := range b.current {
		m := b.batches[life].manifest
		_, _, open := b.k.w.Server().Get(znode.Gate(root, b.batches[life].g))
		switch {
		case b.err != nil:
		case !open:
			b.err = fmt.Errorf("batch %s is in a generation that is gone", id)
		case b.paused[id] && m.State != znode.BatchPaused:
			b.err = fmt.Errorf("batch %s was paused, and is %s", id, m.State)
		case b.weights[id] != 0 && m.Weight != b.weights[id]:
			b.err = fmt.Errorf("batch %s got the weight %d, and has %d", id, b.weights[id], m.Weight)
		}
	}
	return b.err
}

// fails reports whether a task fails: a bad one, until somebody retries.
func (b *book) fails(payload []byte) bool {
	return strings.HasPrefix(string(payload), "bad") && !b.retried
}

func (b *book) leaves(seat string) { b.leaving[seat] = true }

func task(q *tasks.Process, t *tasks.Task) string { return fmt.Sprint(t.Batch, ":", t.Index) }

// starts notes that a process works on a task, which no other one does whose seat stands.
func (b *book) starts(p *sim.Process, q *tasks.Process, t *tasks.Task) error {
	at := task(q, t)
	if seat := b.works[at]; !b.k.loses && seat != "" && seat != q.Seat && b.seats[seat] != "" && b.seats[q.Seat] != "" {
		return fmt.Errorf("%s works on %s, and so does the seat %s", p, at, seat)
	}
	b.works[at] = q.Seat
	return nil
}

func (b *book) stops(_ *sim.Process, q *tasks.Process, t *tasks.Task) {
	if at := task(q, t); b.works[at] == q.Seat {
		delete(b.works, at)
	}
}

// claims notes that a watcher is called for a batch, which no other one is whose seat stands.
func (b *book) claims(seat string, c *tasks.Completed) error {
	life := c.Manifest.Life
	one := b.batches[life]
	switch other := b.claimed[life]; {
	case one == nil:
		return fmt.Errorf("nobody has submitted %s, life %s", c.ID, life)
	case !b.k.loses && other != "" && b.seats[other] != "" && b.seats[seat] != "":
		return fmt.Errorf("two watchers have %s", c.ID)
	case !b.k.loses && one.ended > 0 && one.manifest.State != znode.BatchCancelled:
		return fmt.Errorf("%s has ended, and is claimed", c.ID)
	}
	b.claimed[life] = seat
	return nil
}

func (b *book) unclaims(seat string, c *tasks.Completed) {
	if b.claimed[c.Manifest.Life] == seat {
		delete(b.claimed, c.Manifest.Life)
	}
}

func (b *book) collects(p *sim.Process, c *tasks.Completed) {
	b.batches[c.Manifest.Life].collected[p.String()] = true
}

// submitted notes that somebody was told that a batch is there. It is what was submitted, and Redis has it, unless it
// has ended or was cancelled.
func (b *book) submitted(out tasks.Submitted, sum string) error {
	life := out.Manifest.Life
	one := b.batches[life]
	switch {
	case one == nil || one.manifest.SHA256 != sum:
		return fmt.Errorf("batch %s, life %s, is not the one that was submitted", out.ID, life)
	case one.ended > 0 || b.k.loses || one.manifest.State == znode.BatchCancelled:
		return nil
	}
	one.submitted = true
	var err error
	b.k.redis.Look(one.g, func(q *storemodel.Queue) {
		r := q.Batches[out.ID]
		if r == nil || r.Life != life || r.State == "submitting" || r.Tasks() != float64(one.manifest.Tasks) {
			err = fmt.Errorf("batch %s was submitted, and redis does not have it: %+v", out.ID, r)
		}
	})
	return err
}

// lives are those of a batch, in order.
func (b *book) lives(id string) (all []*batch) {
	var lives []string
	for life, one := range b.batches {
		if one.id == id {
			lives = append(lives, life)
		}
	}
	slices.Sort(lives)
	for _, life := range lives {
		all = append(all, b.batches[life])
	}
	return all
}
