package groups

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"muster/dev/zkmodel"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/group/schedule"
	"muster/sim"
	"muster/zkstate/znode"
)

// book follows what is in ZooKeeper, transaction by transaction, and says which of them must never have happened.
type book struct {
	w *sim.World

	record   resource.Record      // as ZooKeeper has it
	group    group.Group          // which that declares
	edits    int                  // how often it was written
	commits  int                  // of members
	seats    map[string]seated    // by path; those that exist
	joined   map[int64]string     // the seat of each session that ever took one
	held     map[string]int64     // sessions, by the path of held
	assigner znode.AssignerMemory // of the newest generation
	decided  time.Time            // when that was written
	written  int64                // its zxid
	duties   map[string]*dutyBook // by the path of the duty
	asked    map[string][]string  // ids of requests, by their folder
	asks     map[string]znode.Ask // those to the assigner, by path
	takes    map[int64]string     // duties by epoch
}

// seated is a seat, and the session that has it.
type seated struct {
	session int64
	since   int64 // its zxid
	seat    znode.Seat
}

// step is one committed transaction.
type step struct {
	*zkmodel.Txn
	who    string // its seat; "" if it never had one
	places []place
}

// place is a path below a generation.
type place struct {
	g     string
	parts []string // below run/<g>
}

func newBook(w *sim.World) *book {
	b := &book{
		w: w, seats: map[string]seated{}, joined: map[int64]string{}, held: map[string]int64{},
		duties: map[string]*dutyBook{}, asked: map[string][]string{}, takes: map[int64]string{},
		asks: map[string]znode.Ask{},
	}
	w.OnTxn(b.txn)
	return b
}

// placeOf is the place of a path; without parts if it is not below a generation.
func placeOf(path string) place {
	rest, ok := strings.CutPrefix(path, znode.RunDir(root)+"/")
	if !ok {
		return place{}
	}
	parts := strings.Split(rest, "/")
	return place{parts[0], parts[1:]}
}

// is reports whether the place is the znode of these parts; "*" is any name.
func (p place) is(parts ...string) bool {
	return len(p.parts) == len(parts) && p.below(parts...)
}

// below reports whether the place begins with these parts.
func (p place) below(parts ...string) bool {
	if len(p.parts) < len(parts) {
		return false
	}
	for i, part := range parts {
		if part != "*" && part != p.parts[i] {
			return false
		}
	}
	return true
}

// duty is the path of the duty below which the place is, or which it is.
func (p place) duty() string { return znode.Duty(root, p.g, p.parts[1]) }

func (b *book) txn(t *zkmodel.Txn) error {
	if t.Err != zkmodel.OK {
		return nil
	}
	s := step{Txn: t, who: b.joined[t.Session]}
	if s.who != "" {
		b.commits++
	}
	for _, op := range t.Ops {
		s.places = append(s.places, placeOf(op.Path))
	}
	rules := []func(step) error{
		b.gateRule, b.assignerRule, b.seatRule, b.takeRule, b.holderRule, b.checkRule, b.fateRule, b.askRule,
		b.pauseRule,
	}
	for _, rule := range rules {
		if err := rule(s); err != nil {
			return fmt.Errorf("%s (%s): %w", b.w.Who(t.Session), describe(t), err)
		}
	}
	for i, op := range t.Ops {
		if err := b.apply(s, op, s.places[i]); err != nil {
			return fmt.Errorf("%s (%s): %w", b.w.Who(t.Session), describe(t), err)
		}
	}
	if err := b.stateRule(s); err != nil {
		return fmt.Errorf("%s (%s): %w", b.w.Who(t.Session), describe(t), err)
	}
	return nil
}

// describe names the writes of a transaction.
func describe(t *zkmodel.Txn) string {
	var ops []string
	for _, op := range t.Ops {
		if op.Type != zkmodel.OpCheck {
			ops = append(ops, fmt.Sprintf("%s %s", op.Type, strings.TrimPrefix(op.Path, znode.RunDir(root))))
		}
	}
	return strings.Join(ops, ", ")
}

