package jobs_test

import (
	"fmt"
	"strings"

	"muster/dev/zkmodel"
	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/znode"
)

// book is what the checker of a world knows, from committed transactions and from what processes saw. It is written
// and read under the world's lock. Every rule that a transaction breaks is an error of note.
type book struct {
	job    job.Job
	owners map[int64]*life  // who opened a session
	record *resource.Record // as it is now; nil: none
	runs   map[string]*run  // by generation
	live   map[string]int64 // the session that owns the live znode of an identity
	roll   []znode.Worker   // in the job znode; nil: none
}

// life is one membership of a process: a Join, and the Rejoins after it.
type life struct {
	name     string // for messages
	identity string
	g        string // the generation that it has joined; empty before
	id       int
	port     int // that it has advertised; 0: none, or it is advertising another one

	member     bool // Join has returned; before that it may begin again
	completing bool // it has called Complete
	left       bool // it has left, and may still Rejoin
	done       bool // it has completed, and writes nothing more as this worker
}

// run is one generation.
type run struct {
	name       string           // of the run of its first worker
	open       bool             // the gate exists
	holders    map[string]*life // who wrote the claim of an identity last
	claims     map[string]znode.Claim
	ids        map[int]string  // identities
	completed  map[string]bool // identities
	barriers   map[string]*barrier
	terminated bool // its workers were asked to stop
	values     values
}

func newBook(j job.Job) *book {
	return &book{job: j, owners: map[int64]*life{}, runs: map[string]*run{}, live: map[string]int64{}}
}

func (b *book) run(g string) *run {
	if b.runs[g] == nil {
		b.runs[g] = &run{
			holders: map[string]*life{}, claims: map[string]znode.Claim{},
			ids: map[int]string{}, completed: map[string]bool{}, barriers: map[string]*barrier{}, values: newValues(),
		}
	}
	return b.runs[g]
}

// place is where a znode belongs. Of a path that is no part of the job every field is empty.
type place struct {
	g        string   // generation, of what is below run/<g>
	parts    []string // below run/<g>
	identity string   // of a live znode
	job      bool     // the job znode
	record   bool
}

func (b *book) place(path string) place {
	runs := znode.RunDir(b.job.Root) + "/"
	switch {
	case path == b.job.Path():
		return place{job: true}
	case strings.HasPrefix(path, b.job.Path()+"/"):
		return place{identity: strings.TrimPrefix(path, b.job.Path()+"/")}
	case path == znode.Record(job.KindName, b.job.Root, b.job.Name):
		return place{record: true}
	case strings.HasPrefix(path, runs):
		parts := strings.Split(strings.TrimPrefix(path, runs), "/")
		return place{g: parts[0], parts: parts[1:]}
	}
	return place{}
}

// is reports whether a znode below run/<g> is at this pattern, in which * is any name.
func (p place) is(pattern ...string) bool {
	if len(pattern) != len(p.parts) || p.g == "" {
		return false
	}
	for i, part := range pattern {
		if part != "*" && part != p.parts[i] {
			return false
		}
	}
	return true
}

// step is a committed transaction, with what is known of who sent it.
type step struct {
	*zkmodel.Txn
	who    *life // nil: no worker
	places []place
}

// note checks a transaction against what is known, and then notes it.
func (b *book) note(t *zkmodel.Txn) error {
	if t.Err != 0 {
		return nil
	}
	s := step{Txn: t, who: b.owners[t.Session]}
	for _, op := range t.Ops {
		s.places = append(s.places, b.place(op.Path))
	}
	if s.closes() {
		b.endSession(t.Session)
		return nil
	}
	may, err := b.mayWrite(s)
	for i := 0; i < len(t.Ops) && err == nil; i++ {
		err = b.apply(s, t.Ops[i], s.places[i])
	}
	if err == nil {
		err = may()
	}
	if err != nil {
		who := "somebody"
		if s.who != nil {
			who = s.who.name
		}
		return fmt.Errorf("%s: %w: %s", who, err, s)
	}
	return nil
}

// String lists the operations.
func (s step) String() string {
	var ops []string
	for _, op := range s.Ops {
		ops = append(ops, fmt.Sprintf("%s %s", op.Type, op.Path))
	}
	return strings.Join(ops, ", ")
}

func (s step) closes() bool { return len(s.Ops) > 0 && s.Ops[0].Type == zkmodel.OpClose }

// endSession takes the ephemeral znodes of a session away.
func (b *book) endSession(id int64) {
	for identity, owner := range b.live {
		if owner == id {
			delete(b.live, identity)
		}
	}
	for _, r := range b.runs {
		for _, one := range r.barriers {
			one.endSession(id)
		}
	}
}

// apply notes one operation, and checks what it means by itself.
func (b *book) apply(s step, op zkmodel.Op, p place) error {
	if op.Type == zkmodel.OpCheck {
		return nil
	}
	switch {
	case p.job:
		return b.applyRoll(op)
	case p.record:
		return b.applyRecord(s, op)
	case p.identity != "":
		return b.applyLive(s, op, p.identity)
	case p.g == "":
		return nil
	}
	r := b.run(p.g)
	switch {
	case p.is("gate"):
		r.open = op.Type == zkmodel.OpCreate
	case p.is("id") && op.Type == zkmodel.OpCreate:
		r.name = string(op.Data)
	case p.is("by"):
		return r.values.applyShared(op)
	case p.is("by", "*"):
		return b.applyClaim(s, op, p)
	case p.is("id", "*"):
		return b.applyID(s, op, p)
	case p.is("id", "*", "*"):
		return r.values.apply(s, r, op, p)
	case p.is("end", "*"):
		return b.applyEnd(s, op, p)
	case len(p.parts) > 1 && p.parts[0] == "barrier":
		return b.applyBarrier(s, op, p)
	}
	return nil
}

// ended reports whether muster has ended a generation: the record names another one, or is gone with its gate.
func (b *book) ended(g string) bool {
	if b.record != nil {
		return b.record.Generation != g
	}
	return !b.run(g).open
}

func (b *book) applyRecord(s step, op zkmodel.Op) error {
	old := b.record
	if op.Type == zkmodel.OpDelete {
		b.record = nil
		return b.applyUpdate(s, old, nil)
	}
	rec, err := znode.DecodeRecordAt(job.Kind(), b.job.Path(), op.Data)
	b.record = &rec
	if err == nil {
		err = b.applyUpdate(s, old, &rec)
	}
	if err == nil {
		err = b.applyRequest(s, old, &rec)
	}
	if rec.State == resource.StateTerminating {
		b.run(rec.Generation).terminated = true
	}
	return err
}

func (b *book) applyLive(s step, op zkmodel.Op, identity string) error {
	owner, exists := b.live[identity]
	switch op.Type {
	case zkmodel.OpCreate:
		b.live[identity] = s.Session
	case zkmodel.OpDelete:
		delete(b.live, identity)
		if exists && s.who != nil && b.owners[owner] != s.who {
			return fmt.Errorf("it deletes the live znode of %s", b.owners[owner].name)
		}
	}
	return nil
}
