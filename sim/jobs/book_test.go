package jobs_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	lost   map[int64]bool   // sessions that have ended
	roll   []znode.Worker   // in the job znode; nil: none
	taken  bool             // live znodes are deleted by hand: a command may run longer than its worker is live
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
	joined     int             // who has joined with an index
	completed  map[string]bool // identities
	barriers   map[string]*barrier
	gang       gangBook
	replaced   map[int]string // ids whose claim was deleted by a spare that takes them, and whose they were
	terminated bool           // its workers were asked to stop
	values     values
}

func newBook(j job.Job) *book {
	return &book{
		job: j, owners: map[int64]*life{}, runs: map[string]*run{}, live: map[string]int64{}, lost: map[int64]bool{},
	}
}

func (b *book) run(g string) *run {
	if b.runs[g] == nil {
		b.runs[g] = &run{
			holders: map[string]*life{}, claims: map[string]znode.Claim{},
			ids: map[int]string{}, completed: map[string]bool{}, barriers: map[string]*barrier{}, values: newValues(),
			replaced: map[int]string{},
			gang:     gangBook{running: map[string]commandOf{}, well: map[int]map[int]bool{}},
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
	b.lost[id] = true
	for identity, owner := range b.live {
		if owner == id {
			delete(b.live, identity)
		}
	}
	for _, r := range b.runs {
		for _, one := range r.barriers {
			one.endSession(id)
		}
		maps.DeleteFunc(r.gang.running, func(_ string, c commandOf) bool { return c.session == id })
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
	case p.is("joined", "*") && op.Type == zkmodel.OpCreate:
		if r.joined++; r.joined != len(r.ids) {
			return fmt.Errorf("%d workers are counted, and %d have ids", r.joined, len(r.ids))
		}
	case p.is("id", "*", "*"):
		return r.values.apply(s, r, op, p)
	case p.is("end", "*"):
		return b.applyEnd(s, op, p)
	case p.is("attempt"):
		return b.applyAttempt(s, op, p)
	case len(p.parts) > 1 && p.parts[0] == "barrier":
		if r.gang.isOver(op, p) { // of an attempt that is over: it is cleared
			return nil
		}
		err := b.applyBarrier(s, op, p)
		if err == nil {
			err = b.meets(s, op, p)
		}
		if err == nil {
			err = b.applyFinished(p)
		}
		return err
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

// barrier is one name.
type barrier struct {
	floor    int
	attempts map[string]*attempt // by the name of the folder
	ofGang   bool                // its rounds are the ends of attempts
}

// attempt is an attempt at a round, of which nothing is forgotten when it is cleared.
type attempt struct {
	name          string
	round, number int
	state         znode.Round
	arrived       map[int]bool  // ids that have ever arrived
	here          map[int]int64 // live arrivals, and their sessions
	most          int           // live arrivals at one instant
	told          map[int]bool  // ids that arrived after an abort, to say that they know of it
	released      bool
	aborted       bool
	cleared       bool // or being cleared
	ofGang        bool // it is the end of an attempt of a gang: an abort names nobody
}

func (b *barrier) endSession(id int64) {
	for _, a := range b.attempts {
		for worker, session := range a.here {
			if session == id {
				delete(a.here, worker)
			}
		}
	}
}

// releasedRound reports whether an attempt at a round was released.
func (b *barrier) releasedRound(round int) bool {
	for _, a := range b.attempts {
		if a.round == round && a.released {
			return true
		}
	}
	return false
}

// skipped reports whether a round is below the floor, and nobody has ever arrived at it: that counts as released.
func (b *barrier) skipped(round int) bool {
	for _, a := range b.attempts {
		if a.round == round && len(a.arrived) > 0 {
			return false
		}
	}
	return round < b.floor
}

// applyBarrier notes what is written below barrier/<name>.
func (b *book) applyBarrier(s step, op zkmodel.Op, p place) error {
	r, name := b.run(p.g), p.parts[1]
	one := r.barriers[name]
	if one == nil {
		one = &barrier{attempts: map[string]*attempt{}, ofGang: name == znode.FinishBarrier}
		r.barriers[name] = one
	}
	if b.ended(p.g) {
		return nil // it is swept
	}
	var err error
	switch {
	case len(p.parts) == 2:
		err = one.applyFloor(op)
	case p.is("barrier", "*", "*"):
		err = one.applyFolder(op, p.parts[2])
	case one.attempts[p.parts[2]] == nil:
		err = fmt.Errorf("nobody made %s", p.parts[2])
	case p.is("barrier", "*", "*", "st"):
		err = one.attempts[p.parts[2]].applyState(one, op)
	case p.is("barrier", "*", "*", "a", "*"):
		err = one.attempts[p.parts[2]].applyArrival(one, s, op, p.parts[4])
	case p.is("barrier", "*", "*", "c", "*"):
		err = one.attempts[p.parts[2]].applyCount(one, op, p.parts[4])
	}
	if err != nil {
		return fmt.Errorf("barrier %s: %w", name, err)
	}
	return nil
}

func (b *barrier) applyFloor(op zkmodel.Op) error {
	if op.Type == zkmodel.OpDelete {
		return nil
	}
	floor, err := znode.DecodeFloor(op.Data)
	if err == nil && floor < b.floor {
		err = fmt.Errorf("the floor falls from %d to %d", b.floor, floor)
	}
	b.floor = floor
	return err
}

// applyFolder checks that no round is made below the floor or after its release, and no attempt before the one before
// it was aborted.
func (b *barrier) applyFolder(op zkmodel.Op, name string) error {
	if op.Type != zkmodel.OpCreate {
		return nil
	}
	round, number, err := znode.ParseAttempt(name)
	if err != nil {
		return err
	}
	before := b.attempts[znode.AttemptName(round, number-1)]
	switch {
	case round < b.floor:
		return fmt.Errorf("%s is made below the floor, which is %d", name, b.floor)
	case b.releasedRound(round):
		return fmt.Errorf("%s is made after round %d was released", name, round)
	case number > 1 && (before == nil || !before.aborted):
		return fmt.Errorf("%s is made before attempt %d was aborted", name, number-1)
	}
	b.attempts[name] = &attempt{
		name: name, round: round, number: number, ofGang: b.ofGang,
		arrived: map[int]bool{}, here: map[int]int64{}, told: map[int]bool{},
	}
	return nil
}

// applyState notes an abort: those whom it names are those who have not arrived.
func (a *attempt) applyState(b *barrier, op zkmodel.Op) error {
	if op.Type == zkmodel.OpDelete {
		if !a.cleared && len(a.arrived) > 0 && a.round >= b.floor {
			return fmt.Errorf("%s is cleared, and the floor is %d", a.name, b.floor)
		}
		if len(a.arrived) > 0 && !a.released && !b.releasedRound(a.round) {
			return fmt.Errorf("the state of %s is cleared, and it was not released", a.name)
		}
		a.cleared = true
		return nil
	}
	st, err := znode.Decode[znode.Round](op.Data)
	if err != nil || op.Type == zkmodel.OpCreate {
		a.state = st
		return err
	}
	if a.released || a.aborted {
		return fmt.Errorf("%s is aborted, and was decided before", a.name)
	}
	if missing := a.missing(); !st.Mode.Live() && !a.ofGang && !slices.Equal(st.Missing, missing) {
		return fmt.Errorf("%s is aborted because of %v, and %v are missing", a.name, st.Missing, missing)
	}
	a.state, a.aborted = st, true
	return nil
}

// missing are the ids that have not arrived at a durable round.
func (a *attempt) missing() []int {
	var ids []int
	for id := range a.state.Workers {
		if !a.arrived[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// applyArrival notes who arrives.
func (a *attempt) applyArrival(b *barrier, s step, op zkmodel.Op, name string) error {
	id, err := strconv.Atoi(name)
	if err != nil {
		return err
	}
	if op.Type == zkmodel.OpDelete {
		delete(a.here, id)
		if !a.released && !a.aborted && (s.who == nil || s.who.id != id) {
			return fmt.Errorf("the arrival of %d at %s is deleted, and that is undecided", id, a.name)
		}
		return nil
	}
	if s.who != nil && s.who.id != id {
		return fmt.Errorf("worker %d arrives at %s as %d", s.who.id, a.name, id)
	}
	if a.aborted {
		a.told[id] = true
		return nil
	}
	a.arrived[id] = true
	if a.state.Mode.Live() {
		a.here[id] = s.Session
		a.most = max(a.most, len(a.here))
	}
	return nil
}

// applyCount notes the last arrival: T. It is the release, or the abort that was noted in the same transaction.
func (a *attempt) applyCount(b *barrier, op zkmodel.Op, name string) error {
	number, err := znode.CountNumber(name)
	if err != nil || op.Type == zkmodel.OpDelete || number != a.state.Workers-1 {
		return err
	}
	if len(op.Data) > 0 {
		if !a.aborted && !a.ofGang { // a job that is deleted keeps its gang from finishing, and nobody asks why
			return fmt.Errorf("%s is aborted without a reason", a.name)
		}
		return nil
	}
	switch here := len(a.arrived); {
	case a.aborted:
		return fmt.Errorf("%s is released, and was aborted before", a.name)
	case b.releasedRound(a.round):
		return fmt.Errorf("%s is released, and the round was released before", a.name)
	case a.state.Mode.Live() && a.most < a.state.Workers:
		return fmt.Errorf("%s is released, and at most %d were there at one instant", a.name, a.most)
	case here < a.state.Workers:
		return fmt.Errorf("%s is released, and %d have arrived", a.name, here)
	}
	a.released = true
	return nil
}

// mayWrite checks that who sends a transaction may write what it writes. The function that it returns checks the rest
// when the transaction is noted: who joins has the claim only then.
func (b *book) mayWrite(s step) (after func() error, err error) {
	for i, p := range s.places {
		if p.g == "" || s.Ops[i].Type == zkmodel.OpCheck || b.mayWriteIn(s, p.g) {
			continue
		}
		return nil, fmt.Errorf("it writes %s, and the generation has no gate", s.Ops[i].Path)
	}
	if s.who == nil || s.endsRun() || b.onlyDeletesGarbage(s) {
		return func() error { return nil }, nil
	}
	if s.who.g != "" && !b.ended(s.who.g) {
		switch {
		case s.who.member && b.run(s.who.g).holders[s.who.identity] != s.who:
			return nil, errors.New("it is fenced")
		case s.who.done, s.who.left && !s.setsClaim():
			return nil, errors.New("it has ended its membership")
		}
	}
	return func() error { return b.mustHold(s) }, nil
}

// mayWriteIn reports whether generation g can be written: it is open, or it is made now, or it has ended and is swept.
func (b *book) mayWriteIn(s step, g string) bool {
	if b.run(g).open {
		return true
	}
	makes := false
	for i, p := range s.places {
		makes = makes || p.g == g && p.is("gate") && s.Ops[i].Type == zkmodel.OpCreate
	}
	return makes || b.onlyDeletesGarbage(s)
}

// onlyDeletesGarbage reports whether all that a transaction does is to delete znodes of ended generations, of which who
// sends it is no member any more. Who has called Complete may not know that another one ended the generation first.
func (b *book) onlyDeletesGarbage(s step) bool {
	for i, p := range s.places {
		member := s.who != nil && s.who.member && s.who.g == p.g && !s.who.left && !s.who.completing
		if s.Ops[i].Type != zkmodel.OpDelete || p.g == "" || member || !b.ended(p.g) || p.is("gate") {
			return false
		}
	}
	return true
}

// endsRun reports whether a transaction ends a generation.
func (s step) endsRun() bool {
	for i, p := range s.places {
		if p.is("gate") && s.Ops[i].Type == zkmodel.OpDelete {
			return true
		}
	}
	return false
}

func (s step) setsClaim() bool {
	for i, p := range s.places {
		if p.is("by", s.who.identity) && s.Ops[i].Type == zkmodel.OpSetData {
			return true
		}
	}
	return false
}

// mustHold checks that a worker has the claim of its identity in what it has just written: the generation, the job
// znode, its live znode. Who withdraws has deleted it.
func (b *book) mustHold(s step) error {
	withdraws := false
	for i, p := range s.places {
		withdraws = withdraws || p.is("by", s.who.identity) && s.Ops[i].Type == zkmodel.OpDelete
	}
	if withdraws {
		return nil
	}
	for i, p := range s.places {
		g := p.g
		if p.job || p.record || p.identity != "" {
			if b.record == nil {
				return fmt.Errorf("it writes %s, and there is no record", s.Ops[i].Path)
			}
			g = b.record.Generation
		}
		if g == "" || s.Ops[i].Type == zkmodel.OpCheck || p.is("spare", "*") {
			continue
		}
		if b.run(g).holders[s.who.identity] != s.who {
			return fmt.Errorf("it writes %s, and has no claim there", s.Ops[i].Path)
		}
		if !b.run(g).open {
			return fmt.Errorf("it writes %s, and the generation has no gate", s.Ops[i].Path)
		}
		if p.identity != "" && p.identity != s.who.identity {
			return fmt.Errorf("it writes %s, and is %s", s.Ops[i].Path, s.who.identity)
		}
	}
	return nil
}

// applyClaim checks how a claim may change: a life is counted once, and done is final.
func (b *book) applyClaim(s step, op zkmodel.Op, p place) error {
	r, identity := b.run(p.g), p.parts[1]
	old, had := r.claims[identity]
	if op.Type == zkmodel.OpDelete && s.who != nil && identity != s.who.identity && !b.ended(p.g) {
		return r.applyReplacement(b, s, identity)
	}
	if op.Type == zkmodel.OpDelete {
		delete(r.claims, identity)
		delete(r.holders, identity)
		if s.who != nil && s.who.g == p.g && !b.ended(p.g) { // it withdraws, and may join the next generation
			s.who.g = ""
		}
		return nil
	}
	now, err := znode.Decode[znode.Claim](op.Data)
	if err != nil || s.who == nil {
		r.claims[identity] = now
		return err
	}
	switch {
	case identity != s.who.identity:
		return fmt.Errorf("it writes the claim of %s", identity)
	case had && old.State == znode.Done:
		return fmt.Errorf("it writes the claim of %s, who has completed", identity)
	case s.who.member && now.Lives != old.Lives, !s.who.member && now.Lives != old.Lives+1:
		return fmt.Errorf("it counts life %d of %s after life %d", now.Lives, identity, old.Lives)
	}
	r.claims[identity], r.holders[identity] = now, s.who
	s.who.g, s.who.left, s.who.done = p.g, now.State == znode.Left, now.State == znode.Done
	return nil
}

// applyID checks that the ids below N have no gap, or are those that claims name; that an identity has one, and that
// none of them is given up.
func (b *book) applyID(s step, op zkmodel.Op, p place) error {
	r := b.run(p.g)
	id, err := znode.IDNumber(p.parts[1])
	if err != nil {
		return err
	}
	switch op.Type {
	case zkmodel.OpDelete:
		switch {
		case id >= b.job.Workers:
			delete(r.ids, id)
		case !b.ended(p.g): // and then who had the ids is still known
			return fmt.Errorf("it deletes id %d of %d", id, b.job.Workers)
		}
	case zkmodel.OpCreate:
		for other, identity := range r.ids {
			if s.who != nil && identity == s.who.identity {
				return fmt.Errorf("%s gets id %d, and has %d", identity, id, other)
			}
		}
		if err := b.checkID(r, s.who, id); err != nil {
			return err
		}
		r.ids[id] = ""
		if s.who != nil {
			r.ids[id] = s.who.identity
		}
	case zkmodel.OpSetData:
		if s.who != nil && r.replaced[id] != "" && s.setsClaimOf(id) {
			r.ids[id] = s.who.identity
			if r.completed[r.replaced[id]] { // all had finished when it took the id
				r.completed[s.who.identity] = true
			}
			delete(r.replaced, id)
		}
		if s.who != nil && r.ids[id] != s.who.identity {
			return fmt.Errorf("it writes id %d, which %q has", id, r.ids[id])
		}
	}
	return nil
}

// checkID checks an id that is new.
func (b *book) checkID(r *run, who *life, id int) error {
	if b.job.IDs == job.ByIndex {
		if brings := r.claims[who.identity].ID; brings == nil || *brings != id || id >= b.job.Workers {
			return fmt.Errorf("%s gets id %d, and its claim says %v", who.identity, id, brings)
		}
		return nil
	}
	for before := range min(id, b.job.Workers) {
		if _, taken := r.ids[before]; !taken {
			return fmt.Errorf("it gets id %d, and nobody has %d", id, before)
		}
	}
	return nil
}

// applyEnd checks that only a worker that has called Complete is counted, and only once.
func (b *book) applyEnd(s step, op zkmodel.Op, p place) error {
	r := b.run(p.g)
	if op.Type != zkmodel.OpCreate || s.who == nil {
		return nil
	}
	switch {
	case !s.who.completing:
		return fmt.Errorf("it is counted as completed, and has not called Complete")
	case r.completed[s.who.identity]:
		return fmt.Errorf("%s is counted as completed twice", s.who.identity)
	}
	r.completed[s.who.identity] = true
	return nil
}