// apply notes what an operation has changed.
func (b *book) apply(s step, op zkmodel.Op, p place) error {
	writes := op.Type == zkmodel.OpCreate || op.Type == zkmodel.OpSetData
	if op.Type == zkmodel.OpDelete {
		delete(b.asked, op.Path) // a log goes with its duty
	}
	switch {
	case op.Type == zkmodel.OpCheck, op.Type == zkmodel.OpClose:
	case writes && op.Path == znode.Record(group.KindName, root, name):
		r, err := znode.DecodeRecordAt(group.Kind(), resource.Join(root, name), op.Data)
		b.record, b.group = r, group.Of(&r)
		b.edits++
		return err
	case p.is("seat", "*"):
		return b.applySeat(s, op, writes)
	case writes && p.is("assigner"):
		memory, err := znode.DecodeOrZero[znode.AssignerMemory](op.Data)
		b.assigner, b.decided, b.written = memory, time.Now(), s.Zxid
		return err
	case p.is("duty", "*", "held"):
		if delete(b.held, op.Path); writes {
			b.held[op.Path] = s.Session
			b.takes[s.Zxid] = p.parts[1]
		}
	case p.below("duty", "*"):
		return b.applyDuty(op, p, writes)
	}
	return nil
}

func (b *book) applySeat(s step, op zkmodel.Op, writes bool) error {
	seat, err := znode.Decode[znode.Seat](op.Data)
	if !writes || err != nil && s.who == "" { // by hand
		delete(b.seats, op.Path)
		return nil
	}
	session, since := b.seats[op.Path].session, b.seats[op.Path].since
	if op.Type == zkmodel.OpCreate {
		session, since = s.Session, s.Zxid
		b.joined[session] = op.Path
	}
	b.seats[op.Path] = seated{session, since, seat}
	return err
}

// gateRule: nothing is written in a generation without a gate, but by hand. A transaction that makes a seat is a
// member's, and one that makes a request an operator's.
func (b *book) gateRule(s step) error {
	if s.Ops[0].Type == zkmodel.OpClose {
		return nil
	}
	ours := s.who != ""
	for i, p := range s.places {
		create := s.Ops[i].Type == zkmodel.OpCreate
		ours = ours || create && (p.is("seat", "*") || p.is("ask", "*") || p.is("duty", "*", "now", "*"))
	}
	for i, p := range s.places {
		if !ours || len(p.parts) == 0 || s.Ops[i].Type == zkmodel.OpCheck {
			continue
		}
		if _, _, open := b.w.Server().Get(znode.Gate(root, p.g)); !open {
			return fmt.Errorf("it writes in a generation that is not open")
		}
	}
	return nil
}

// declares reports whether the Record is open and declares the duty.
func (b *book) declares(duty string) (d group.Duty, ok bool) {
	d, ok = b.group.Duty(duty)
	return d, ok && b.record.State == resource.StateOpen
}

// askRule: a request is written once, while its duty is declared, and the log remembers it.
func (b *book) askRule(s step) error {
	for i, p := range s.places {
		if s.Ops[i].Type != zkmodel.OpCreate || !p.is("ask", "*") && !p.is("duty", "*", "now", "*") {
			continue
		}
		var id, duty string
		if p.is("ask", "*") {
			a, err := znode.Decode[znode.Ask](s.Ops[i].Data)
			if err != nil {
				return err
			}
			id, duty = a.ID, a.Duty
			b.asks[s.Ops[i].Path] = a
		} else {
			r, err := znode.Decode[znode.TickRecord](s.Ops[i].Data)
			if err != nil {
				return err
			}
			id, duty = r.Nonce, p.parts[1]
		}
		folder := path.Dir(s.Ops[i].Path)
		if slices.Contains(b.asked[folder], id) {
			return fmt.Errorf("the request is written a second time")
		}
		b.asked[folder] = append(b.asked[folder], id)
		b.commits++
		body, _, _ := b.w.Server().Get(folder)
		if log, err := znode.DecodeOrZero[znode.AskLog](body); err != nil || !slices.Equal(log.Last, b.asked[folder]) {
			return fmt.Errorf("the log of requests is %v, and should be %v", log.Last, b.asked[folder])
		}
		if _, ok := b.declares(duty); !ok {
			return fmt.Errorf("it asks for %s, which is not declared now", duty)
		}
	}
	return nil
}

