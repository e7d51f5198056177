package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/resource"
	"muster/resource/group"
	"muster/zkstate"
	"muster/zkstate/seat"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The assigner decides who has which duty. It is the member with the smallest seat of those whose software knows how
// the Record wants duties to be assigned. The others watch the nearest such seat before theirs, and the one before
// that: so the next one knows that it is next, and looks whether the assigner is silent.
//
// Each decision is one transaction, or several if it is large, that writes:
//
//	run/<g>/assigner        set: its memory
//	run/<g>/seat/s-<10>  set: each seat that gets or loses a duty, and each whose member resigned
//	run/<g>/resigned/…   deleted: what was decided upon
//	run/<g>/ask/…        deleted: as above
//
// It checks the gate, the Record and the assigner's own seat, and sets its memory and the seats, at the versions read.
// So what an assigner writes follows from all that was written before: one that was frozen while another one took over
// writes nothing. An assigner that dies leaves what it has committed; the next one reads everything again.

// assignVersion is the newest method of assignment that this software knows. There is one yet, and nothing writes its
// number. To add a second: let Store.record (zkstate/transaction.go) write the number into the Record of a group that
// wants it, which takes a setter in resource/group; give roster.Assign the number, which still knows the first; and let
// this number rise.
const assignVersion = 1

// assigner waits until this member is the assigner, and then works until the membership ends, or until the Record wants
// another method.
func (m *Member) assigner() {
	for m.ctx.Err() == nil {
		o := m.orders()
		if o.seat < 0 { // its own seat was not read yet, so it knows nothing of ZooKeeper's time
			select {
			case <-o.changed:
			case <-m.ctx.Done():
			}
			continue
		}
		err := m.assignerOrNot(m.ctx, o.assign)
		if err != nil && !errors.Is(err, errAgain) && !errors.Is(err, zkconn.ErrUnknown) {
			m.seat.End(m.removed(err)) // without effect if it has ended
			return
		}
	}
}

// assignerOrNot works as the assigner, or waits until this member may be it.
func (m *Member) assignerOrNot(ctx context.Context, assign int) error {
	at, err := m.place(ctx, assign)
	if err != nil {
		return err
	}
	var silent *silence
	if at.before != "" || m.knows < assign {
		m.emit(Event{Kind: EventAssignerEnded})
		var mine bool
		if mine, silent, err = m.awaitEnd(ctx, at, assign); !mine {
			return err
		}
	}
	m.emit(Event{Kind: EventAssigner})
	return m.serve(ctx, assign, at, silent)
}

// place is where a member stands among those that may be the assigner. Seats that were passed over come last.
type place struct {
	before  string // the nearest seat before it whose member can be the assigner; "": there is none
	earlier string // the nearest such seat before that one; "": that one's member is the assigner
	passed  bool   // its own seat was passed over
	memory  int32  // the version of the assigner's memory
}

// place reads the memory before the seats: a seat that its own one was passed over for is then among them.
func (m *Member) place(ctx context.Context, assign int) (at place, err error) {
	body, stat, err := m.session.Get(ctx, znode.Assigner(m.root, m.Generation))
	if err != nil {
		return at, err
	}
	names, _, err := m.session.Children(ctx, znode.Seats(m.root, m.Generation))
	if err != nil {
		return at, err
	}
	memory, _ := znode.Decode[znode.AssignerMemory](body) // of what cannot be decoded nobody knows anything
	queue := seat.InOrder(names)
	slices.SortStableFunc(queue, func(a, b string) int {
		return cmp.Compare(rank(!slices.Contains(memory.Passed, a)), rank(!slices.Contains(memory.Passed, b)))
	})
	own := slices.Index(queue, m.seat.Name())
	if own < 0 {
		return at, errAgain // the watch of the seat tells
	}
	at.memory = stat.Version
	at.passed = slices.Contains(memory.Passed, m.seat.Name())
	for _, name := range slices.Backward(queue[:own]) {
		body, _, err := m.session.Get(ctx, znode.SeatAt(m.root, m.Generation, name))
		if errors.Is(err, zkconn.ErrNoNode) {
			continue
		}
		if err != nil {
			return at, err
		}
		seat, err := znode.Decode[znode.Seat](body)
		switch {
		case err != nil || seat.Assign < assign:
		case at.before == "":
			at.before = name
		default:
			at.earlier = name
			return at, nil
		}
	}
	return at, nil
}

