package zkstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/group/schedule"
	"muster/text"
	"muster/view"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Group describes how ZooKeeper holds groups.
func Group() Kind {
	return Kind{
		Kind: group.Kind(), Folders: always(znode.GroupFolders()), Count: countGroup, Saved: savedInGroup,
		Detail: func(ctx context.Context, r *Reader, v *view.Resource, now time.Time) (err error) {
			v.Group, err = r.GroupState(ctx, &v.Observed, now)
			return err
		},
	}
}

// countGroup reads how many of the declared duties somebody holds, how many are paused, and how the runs of crons went.
// Without live members it is none: held goes with the session of the member. Else it costs a read for each duty that
// was ever taken, one more for each cron among them, one if a duty has no holder, and two for who assigns duties.
func countGroup(ctx context.Context, r *Reader, o *resource.Observed) error {
	g, generation := group.Of(o.Record), o.Record.Generation
	live, _, err := r.source.Exists(ctx, g.Path())
	if err != nil || live.NumChildren == 0 {
		return err
	}
	taken, err := r.children(ctx, znode.Duties(g.Root, generation))
	if err != nil {
		return err
	}
	taken = slices.DeleteFunc(taken, func(name string) bool { _, declared := g.Duty(name); return !declared })
	held, err := Filter(ctx, taken, func(ctx context.Context, name string) (bool, error) {
		return r.exists(znode.Held(g.Root, generation, name))(ctx)
	})
	if err != nil {
		return err
	}
	if o.Results, err = r.results(ctx, g, generation, taken); err != nil {
		return err
	}
	paused := 0
	if len(held) < len(g.Duties) {
		body, _, _, err := zkconn.IfThere(r.source.Get(ctx, znode.Assigner(g.Root, generation)))
		if err != nil {
			return err
		}
		memory, _ := znode.DecodeOrZero[znode.AssignerMemory](body) // GroupState says what cannot be read
		for _, d := range g.Duties {
			if _, is := memory.Paused[d.Name]; is && !slices.Contains(held, d.Name) {
				paused++
			}
		}
	}
	o.Counts = group.Counts(len(held), paused, len(g.Failing(o)))
	assigned, err := r.assigned(ctx, g.Root, generation, group.Assign(o.Record))
	if err == nil && !assigned {
		group.WithoutAssigner(o.Counts)
	}
	return err
}

// assigned reports whether somebody can assign duties by this method. It reads seats until it finds one that does.
func (r *Reader) assigned(ctx context.Context, root, generation string, assign int) (bool, error) {
	names, err := r.children(ctx, znode.Seats(root, generation))
	for _, name := range names {
		if err != nil || !znode.Decides(name) {
			continue
		}
		var body []byte
		body, _, _, err = zkconn.IfThere(r.source.Get(ctx, znode.SeatAt(root, generation, name)))
		if seat, bad := znode.Decode[znode.Seat](body); err == nil && bad == nil && seat.Assign >= assign {
			return true, nil
		}
	}
	return false, err
}

// results reads how the runs of those of these duties went that are crons and have run.
func (r *Reader) results(
	ctx context.Context, g group.Group, generation string, duties []string,
) ([]resource.Results, error) {
	slices.Sort(duties)
	all, err := ForEach(ctx, duties, func(ctx context.Context, name string) (resource.Results, error) {
		d, _ := g.Duty(name)
		if d.Type != group.Cron {
			return resource.Results{}, nil
		}
		body, _, _, err := zkconn.IfThere(r.source.Get(ctx, znode.Ticks(g.Root, generation, name)))
		read, _ := znode.DecodeOrZero[znode.TickResults](body) // its holder counts anew
		read.Section = d.Section()
		return read.Results, err
	})
	return slices.DeleteFunc(all, func(r resource.Results) bool { return r == resource.Results{Section: r.Section} }), err
}