// assignerRule: only the assigner writes what is the assigner's: the member whose seat is there and is the first one.
// Seats that were passed over come last, and nobody is passed over who has written a moment ago. Who was passed over
// and takes the office again may not know of a seat that is newer than the last decision.
func (b *book) assignerRule(s step) error {
	if s.who == "" {
		return nil
	}
	for i, p := range s.places {
		if !b.isAssigners(s, s.Ops[i], p) {
			continue
		}
		if _, there := b.seats[s.who]; !there {
			return fmt.Errorf("it writes as the assigner and has no seat")
		}
		next, err := b.nextMemory(s)
		if err != nil {
			return err
		}
		passed := b.assigner.Passed
		if slices.ContainsFunc(next.Passed, func(seat string) bool { return !slices.Contains(passed, seat) }) {
			if silent := time.Since(b.decided); silent < time.Duration(b.group.Timeouts.Session) {
				return fmt.Errorf("it passes over %q, after a silence of %s", next.Passed, silent)
			}
			passed = next.Passed
		}
		late := func(seat string) bool { return slices.Contains(passed, path.Base(seat)) }
		for seat, other := range b.seats {
			first := late(s.who) && !late(seat) && other.since < b.written || late(s.who) == late(seat) && seat < s.who
			if first && znode.Decides(seat) && other.seat.Assign >= group.Assign(&b.record) {
				return fmt.Errorf("it writes as the assigner, and %s comes first", seat)
			}
		}
		if err := b.assignerMay(s.Ops[i], p); err != nil {
			return err
		}
	}
	return nil
}

// nextMemory is the assigner's memory after a transaction.
func (b *book) nextMemory(s step) (znode.AssignerMemory, error) {
	for i, p := range s.places {
		if p.is("assigner") && s.Ops[i].Type == zkmodel.OpSetData {
			return znode.DecodeOrZero[znode.AssignerMemory](s.Ops[i].Data)
		}
	}
	return b.assigner, nil
}

// decides reports whether the assigner writes its memory.
func (s step) decides() bool {
	return slices.ContainsFunc(s.places, func(p place) bool { return p.is("assigner") })
}

// isAssigners reports whether only the assigner may do this.
func (b *book) isAssigners(s step, op zkmodel.Op, p place) bool {
	switch {
	case op.Type == zkmodel.OpCheck, op.Type == zkmodel.OpClose:
	case p.is("assigner"), p.is("seat", "*"):
		return op.Type == zkmodel.OpSetData
	case p.is("resigned", "*"), p.is("ask", "*"):
		return op.Type == zkmodel.OpDelete
	case p.is("duty", "*", "cursor") && s.decides(): // it may hold the duty too
		return true
	case p.below("duty", "*"):
		return b.holder(p) != s.Session && (op.Type == zkmodel.OpDelete || p.is("duty", "*", "cursor"))
	}
	return false
}

// holder is the session that holds the duty of a place; 0 if nobody does.
func (b *book) holder(p place) int64 { return b.held[znode.Held(root, p.g, p.parts[1])] }

// assignerMay says why the assigner must not do this.
func (b *book) assignerMay(op zkmodel.Op, p place) error {
	switch {
	case p.is("assigner"):
		memory, err := znode.DecodeOrZero[znode.AssignerMemory](op.Data)
		if err != nil {
			return err
		}
		for _, d := range memory.Purge {
			if _, declared := b.group.Duty(d); declared && !slices.Contains(b.assigner.Purge, d) {
				return fmt.Errorf("it begins to delete %s, which is declared", d)
			}
		}
	case p.is("duty", "*", "cursor") && op.Type == zkmodel.OpSetData:
		if b.assigner.Paused[p.parts[1]] == "" {
			return fmt.Errorf("it forgets ticks of %s, which was not paused", p.parts[1])
		}
	case p.below("duty", "*") && op.Type == zkmodel.OpDelete:
		switch d := p.parts[1]; {
		case !slices.Contains(b.assigner.Purge, d):
			return fmt.Errorf("it deletes what %s has saved, and did not say so before", d)
		case b.holder(p) != 0:
			return fmt.Errorf("it deletes what %s has saved, which somebody holds", d)
		}
	}
	return nil
}

// pauseRule: a declared duty is paused and resumed only in the transaction that answers who asked for that, so what an
// operator asked for is not lost.
func (b *book) pauseRule(s step) error {
	answered := map[string]bool{}
	next, err := b.nextMemory(s)
	if err != nil {
		return err
	}
	for i, p := range s.places {
		if p.is("ask", "*") && s.Ops[i].Type == zkmodel.OpDelete {
			answered[b.asks[s.Ops[i].Path].Duty] = true
		}
	}
	for _, d := range b.group.Duties {
		if (b.assigner.Paused[d.Name] == "") != (next.Paused[d.Name] == "") && !answered[d.Name] {
			return fmt.Errorf("it pauses or resumes %s, and nobody asked for that", d.Name)
		}
	}
	return nil
}

