package groups

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"muster/dev/zkmodel"
	"muster/resource"
	"muster/resource/group"
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
		memory, err := znode.DecodeAssigner(op.Data)
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
		if log, err := znode.DecodeAskLog(body); err != nil || !slices.Equal(log.Last, b.asked[folder]) {
			return fmt.Errorf("the log of requests is %v, and should be %v", log.Last, b.asked[folder])
		}
		if _, ok := b.declares(duty); !ok {
			return fmt.Errorf("it asks for %s, which is not declared now", duty)
		}
	}
	return nil
}