// savedInGroup reads what was saved for those duties of o that left does not have, or for all of them if left is nil.
// Of a duty without state and open operations nothing is returned.
//
// The guards are the versions of the folders of state and of operations: every write of a value sets the one, every
// opening of an operation the other. What does not exist yet must not exist then either: a folder of a duty, or a duty
// that nobody has ever had.
func savedInGroup(ctx context.Context, r *Reader, o *resource.Observed, left resource.Declaration) (
	saved []resource.Saved, guards []zkconn.Op, err error,
) {
	was, g := group.Of(o.Record), o.Record.Generation
	kept, _ := left.(group.Group)
	taken, err := r.children(ctx, znode.Duties(was.Root, g))
	if err != nil {
		return nil, nil, err
	}
	var gone []group.Duty
	var absent []string
	for _, d := range was.Duties {
		switch _, stays := kept.Duty(d.Name); {
		case stays:
		case slices.Contains(taken, d.Name):
			gone = append(gone, d)
		default:
			absent = append(absent, znode.Duty(was.Root, g, d.Name))
		}
	}
	all, err := ForEach(ctx, gone, func(ctx context.Context, d group.Duty) (savedInDuty, error) {
		return r.savedInDuty(ctx, o, d)
	})
	if err != nil {
		return nil, nil, err
	}
	for _, s := range all {
		guards = append(guards, s.guards...)
		if s.Keys > 0 || len(s.Open) > 0 {
			saved = append(saved, s.Saved)
		}
	}
	if len(taken) == 0 && len(absent) > 0 {
		if absent, err = r.neverJoined(ctx, o, absent); err != nil {
			return nil, nil, err
		}
	}
	for _, path := range absent {
		guard, err := guardAbsent(o, path)
		if err != nil {
			return nil, nil, err
		}
		guards = append(guards, guard...)
	}
	slices.SortFunc(saved, func(a, b resource.Saved) int { return cmp.Compare(a.Section, b.Section) })
	return saved, guards, err
}

type savedInDuty struct {
	resource.Saved
	guards []zkconn.Op
}

// savedInDuty reads how much state there is, and the names of the open operations.
func (r *Reader) savedInDuty(ctx context.Context, o *resource.Observed, d group.Duty) (savedInDuty, error) {
	s := savedInDuty{Saved: resource.Saved{Section: d.Section()}}
	root, g := group.Of(o.Record).Root, o.Record.Generation
	folder := znode.States(root, g, d.Name)
	body, stat, err := r.source.Get(ctx, folder)
	switch {
	case err == nil:
		s.Keys, s.Bytes = int(stat.NumChildren), znode.DecodeStateTotal(body).Bytes
		s.guards = []zkconn.Op{zkconn.CheckOp(folder, stat.Version)}
	case errors.Is(err, zkconn.ErrNoNode):
		s.guards, err = guardAbsent(o, folder)
	}
	if err != nil {
		return s, err
	}
	noOpening, err := r.guard(ctx, o, znode.Ops(root, g, d.Name))
	if err != nil {
		return s, err
	}
	s.guards = append(s.guards, noOpening...)
	s.Open, err = r.openOperations(ctx, root, g, d.Name)
	return s, err
}

// openOperations lists the operations of a duty that were begun and are not done, by name. One whose znode cannot be
// decoded counts as open; one whose znode is empty is closed.
func (r *Reader) openOperations(ctx context.Context, root, g, duty string) ([]string, error) {
	all, err := r.readChildren(ctx, znode.Ops(root, g, duty))
	var open []string
	for _, op := range all {
		if len(op.body) > 0 {
			open = append(open, op.name)
		}
	}
	return open, err
}

// guard returns operations which check that the znode at path still has its version, or still does not exist.
func (r *Reader) guard(ctx context.Context, o *resource.Observed, path string) ([]zkconn.Op, error) {
	stat, there, err := r.source.Exists(ctx, path)
	if err != nil || there {
		return []zkconn.Op{zkconn.CheckOp(path, stat.Version)}, err
	}
	return guardAbsent(o, path)
}

// guardAbsent returns operations which check that there is no znode at path: they create it, which is refused if
// somebody else has, and delete it.
func guardAbsent(o *resource.Observed, path string) ([]zkconn.Op, error) {
	acl, err := ParseACL(o.Record.ACL)
	return []zkconn.Op{zkconn.CreateOp(path, nil, zkconn.Persistent, acl), zkconn.DeleteOp(path, -1)}, err
}

// neverJoined returns what must not exist for duties that nobody has ever had: the folder of duties if there is none,
// or else duties.
func (r *Reader) neverJoined(ctx context.Context, o *resource.Observed, duties []string) ([]string, error) {
	if !o.Has(resource.PartGeneration) {
		return nil, nil
	}
	folder := znode.Duties(group.Of(o.Record).Root, o.Record.Generation)
	there, err := r.exists(folder)(ctx)
	if err != nil || there {
		return duties, err
	}
	return []string{folder}, nil
}

