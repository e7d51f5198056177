package groups

import (
	"fmt"
	"reflect"
	"time"

	"muster/dev/zkmodel"
	"muster/resource/group/schedule"
	"muster/zkstate/znode"
)

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
		attempt := fmt.Sprintf("%s %d", op.Path, r.Attempt)
		if book.began[attempt] {
			return fmt.Errorf("attempt %s begins a second time", attempt)
		}
		book.began[attempt] = true
		if err := b.ordered(step{who: b.joined[b.holder(p)]}, p.parts[1]); err != nil {
			return fmt.Errorf("a run of %s begins: %w", p.parts[1], err)
		}
	}
	if r.Final() {
		book.over[op.Path] = true
	}
	return nil
}

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