// awaitEnd waits until a seat is gone that decides about this member's place, until the Record wants another method
// than this, or until the assigner is silent. mine says that this member has to take its office: it had the next seat.
func (m *Member) awaitEnd(ctx context.Context, at place, assign int) (mine bool, _ *silence, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var silent chan *silence
	next := at.before != "" && at.earlier == "" && m.knows >= assign
	if next {
		silent = make(chan *silence, 1)
		m.seat.Go(func() { silent <- m.awaitSilence(ctx, at.before) })
	}
	seats, events := []string{at.before, at.earlier}, make([]<-chan struct{}, 2)
	for {
		for i, seat := range seats {
			if seat == "" || !happened(events[i]) {
				continue
			}
			var there bool
			_, there, events[i], err = m.session.ExistsW(ctx, znode.SeatAt(m.root, m.Generation, seat))
			if err != nil || !there {
				return next && err == nil && !at.passed, nil, err
			}
		}
		o := m.orders()
		if o.assign != assign {
			return false, nil, nil
		}
		select {
		case <-events[0]:
		case <-events[1]:
		case <-o.changed:
		case s := <-silent:
			return s != nil, s, nil
		case <-ctx.Done():
			return false, nil, context.Cause(ctx)
		}
	}
}

// happened reports whether there was an event, or nobody waits for one: a channel stays until its event, so it must not
// be replaced before.
func happened(event <-chan struct{}) bool {
	return event == nil || zkconn.Closed(event)
}

// office is what the assigner knows. Only its own goroutine uses it.
type office struct {
	m       *Member
	folders [3]folder          // seats, resigned, ask
	seats   map[string]*seated // by the name of the seat
	names   map[int32]string   // of the seats, by number
	wake    chan struct{}      // something has happened that is none of the other events

	memory   znode.AssignerMemory
	stat     zkconn.Stat // of its znode
	resigned map[string]znode.Resignation
	asks     map[string]znode.Ask
	stuck    map[string]bool // inbox entries that cannot be deleted
	also     []zkconn.Op     // what the decision writes besides

	tidied int32                      // the version of the Record for which purge has looked for trees; -1: for none
	held   map[string]<-chan struct{} // duties that are not declared and held: events of held
	kept   map[string]bool            // trees that cannot be deleted

	over *silence // why it takes the office from another; nil: it does not, or has done so

	moreTrees bool // purge has found more than it names

	posts   map[string]post   // by duty: those that are given
	untaken map[string]string // seats by duty: those that the next decision takes away

	zkTime time.Time // ZooKeeper's time at the assigner's last write, or what its member knows of it
	wrote  time.Time // that time here
}

// folder is a folder whose children the assigner reads again after each event.
type folder struct {
	dir   string
	names []string
	event <-chan struct{}

	changed int64 // zxid of when a child was created or deleted last
}

type seated struct {
	seat    znode.Seat
	version int32
	created time.Time       // by ZooKeeper's clock
	present *znode.Present  // nil: not live
	ready   <-chan struct{} // closed when a member changes that is not ready
}

func (m *Member) newOffice() *office {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &office{
		zkTime: m.zkTime, wrote: m.seen,
		m: m, seats: map[string]*seated{}, wake: make(chan struct{}, 1), stuck: map[string]bool{}, tidied: -1,
		held: map[string]<-chan struct{}{}, kept: map[string]bool{},
		folders: [3]folder{
			{dir: znode.Seats(m.root, m.Generation)}, {dir: znode.Resigned(m.root, m.Generation)},
			{dir: znode.Asks(m.root, m.Generation)},
		},
	}
}

// serve is the assigner's work, as long as the Record wants this method.
func (m *Member) serve(ctx context.Context, assign int, at place, over *silence) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what waits for members to become ready
	f := m.newOffice()
	if f.over, f.stat.Version = over, at.memory; over != nil {
		f.stat.Version = over.version
	}
	for {
		o := m.orders()
		if o.assign != assign {
			return nil
		}
		next, err := f.work(ctx, o)
		switch {
		case errors.Is(err, errPassed):
			return nil
		case zkconn.RefusedAt(err, m.seat.RecordPath(), zkconn.ErrBadVersion): // wait until it was read
			next = damageCheck
		case errors.Is(err, errAgain):
			continue
		case err != nil:
			return err
		}
		if err := f.await(ctx, o, next); err != nil {
			return err
		}
	}
}