// What members have saved is read only where a row would delete some of it: before a plan is shown, and again right
// before its transaction, which checks that nothing of it was written since.

// FillSaved fills r.Old.Saved if the commit of r would delete some of what members have saved.
func (r *Reader) FillSaved(ctx context.Context, row plan.Row) error {
	_, err := r.fillSaved(ctx, row)
	return err
}

// fillSaved is FillSaved. It also returns operations which check that nothing of it was written since.
func (r *Reader) fillSaved(ctx context.Context, row plan.Row) ([]zkconn.Op, error) {
	if !row.Action().Changes() || row.Reason == plan.IsDamaged || row.Old == nil || row.Old.Record == nil {
		return nil, nil
	}
	k, ok := r.kind(row.Old.Record.Declaration.Kind().Name)
	if !ok || k.Saved == nil {
		return nil, nil
	}
	left := row.New
	if row.Action() == plan.Delete || row.Action() == plan.Replace {
		left = nil
	}
	saved, guards, err := k.Saved(ctx, r, row.Old, left)
	if err != nil {
		return nil, fmt.Errorf("what was saved in %s: %w", row.Path, err)
	}
	row.Old.Saved = saved
	return guards, nil
}

// checkSaved returns plan.ErrMoved if the commit of row would delete something else than its plan shows. It fills
// now.Saved, and returns operations which check in the transaction that nothing of it was written since.
func (s *Store) checkSaved(ctx context.Context, row plan.Row, now *resource.Observed) ([]zkconn.Op, error) {
	if now == nil || row.Old == nil {
		return nil, nil
	}
	again := plan.Row{Path: row.Path, Old: now, New: row.New, Reason: row.Reason}
	guards, err := s.fillSaved(ctx, again)
	if err != nil {
		return nil, err
	}
	if slices.EqualFunc(row.Loss(), again.Loss(), equalSaved) {
		return guards, nil
	}
	return nil, fmt.Errorf("%w: it would delete what the plan did not show: %s -> %s", plan.ErrMoved,
		cmp.Or(row.LossText(), "nothing"), cmp.Or(again.LossText(), "nothing"))
}

func equalSaved(a, b resource.Saved) bool {
	return a.Section == b.Section && a.Keys == b.Keys && a.Bytes == b.Bytes && slices.Equal(a.Open, b.Open)
}

// groupState is a group while it is read.
type groupState struct {
	view.Group
	decided int64 // zxid of the assigner's last write
}

// request is what waits for the assigner, and when it was written.
type request struct {
	view.Request
	stat zkconn.Stat
}

const maxRequests = 100

// GroupState reads who is in a group and who has its duties, without the runs of crons. o was observed and has a
// Record. now is for the next ticks of crons, and for whether the assigner has been silent for too long. It takes two
// reads for each live member and two for each duty, many at a time. The result is not a snapshot.
func (r *Reader) GroupState(ctx context.Context, o *resource.Observed, now time.Time) (*view.Group, error) {
	g, generation := group.Of(o.Record), o.Record.Generation
	var s groupState
	seats, err := r.seats(ctx, g, generation, &s)
	if err != nil {
		return nil, err
	}
	if err := r.members(ctx, g, seats, &s); err != nil {
		return nil, err
	}
	if s.Duties, err = r.duties(ctx, g, generation, &s); err != nil {
		return nil, err
	}
	if err := r.assignerMemory(ctx, g.Root, generation, seats, group.Assign(o.Record), &s); err != nil {
		return nil, err
	}
	if err := r.inboxes(ctx, g.Root, generation, &s); err != nil {
		return nil, err
	}
	names := text.Each(g.Duties, func(d group.Duty) string { return d.Name })
	results, err := r.results(ctx, g, generation, names)
	if err != nil {
		return nil, err
	}
	bySection := map[string]*resource.Results{}
	for i := range results {
		bySection[results[i].Section] = &results[i]
	}
	for i := range s.Duties {
		d := &s.Duties[i]
		d.NextTick, d.Results = nextTick(*d, now), bySection[d.Declared.Section()]
		d.Failing = d.Results != nil && d.Declared.Failing(*d.Results)
	}
	// The next member takes the office within two session timeouts.
	if limit := 3 * time.Duration(g.Timeouts.Session); !s.Undecided.IsZero() && now.Sub(s.Undecided) > limit {
		s.Silent = &s.Undecided
	}
	return &s.Group, nil
}