// seatRule: what a transaction gives to members is declared, and fits their versions. After it no duty is in two seats,
// nor in one while what it has saved is being deleted.
func (b *book) seatRule(s step) error {
	now := map[string]znode.Seat{} // seats that it writes
	for i, p := range s.places {
		if p.is("seat", "*") && s.Ops[i].Type == zkmodel.OpSetData {
			seat, err := znode.Decode[znode.Seat](s.Ops[i].Data)
			if err != nil && s.who == "" {
				return nil // by hand
			}
			if err != nil {
				return err
			}
			now[s.Ops[i].Path] = seat
		}
	}
	in := map[string]string{}
	for path, old := range b.seats {
		seat, set := now[path]
		if !set {
			seat = old.seat
		}
		for _, d := range seat.Duties {
			if in[d] != "" {
				return fmt.Errorf("%s is in the seats %s and %s", d, in[d], path)
			}
			in[d] = path
			if !slices.Contains(old.seat.Duties, d) {
				if err := b.mayGive(d, old.seat.Identity); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *book) mayGive(duty, identity string) error {
	d, ok := b.declares(duty)
	switch {
	case !ok:
		return fmt.Errorf("it gives %s to %s, and it is not declared now", duty, identity)
	case slices.Contains(b.assigner.Purge, duty):
		return fmt.Errorf("it gives %s to %s, and what it saved is being deleted", duty, identity)
	}
	body, _, there := b.w.Server().Get(znode.Live(root, name, identity))
	if p, err := znode.Decode[znode.Present](body); there && err == nil && !d.Fits(p.Version) {
		return fmt.Errorf("it gives %s to %s, which has version %s", duty, identity, p.Version)
	}
	return nil
}

// takeRule: a member takes a duty only while its seat names it, and the Record declares it.
func (b *book) takeRule(s step) error {
	for i, p := range s.places {
		switch {
		case s.Ops[i].Type != zkmodel.OpCreate:
		case p.is("duty", "*", "held"):
			if err := b.ordered(s, p.parts[1]); err != nil {
				return fmt.Errorf("it takes %s: %w", p.parts[1], err)
			}
			if slices.Contains(b.assigner.Purge, p.parts[1]) {
				return fmt.Errorf("it takes %s, and what that saved is being deleted", p.parts[1])
			}
		case p.is("resigned", "*"):
			r, err := znode.Decode[znode.Resignation](s.Ops[i].Data)
			if err != nil {
				return err
			}
			if _, there := b.seats[s.who]; !there {
				return fmt.Errorf("it resigns from %s and has no seat", r.Duty)
			}
		}
	}
	return nil
}

// ordered says why a member must not begin with a duty now.
func (b *book) ordered(s step, duty string) error {
	seat, there := b.seats[s.who]
	if !there || !slices.Contains(seat.seat.Duties, duty) {
		return fmt.Errorf("its seat does not name it")
	}
	if _, ok := b.declares(duty); !ok {
		return fmt.Errorf("it is not declared now")
	}
	return nil
}

// dutyBook is what was written below a duty.
type dutyBook struct {
	cursor  time.Time
	digest  string                      // of its schedule
	records map[string]znode.TickRecord // by path; those that exist
	claimed map[string]bool             // paths of ticks and requests that ever began
	began   map[string]bool             // attempts that ever began, by path and number
	steps   map[string]znode.StepRecord // by path, also of those that are deleted
	asked   map[string]int              // how often the Record was written before a run was claimed or asked for, by path
	over    map[string]bool             // paths of ticks and requests that are over
}

// book is the book of the duty of a place.
func (b *book) book(p place) *dutyBook {
	d := b.duties[p.duty()]
	if d == nil {
		d = &dutyBook{
			records: map[string]znode.TickRecord{}, claimed: map[string]bool{}, began: map[string]bool{},
			steps: map[string]znode.StepRecord{}, over: map[string]bool{},
			asked: map[string]int{},
		}
		b.duties[p.duty()] = d
	}
	return d
}

// holderRule: below a duty only its holder writes, besides the assigner and those who ask for a run. By hand is not a
// member.
func (b *book) holderRule(s step) error {
	takes := false
	for i, p := range s.places {
		takes = takes || p.is("duty", "*", "held") && s.Ops[i].Type == zkmodel.OpCreate
	}
	if s.who == "" || takes || s.Ops[0].Type == zkmodel.OpClose {
		return nil
	}
	for i, p := range s.places {
		if op := s.Ops[i]; p.below("duty", "*") && op.Type != zkmodel.OpCheck && !b.isAssigners(s, op, p) {
			if b.holder(p) != s.Session {
				return fmt.Errorf("it writes as the holder of %s, and is not", p.parts[1])
			}
		}
	}
	return nil
}

// checkRule: only the holder is told that it holds the duty, and only in a generation that is open.
func (b *book) checkRule(s step) error {
	for i, p := range s.places {
		if s.Ops[i].Type != zkmodel.OpCheck {
			return nil
		}
		_, _, open := b.w.Server().Get(znode.Gate(root, p.g))
		if p.is("duty", "*", "held") && (!open || b.holder(p) != s.Session) {
			return fmt.Errorf("it is told that it holds %s, and does not", p.parts[1])
		}
	}
	return nil
}

// applyDuty notes a write below a duty.
func (b *book) applyDuty(op zkmodel.Op, p place, writes bool) error {
	switch {
	case p.is("duty", "*"):
		if !writes {
			delete(b.duties, op.Path)
		}
	case writes && p.is("duty", "*", "cursor"):
		return b.applyCursor(op, p)
	case p.is("duty", "*", "tick", "*"), p.is("duty", "*", "now", "*"):
		return b.applyTick(op, p, writes)
	case writes && p.is("duty", "*", "op", "*", "*", "*"):
		return b.applyStep(op, p)
	}
	return nil
}

// applyCursor: the cursor never goes back, and always has the digest of the declared schedule.
func (b *book) applyCursor(op zkmodel.Op, p place) error {
	c, err := znode.Decode[znode.TickCursor](op.Data)
	if err != nil {
		return err
	}
	book := b.book(p)
	if c.Tick.Before(book.cursor) {
		return fmt.Errorf("the cursor goes back from %s to %s", book.cursor, c.Tick)
	}
	book.cursor, book.digest = c.Tick, c.Digest
	if d, ok := b.declares(p.parts[1]); ok && d.Schedule != "" {
		if sched, err := schedule.Parse(d.Schedule, d.Timezone); err == nil && sched.Digest() != c.Digest {
			return fmt.Errorf("the cursor follows another schedule than the declared one")
		}
	}
	return nil
}

// applyTick: a tick has one fate, each attempt begins once, and what is over stays as it is.
func (b *book) applyTick(op zkmodel.Op, p place, writes bool) error {
	book := b.book(p)
	old, there := book.records[op.Path]
	if !writes {
		delete(book.records, op.Path)
		if _, ok := b.declares(p.parts[1]); ok && there && !old.Final() && book.asked[op.Path] == b.edits {
			return fmt.Errorf("a run is deleted that is not over: %s", op.Path)
		}
		return nil
	}
	r, err := znode.Decode[znode.TickRecord](op.Data)
	if err != nil {
		return err
	}
	book.records[op.Path] = r
	if op.Type == zkmodel.OpCreate {
		if book.claimed[op.Path] {
			return fmt.Errorf("it claims %s a second time", op.Path)
		}
		book.claimed[op.Path], book.asked[op.Path] = true, b.edits
	}
	if there && old.Final() {
		return fmt.Errorf("it changes a run that is over: %s", op.Path)
	}
	if r.State == znode.TickRunning {
		one := attempt(op.Path, r.Attempt)
		if book.began[one] {
			return fmt.Errorf("attempt %s begins a second time", one)
		}
		book.began[one] = true
		if err := b.ordered(step{who: b.joined[b.holder(p)]}, p.parts[1]); err != nil {
			return fmt.Errorf("a run of %s begins: %w", p.parts[1], err)
		}
	}
	if r.Final() {
		book.over[op.Path] = true
	}
	return nil
}

// attempt names an attempt of the run that is recorded at a path.
func attempt(path string, number int) string { return fmt.Sprint(path, " ", number) }

// applyStep: a step that is done is never begun or done again.
func (b *book) applyStep(op zkmodel.Op, p place) error {
	r, err := znode.Decode[znode.StepRecord](op.Data)
	if err != nil {
		return err
	}
	book := b.book(p)
	if old := book.steps[op.Path]; old.Done && !reflect.DeepEqual(old, r) { // after a lost reply it is written again
		return fmt.Errorf("the step %s is done, and is written again", r.Name)
	}
	book.steps[op.Path] = r
	return nil
}

// stateRule: the folder of state counts the bytes of its keys, and the journal of an operation its steps.
func (b *book) stateRule(s step) error {
	for i, p := range s.places {
		if s.Ops[i].Type == zkmodel.OpCheck || len(p.parts) < 4 || p.parts[0] != "duty" {
			continue
		}
		var err error
		switch {
		case p.is("duty", "*", "state", "*") && !b.isAssigners(s, s.Ops[i], p):
			err = b.counted(znode.States(root, p.g, p.parts[1]))
		case p.parts[2] == "op" && len(p.parts) >= 5:
			err = b.journal(znode.Steps(root, p.g, p.parts[1], p.parts[3], p.parts[4]))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// counted says what is wrong with the count of a folder of saved state.
func (b *book) counted(folder string) error {
	body, _, _ := b.w.Server().Get(folder)
	sum, is := int64(0), znode.DecodeStateTotal(body).Bytes
	for _, key := range b.w.Server().Children(folder) {
		body, _, _ := b.w.Server().Get(folder + "/" + key)
		v, err := znode.DecodeSaved(body)
		if err != nil {
			return err
		}
		sum += int64(len(v.Data))
	}
	if is != sum {
		return fmt.Errorf("%s says %d bytes, and the keys have %d", folder, is, sum)
	}
	return nil
}

// journal says what is wrong with the counts of an operation.
func (b *book) journal(at string) error {
	body, _, there := b.w.Server().Get(at)
	if !there {
		return nil
	}
	j, err := znode.Decode[znode.Journal](body)
	if err != nil {
		return err
	}
	var is znode.Journal
	for _, key := range b.w.Server().Children(at) {
		body, _, _ := b.w.Server().Get(at + "/" + key)
		r, err := znode.Decode[znode.StepRecord](body)
		if err != nil {
			return err
		}
		is.Steps++
		if r.Done {
			is.Done++
			is.Bytes += len(r.Output)
		}
	}
	if j != is {
		return fmt.Errorf("%s: the journal says %+v, and there are %+v", at, j, is)
	}
	return nil
}

// fate is a run, or a range of ticks that do not run.
type fate struct{ first, last time.Time }

// fateRule: a holder that moves the cursor gives each tick that it passes one fate, in the same transaction.
func (b *book) fateRule(s step) error {
	for i, p := range s.places {
		if !p.is("duty", "*", "cursor") || s.Ops[i].Type != zkmodel.OpSetData || b.isAssigners(s, s.Ops[i], p) {
			continue
		}
		c, err := znode.Decode[znode.TickCursor](s.Ops[i].Data)
		if err != nil {
			return err
		}
		d, declared := b.declares(p.parts[1])
		sched, err := schedule.Parse(d.Schedule, d.Timezone)
		if !declared || err != nil || c.Digest != sched.Digest() || c.Digest != b.book(p).digest {
			continue // it begins anew with an edited schedule
		}
		fates, err := fatesOf(s)
		if err != nil {
			return err
		}
		for _, f := range fates {
			if !f.first.After(b.book(p).cursor) {
				return fmt.Errorf("the tick of %s had a fate before: the cursor had passed it", f.first)
			}
		}
		for tick, ok := sched.Next(b.book(p).cursor); ok && !tick.After(c.Tick); tick, ok = sched.Next(tick) {
			n := 0
			for _, f := range fates {
				if !tick.Before(f.first) && !tick.After(f.last) {
					n++
				}
			}
			if n != 1 {
				return fmt.Errorf("the tick of %s gets %d fates", tick, n)
			}
		}
	}
	return nil
}

// fatesOf are the fates of ticks that a transaction writes first.
func fatesOf(s step) (fates []fate, err error) {
	for i, p := range s.places {
		if !p.is("duty", "*", "tick", "*") || s.Ops[i].Type != zkmodel.OpCreate {
			continue
		}
		r, err := znode.Decode[znode.TickRecord](s.Ops[i].Data)
		if err != nil {
			return nil, err
		}
		f := fate{r.First, r.Last}
		if !r.Range() {
			if f.first, err = znode.TickTime(p.parts[3]); err != nil {
				return nil, err
			}
			f.last = f.first
		}
		fates = append(fates, f)
	}
	return fates, nil
}