// work reads, decides and deletes once. next is when that must be done again, though nothing happens; 0 is never.
func (f *office) work(ctx context.Context, o orders) (next time.Duration, err error) {
	if o.stop {
		f.posts = nil // nobody takes anything then
	}
	if err := f.read(ctx); err != nil || o.stop {
		return 0, err
	}
	if next, err = f.decide(ctx, o); err != nil {
		return 0, err
	}
	look, err := f.findUntaken(ctx, o.group)
	if err != nil {
		return 0, err
	}
	if look > 0 && (next == 0 || look < next) {
		next = look
	}
	return next, f.purge(ctx, o)
}

// await waits for an event, or for next if that is not 0.
func (f *office) await(ctx context.Context, o orders, next time.Duration) error {
	var timer <-chan time.Time
	if next > 0 {
		timer = time.After(next)
	}
	select {
	case <-f.folders[0].event:
	case <-f.folders[1].event:
	case <-f.folders[2].event:
	case <-f.wake:
	case <-o.changed:
	case <-timer:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// now is ZooKeeper's time.
func (f *office) now() time.Time { return f.zkTime.Add(time.Since(f.wrote)) }

// An assigner sets its memory after every change of the Record, of the seats and of the inboxes, also if nothing
// follows from it. So everybody sees whether it has decided. If it has not for a session timeout, the member with the
// next seat passes it over: it takes the office in a transaction that names that seat in the memory, at the version at
// which it saw the silence. From then on the other one counts as the last of all, so it does not take the office back:
// it gets it again only when nobody is left who was not passed over, or was silent after it. An assigner that wakes up
// writes nothing: the memory has another version, so it looks for its place again, and finds its seat there.

// maxPassed is how many seats that were passed over the assigner remembers: each takes a silence of its own.
const maxPassed = 100

// errPassed means that this member may not be the assigner any more, or not yet.
var errPassed = errors.New("somebody else has written as the assigner")

// silence is what is known of an assigner that does not decide.
type silence struct {
	seat    string
	version int32 // of the assigner's memory
}

// awaitSilence waits until the assigner with this seat has not decided for a session timeout. It returns nil when ctx
// ends.
func (m *Member) awaitSilence(ctx context.Context, seat string) *silence {
	f, noted := m.newOffice(), int64(0)
	for ctx.Err() == nil {
		o := m.orders()
		_, err := f.readFolders(ctx)
		switch {
		case err != nil: // nobody can tell
			noted = 0
		case o.stop || !f.undecided(o):
			noted = 0
			if f.await(ctx, o, 0) != nil {
				return nil
			}
		case noted > f.stat.Mzxid:
			return &silence{seat, f.stat.Version}
		default:
			noted = f.changed(o)
		}
		zkconn.Pause(ctx, time.Duration(o.group.Timeouts.Session))
	}
	return nil
}

// changed is the zxid of the last change that an assigner has to look at.
func (f *office) changed(o orders) int64 {
	return max(o.edited, f.folders[0].changed, f.folders[1].changed, f.folders[2].changed)
}

// undecided reports whether no assigner has written since the last change.
func (f *office) undecided(o orders) bool { return f.changed(o) > f.stat.Mzxid }

// takeOffice notes in the memory who was passed over for this member, and forgets itself and the seats that are gone.
func (f *office) takeOffice() {
	f.memory.Passed = slices.DeleteFunc(slices.Clone(f.memory.Passed), func(seat string) bool {
		n, err := znode.SeatNumber(seat)
		return err != nil || f.names[n] != seat || seat == f.m.seat.Name()
	})
	if f.over != nil {
		f.memory.Passed = append(f.memory.Passed, f.over.seat)
		slices.Sort(f.memory.Passed)
	}
	f.memory.Passed = f.memory.Passed[max(0, len(f.memory.Passed)-maxPassed):]
}

// tookOffice is called when the memory was written.
func (f *office) tookOffice() {
	if f.over != nil {
		text := f.over.seat
		if s := f.seats[f.over.seat]; s != nil {
			text = s.seat.Identity
		}
		f.m.emit(Event{Kind: EventPassedOver, Text: text + " had decided nothing for a session timeout"})
	}
	f.over = nil
}

// maxEntries is how many entries of each inbox one decision takes. Each of them changes at most two seats, so that all
// that a decision answers fits into one transaction.
const maxEntries = 100

// read reads the seats, the assigner's memory and its inboxes. It returns errPassed if the memory is not as this
// assigner has left it, or as its place followed from it.
func (f *office) read(ctx context.Context) error {
	was := f.stat.Version
	body, err := f.readFolders(ctx)
	if err != nil {
		return err
	}
	if f.stat.Version != was {
		return errPassed
	}
	if err := f.readSeats(ctx, f.folders[0].names); err != nil {
		return err
	}
	if f.resigned, err = readInbox(ctx, f, f.folders[1], znode.Decode[znode.Resignation]); err != nil {
		return err
	}
	if f.asks, err = readInbox(ctx, f, f.folders[2], znode.Decode[znode.Ask]); err != nil {
		return err
	}
	if f.memory, err = znode.DecodeOrZero[znode.AssignerMemory](body); err != nil {
		f.memory = znode.AssignerMemory{} // somebody wrote it by hand; an assigner can begin with nothing
	}
	return nil
}

// readFolders reads the folders and the assigner's memory, which it returns.
func (f *office) readFolders(ctx context.Context) (body []byte, err error) {
	reading, rctx := errgroup.WithContext(ctx)
	for i := range f.folders {
		reading.Go(func() error { return f.folders[i].read(rctx, f.m.session) })
	}
	reading.Go(func() (err error) {
		body, f.stat, err = f.m.session.Get(rctx, znode.Assigner(f.m.root, f.m.Generation))
		return err
	})
	return body, reading.Wait()
}

// read reads the children, unless nothing has happened since.
func (d *folder) read(ctx context.Context, s *zkconn.Session) (err error) {
	if happened(d.event) {
		var stat zkconn.Stat
		d.names, stat, d.event, err = s.ChildrenW(ctx, d.dir)
		d.changed = stat.Pzxid
	}
	return err
}

// readInbox reads the oldest entries of an inbox, by path. It deletes those that cannot be read.
func readInbox[T any](
	ctx context.Context, f *office, inbox folder, decode func([]byte) (T, error),
) (map[string]T, error) {
	var paths []string
	for _, name := range inbox.names {
		path := resource.Join(inbox.dir, name)
		if !f.stuck[path] && len(paths) < maxEntries {
			paths = append(paths, path)
		}
	}
	type result struct {
		body []byte
		stat zkconn.Stat
		err  error
	}
	results, err := zkstate.ForEach(ctx, paths, func(ctx context.Context, path string) (result, error) {
		body, stat, err := f.m.session.Get(ctx, path)
		return result{body, stat, err}, nil
	})
	if err != nil {
		return nil, err
	}
	all := map[string]T{}
	for i, r := range results {
		entry, broken := decode(r.body)
		switch {
		case errors.Is(r.err, zkconn.ErrNoNode): // deleted since the inbox was listed
		case r.err != nil && !errors.Is(r.err, zkconn.ErrNoAuth):
			return nil, r.err
		case r.err != nil || broken != nil || r.stat.NumChildren > 0:
			if err := f.discard(ctx, paths[i]); err != nil {
				return nil, err
			}
		default:
			all[paths[i]] = entry
		}
	}
	return all, nil
}

// discard deletes an inbox entry that nobody can read. One that cannot be deleted either, such as one with children, is
// left alone from now on.
func (f *office) discard(ctx context.Context, path string) error {
	err := f.m.session.Delete(ctx, path, -1)
	switch {
	case errors.Is(err, zkconn.ErrNotEmpty), errors.Is(err, zkconn.ErrNoAuth):
		f.stuck[path] = true
	case errors.Is(err, zkconn.ErrNoNode), errors.Is(err, zkconn.ErrUnknown): // listed again if it is still there
	default:
		return err
	}
	return nil
}

// readSeats reads the seats that are new, and the members that were not ready. Only an assigner writes seats, so the
// others are as this assigner wrote them.
func (f *office) readSeats(ctx context.Context, names []string) error {
	f.names = map[int32]string{}
	for _, name := range names {
		if n, err := znode.SeatNumber(name); err == nil {
			f.names[n] = name
		}
	}
	maps.DeleteFunc(f.seats, func(name string, _ *seated) bool {
		n, _ := znode.SeatNumber(name)
		return f.names[n] != name
	})
	var todo []string
	for _, name := range f.names {
		if s := f.seats[name]; s == nil || (s.present == nil || !s.present.Ready) && happened(s.ready) {
			todo = append(todo, name)
		}
	}
	found, err := zkstate.ForEach(ctx, todo, f.readSeat)
	if err != nil {
		return err
	}
	for i, name := range todo {
		if found[i] == nil {
			delete(f.seats, name)
			continue
		}
		if found[i].ready != nil {
			f.wakeAt(ctx, found[i].ready, 0)
		}
		f.seats[name] = found[i]
	}
	return nil
}

// readSeat reads one seat and its member; nil if it is gone, or cannot be read.
func (f *office) readSeat(ctx context.Context, name string) (*seated, error) {
	m := f.m
	body, stat, err := m.session.Get(ctx, znode.SeatAt(m.root, m.Generation, name))
	if errors.Is(err, zkconn.ErrNoNode) || errors.Is(err, zkconn.ErrNoAuth) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	seat, err := znode.Decode[znode.Seat](body)
	if err != nil {
		return nil, nil // written by hand: its member ends when it sees that
	}
	s := &seated{seat: seat, version: stat.Version, created: stat.Ctime}
	live, owner, event, err := m.session.GetW(ctx, znode.Live(m.root, m.Group().Name, seat.Identity))
	switch {
	case errors.Is(err, zkconn.ErrNoNode), errors.Is(err, zkconn.ErrNoAuth): // changed by hand: the member ends
		return s, nil
	case err != nil:
		return nil, err
	}
	if p, err := znode.Decode[znode.Present](live); err == nil && p.Nonce == seat.Nonce &&
		owner.EphemeralOwner == stat.EphemeralOwner {
		s.present = &p
	}
	if s.present == nil || !s.present.Ready {
		s.ready = event
	}
	return s, nil
}

// wakeAt wakes the assigner some time after an event.
func (f *office) wakeAt(ctx context.Context, event <-chan struct{}, later time.Duration) {
	f.m.seat.Go(func() {
		select {
		case <-event:
		case <-ctx.Done():
			return
		}
		zkconn.Pause(ctx, later)
		select {
		case f.wake <- struct{}{}:
		default: // it will look anyway
		}
	})
}

// A member that is live and does not take what it was given would keep everybody from it. So the assigner looks at held
// twice in a session timeout: if it is missing at two looks in a row, the member has given the duty up and is to blame.
// Who is only slow loses nothing by that but this duty: a take checks the seat, which the assigner sets. While somebody
// holds the duty, such as its last holder, nothing counts against the next one. Then the assigner watches held, so that
// it asks nothing, until it is deleted.

// post is what the assigner knows of a duty that it gave.
type post struct {
	seat string
	held <-chan struct{} // what happens to held; nil: it was missing at the last look, or there was none
	free bool            // it was missing at the last look
	look time.Time       // when the next one is due, if it is not watched
}

// findUntaken finds the duties that nobody has taken, and returns errAgain if there are any. next is when it must look
// again though nothing happens; 0 is never.
func (f *office) findUntaken(ctx context.Context, g group.Group) (next time.Duration, err error) {
	half := time.Duration(g.Timeouts.Session) / 2
	now, posts, due := time.Now(), map[string]post{}, []string(nil)
	for seat, s := range f.seats {
		for _, d := range s.seat.Duties {
			if _, declared := g.Duty(d); !declared {
				continue
			}
			p := f.posts[d]
			if p.seat != seat || p.held != nil && happened(p.held) {
				p = post{seat: seat, look: now.Add(half)}
			}
			if p.held == nil && !p.look.After(now) {
				due = append(due, d)
			}
			posts[d] = p
		}
	}
	f.posts, f.untaken = posts, map[string]string{}
	if err := f.lookForHolders(ctx, due, half); err != nil {
		return 0, err
	}
	for _, p := range posts {
		if wait := max(p.look.Sub(now), 1); p.held == nil && (next == 0 || wait < next) {
			next = wait
		}
	}
	if len(f.untaken) > 0 {
		return 0, errAgain
	}
	return next, nil
}

func (f *office) lookForHolders(ctx context.Context, duties []string, half time.Duration) error {
	events, err := zkstate.ForEach(ctx, duties, func(ctx context.Context, d string) (<-chan struct{}, error) {
		_, there, event, err := f.m.session.ExistsW(ctx, znode.Held(f.m.root, f.m.Generation, d))
		if !there {
			event = nil
		}
		return event, err
	})
	if err != nil {
		return err
	}
	for i, d := range duties {
		p := f.posts[d]
		switch {
		case events[i] != nil:
			f.wakeAt(ctx, events[i], half) // not at once: the next holder has the duty in no time
		case p.free:
			f.untaken[d] = p.seat
		}
		f.posts[d] = post{seat: p.seat, held: events[i], free: events[i] == nil, look: time.Now().Add(half)}
	}
	return nil
}

func notTaken(g group.Group) string {
	return fmt.Sprintf("it was given the duty and has not taken it within %s", g.Timeouts.Session)
}