// nextTick is when a cron runs next; nil if it does not, or is no cron.
func nextTick(d view.Duty, now time.Time) *time.Time {
	if d.Type != group.Cron || d.PausedBy != "" {
		return nil
	}
	if s, err := schedule.Parse(d.Declared.Schedule, d.Declared.Timezone); err == nil {
		if next, ok := s.Next(now); ok {
			return &next
		}
	}
	return nil
}

type seatEntry struct {
	entry
	znode.Seat
	number int32
}

// seats reads the seats, the most senior first.
func (r *Reader) seats(ctx context.Context, g group.Group, generation string, s *groupState) ([]seatEntry, error) {
	entries, err := r.readChildren(ctx, znode.Seats(g.Root, generation))
	var all []seatEntry
	for _, e := range entries {
		n, bad := znode.SeatNumber(e.name)
		if bad != nil {
			continue
		}
		seat, bad := znode.Decode[znode.Seat](e.body)
		if bad != nil {
			s.Unread = append(s.Unread, znode.SeatAt(g.Root, generation, e.name)+": "+bad.Error())
			continue
		}
		all = append(all, seatEntry{e, seat, n})
	}
	slices.SortFunc(all, func(a, b seatEntry) int { return int(a.number - b.number) }) // overflows as the numbers do
	return all, err
}

// members reads the live members. A member is matched with its seat by its nonce: the seat of a process that has just
// gone may still be there.
func (r *Reader) members(ctx context.Context, g group.Group, seats []seatEntry, s *groupState) error {
	live, err := r.readChildren(ctx, g.Path())
	if err != nil {
		return err
	}
	byNonce, order := map[string]seatEntry{}, map[string]int{}
	for i, seat := range seats {
		byNonce[seat.Nonce], order[seat.name] = seat, i
	}
	for _, e := range live {
		if e.stat.EphemeralOwner == 0 {
			continue
		}
		p, bad := znode.Decode[znode.Present](e.body)
		if bad != nil {
			s.Unread = append(s.Unread, znode.Live(g.Root, g.Name, e.name)+": "+bad.Error())
			continue
		}
		m := view.Member{
			Identity: e.name, Version: p.Version, Address: p.Address, Since: e.stat.Ctime, Ready: p.Ready, Can: p.Can,
		}
		if seat, ok := byNonce[p.Nonce]; ok && seat.stat.EphemeralOwner == e.stat.EphemeralOwner {
			m.Seat, m.Duties = seat.name, seat.Duties
		}
		s.Members = append(s.Members, m)
	}
	at := func(m view.Member) int {
		if i, ok := order[m.Seat]; ok {
			return i
		}
		return len(seats)
	}
	slices.SortFunc(s.Members, func(a, b view.Member) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.Identity, b.Identity))
	})
	return nil
}

func (r *Reader) duties(ctx context.Context, g group.Group, generation string, s *groupState) ([]view.Duty, error) {
	given := map[string]string{}
	for _, m := range s.Members {
		for _, d := range m.Duties {
			given[d] = m.Identity
		}
	}
	return ForEach(ctx, g.Duties, func(ctx context.Context, d group.Duty) (view.Duty, error) {
		state := view.Duty{Declared: d, Name: d.Name, Type: d.Type, Given: given[d.Name]}
		err := r.dutyHolder(ctx, g.Root, generation, &state)
		return state, err
	})
}

// dutyHolder reads who holds a duty. One transaction writes the duty and makes held, so both have the same nonce.
func (r *Reader) dutyHolder(ctx context.Context, root, generation string, d *view.Duty) error {
	for range maxRereads {
		body, stat, there, err := zkconn.IfThere(r.source.Get(ctx, znode.Held(root, generation, d.Name)))
		if err != nil {
			return err
		}
		if !there {
			d.Holder, d.Version, d.Address, d.Since = "", "", "", nil
			return nil
		}
		h, _ := znode.Decode[znode.Holder](body)
		d.Holder, d.Version, d.Address, d.Since = cmp.Or(h.Identity, "?"), h.Version, h.Address, new(stat.Ctime)
		body, stat, _, err = zkconn.IfThere(r.source.Get(ctx, znode.Duty(root, generation, d.Name)))
		if err != nil {
			return err
		}
		if taken, err := znode.Decode[znode.DutyTaken](body); err == nil && taken.Nonce == h.Nonce {
			d.Epoch = stat.Mzxid
			return nil
		}
	}
	return nil
}

// assignerMemory adds what the assigner remembers of each duty, and who it is.
func (r *Reader) assignerMemory(
	ctx context.Context, root, generation string, seats []seatEntry, assign int, s *groupState,
) error {
	at := znode.Assigner(root, generation)
	body, stat, there, err := zkconn.IfThere(r.source.Get(ctx, at))
	if err != nil {
		return err
	}
	s.decided = stat.Mzxid
	if !there { // deleted by hand: what waits, waits for apply
		s.decided = math.MaxInt64
	}
	memory, bad := znode.DecodeOrZero[znode.AssignerMemory](body)
	s.findAssigner(seats, assign, memory)
	if bad != nil {
		s.Unread = append(s.Unread, at+": "+bad.Error())
		return nil
	}
	identity := map[string]string{}
	for _, seat := range seats {
		identity[seat.name] = seat.Identity
	}
	for i := range s.Duties {
		d := &s.Duties[i]
		d.Why, d.PausedBy = memory.Why[d.Name], memory.Paused[d.Name]
		if _, ok := memory.Paused[d.Name]; ok {
			d.PausedBy = cmp.Or(d.PausedBy, "somebody")
		}
		d.Pinned, d.Leaving = identity[memory.Pins[d.Name]], identity[memory.HandOver[d.Name]]
		for seat, f := range memory.Failures[d.Name] {
			if identity[seat] != "" {
				d.Failures = append(d.Failures, view.Failure{
					Identity: identity[seat], Count: f.Count, Until: time.UnixMilli(f.Until), Because: f.Because,
				})
			}
		}
		slices.SortFunc(d.Failures, func(a, b view.Failure) int { return cmp.Compare(a.Identity, b.Identity) })
	}
	return nil
}

// findAssigner finds the assigner: the member with the first seat that decides and knows the method of assignment, of
// those that were not passed over; without such a one, the first of all.
func (s *groupState) findAssigner(seats []seatEntry, assign int, memory znode.AssignerMemory) {
	live := map[string]bool{}
	for _, m := range s.Members {
		live[m.Seat] = true
	}
	for _, seat := range seats {
		s.waitsSince(seat.stat)
		switch {
		case !live[seat.name] || !znode.Decides(seat.name) || seat.Assign < assign:
		case slices.Contains(memory.Passed, seat.name):
			s.Passed = append(s.Passed, seat.Identity)
		case s.Assigner == "":
			s.Assigner = seat.Identity
		}
	}
	if s.Assigner == "" && len(s.Passed) > 0 {
		s.Assigner = s.Passed[0]
	}
}

// waitsSince notes a seat or a request that the assigner has not looked at.
func (s *groupState) waitsSince(made zkconn.Stat) {
	if made.Czxid > s.decided && (s.Undecided.IsZero() || made.Ctime.Before(s.Undecided)) {
		s.Undecided = made.Ctime
	}
}

// inboxes reads what waits for the assigner.
func (r *Reader) inboxes(ctx context.Context, root, generation string, s *groupState) error {
	for _, dir := range []string{znode.Asks(root, generation), znode.Resigned(root, generation)} {
		names, err := r.children(ctx, dir)
		if err != nil {
			return err
		}
		s.Waiting += len(names)
		found, err := ForEach(ctx, names[:min(len(names), maxRequests)],
			func(ctx context.Context, name string) (request, error) {
				body, stat, _, err := zkconn.IfThere(r.source.Get(ctx, resource.Join(dir, name)))
				return decodeRequest(dir == znode.Asks(root, generation), body, stat), err
			})
		if err != nil {
			return err
		}
		for _, q := range found {
			if q.Duty != "" {
				s.waitsSince(q.stat)
				s.Requests = append(s.Requests, q.Request)
			}
		}
	}
	return nil
}

// decodeRequest decodes an entry of an inbox. It has no duty if it cannot be decoded: the assigner will delete it.
func decodeRequest(isAsk bool, body []byte, stat zkconn.Stat) request {
	if isAsk {
		a, _ := znode.Decode[znode.Ask](body)
		return request{view.Request{Duty: a.Duty, What: string(a.Do), To: a.To, By: a.By, Since: stat.Ctime}, stat}
	}
	q, _ := znode.Decode[znode.Resignation](body)
	return request{view.Request{
		Duty: q.Duty, What: "resigned", By: q.Identity, Because: q.Because, Since: stat.Ctime,
	}, stat}
}
