package tasks

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate/seat"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The keeper is the process with the smallest seat. It looks after the queue: it shuts the seats of processes that are
// gone, and finishes what others began and did not end.
//
// It reads Redis first, then syncs and reads ZooKeeper, and acts on what Redis has and ZooKeeper has no more. Names in
// Redis contain the transaction that created the znode, which never comes again. So what it decides stays right,
// however late it acts: a keeper that was frozen does no harm, nor do two at once. Every write of a manifest has the
// version read.

// keepLimits are the times of the keeper. Tests change them.
type keepLimits struct {
	period    time.Duration // it looks at everything, at least
	settle    time.Duration // between deaths at the same time; 0: no seat waits for others
	abandoned time.Duration // nobody has evicted a seat: any process does
	finish    time.Duration // a submit that has opened its batch, and not said so in ZooKeeper
	giveUp    time.Duration // a submit that is not going on
	attend    time.Duration // a completed batch whose submitter does not come
	ended     time.Duration // what is known of batches that have ended
	page      int           // of what is deleted at once
	ahead     time.Duration // added to ZooKeeper's time
}

func defaultKeepLimits() keepLimits {
	return keepLimits{
		period: 10 * time.Second, abandoned: 30 * time.Second, finish: time.Minute, giveUp: time.Hour,
		attend: 24 * time.Hour, ended: 168 * time.Hour, page: 500,
	}
}

// keeper is what a process knows that looks after the queue, or after its seats only. One goroutine uses it.
type keeper struct {
	p      *Process
	limits keepLimits

	seats   map[string]string // their names in Redis, by those of the znodes
	events  <-chan struct{}   // of the folder of the seats
	evictAt time.Time         // when the seats that are gone may be evicted; zero: none is gone
	looked  time.Time         // when everything was looked at last
	silent  time.Time         // since when Redis does not answer; zero: it does
	health  znode.Health      // as it was found now
}

// keepAgain is how long a keeper waits that has failed.
const keepAgain = 5 * time.Second

// keep looks after the queue when it is this process's turn, until the membership ends.
func (p *Process) keep() {
	k := &keeper{p: p, limits: p.limits, seats: map[string]string{}}
	for p.ctx.Err() == nil {
		before, err := k.seatBefore(p.ctx)
		switch {
		case err != nil:
		case before == "":
			err = k.serve(p.ctx)
		default:
			err = k.stand(p.ctx, before)
		}
		if err = p.seat.Removed(err); err != nil && p.ctx.Err() == nil { // such as a lost answer
			p.log.Warn("looking after the queue", "error", err)
			pause(p.ctx, keepAgain, nil)
		}
	}
}

// seatBefore is the seat before the own one; "" if that is the smallest.
func (k *keeper) seatBefore(ctx context.Context) (string, error) {
	dir := znode.Seats(k.p.config.Root, k.p.Generation)
	names, _, err := k.p.session.Children(ctx, dir)
	if err != nil {
		return "", err
	}
	queue := seat.InOrder(names)
	at := slices.Index(queue, k.p.seat.Name())
	if at < 0 {
		return "", ErrRemoved // the watch of the seat tells too
	}
	if at == 0 {
		return "", nil
	}
	return queue[at-1], nil
}

// stand waits until a seat is gone. Meanwhile it looks whether the keeper does its work.
func (k *keeper) stand(ctx context.Context, seat string) error {
	_, there, gone, err := k.p.session.ExistsW(ctx, znode.SeatAt(k.p.config.Root, k.p.Generation, seat))
	if err != nil || !there {
		return err
	}
	for !pause(ctx, k.limits.abandoned+rand.N(k.limits.abandoned), gone) && ctx.Err() == nil {
		if err := k.lookAbandoned(ctx); err != nil && ctx.Err() == nil {
			k.p.log.Debug("look for seats that nobody evicts", "error", err)
		}
	}
	return nil
}

// serve is the keeper's work until the membership ends, or until something fails that is not Redis.
func (k *keeper) serve(ctx context.Context) error {
	k.looked = time.Time{}
	for failures := 0; ctx.Err() == nil; {
		wait := k.limits.period
		err := k.pass(ctx)
		events := k.events
		switch {
		case err == nil:
			failures = 0
		case errors.As(err, new(*zkconn.Error)):
			return err
		default:
			wait, events = backoff(failures), nil // seats that have changed are looked at when Redis answers
			failures++
		}
		if !k.evictAt.IsZero() {
			wait = min(wait, max(time.Until(k.evictAt), time.Millisecond))
		}
		pause(ctx, wait, events)
	}
	return nil
}

// pass looks at the seats, and in every period at everything.
func (k *keeper) pass(ctx context.Context) error {
	now := time.Now()
	books, err := k.evictGone(ctx)
	if err == nil && now.Sub(k.looked) >= k.limits.period {
		if err = k.repair(ctx, books); err == nil {
			k.looked = now
		}
	}
	return errors.Join(err, k.report(ctx, err))
}

// now is ZooKeeper's time, or earlier: time may stand still while a machine is frozen.
func (k *keeper) now() time.Time {
	return k.p.joined.Add(time.Since(k.p.joinedHere) + k.limits.ahead)
}

// evictGone evicts every seat in Redis that ZooKeeper does not have any more. After the first one it waits for those
// that died at the same time: whether suspects are charged depends on all of these. It returns the books before.
func (k *keeper) evictGone(ctx context.Context) (books store.Books, err error) {
	if books, err = k.p.store.Books(ctx); err != nil {
		return books, err
	}
	standing, err := k.standing(ctx)
	if err != nil {
		return books, err
	}
	var gone []string
	for _, s := range books.Seats {
		if !standing[s.Name] {
			gone = append(gone, s.Name)
		}
	}
	if len(gone) > 0 && k.evictAt.IsZero() && k.limits.settle > 0 {
		k.evictAt = time.Now().Add(k.limits.settle)
	}
	if time.Now().Before(k.evictAt) {
		return books, nil
	}
	k.evictAt = time.Time{}
	for some := range slices.Chunk(gone, store.MaxItems) {
		if err := k.evict(ctx, some); err != nil {
			return books, err
		}
	}
	return books, nil
}

// evict evicts seats. What Redis has of one may be damaged: that does not keep the others.
func (k *keeper) evict(ctx context.Context, seats []string) error {
	var damaged []string
	for more := true; more; {
		var err error
		if more, damaged, err = k.p.store.Evict(ctx, store.Died, seats...); err != nil {
			return err
		}
	}
	if len(damaged) > 0 {
		k.p.log.Warn("seats cannot be evicted: what Redis has of them is damaged", "seats", damaged)
	}
	evicted := slices.DeleteFunc(seats, func(seat string) bool { return slices.Contains(damaged, seat) })
	if len(evicted) > 0 {
		k.p.log.Info("evicted seats", "seats", evicted)
	}
	return nil
}

// standing are all seats in ZooKeeper, as its leader has them now: by their names in Redis.
func (k *keeper) standing(ctx context.Context) (map[string]bool, error) {
	dir := znode.Seats(k.p.config.Root, k.p.Generation)
	if err := k.p.session.Sync(ctx, dir); err != nil {
		return nil, err
	}
	names, err := k.listSeats(ctx, dir)
	if err != nil {
		return nil, err
	}
	known := make(map[string]string, len(names))
	standing := make(map[string]bool, len(names))
	for _, name := range names {
		seat, ok := k.seats[name]
		if !ok {
			stat, there, err := k.p.session.Exists(ctx, resource.Join(dir, name))
			if !there && err != nil {
				return nil, err
			}
			if !there || err != nil { // gone, or nobody may know whose it is
				continue
			}
			seat = hex(stat.Czxid)
		}
		known[name], standing[seat] = seat, true
	}
	k.seats = known
	return standing, nil
}

// listSeats lists the seats. The keeper watches them.
func (k *keeper) listSeats(ctx context.Context, dir string) (names []string, err error) {
	if k.events != nil && !zkconn.Closed(k.events) { // the watch is still set
		names, _, err = k.p.session.Children(ctx, dir)
		return names, err
	}
	names, _, k.events, err = k.p.session.ChildrenW(ctx, dir)
	return names, err
}

// lookAbandoned evicts the seats that are gone, if nobody has evicted one for long. It first asks what costs little:
// whether Redis has more seats than ZooKeeper.
func (k *keeper) lookAbandoned(ctx context.Context) error {
	books, err := k.p.store.Books(ctx)
	if err != nil || books.Now.Sub(books.Evicted) < k.limits.abandoned {
		return err
	}
	if more, err := k.p.moreSeats(ctx, books); err != nil || !more {
		return err
	}
	if _, err = k.evictGone(ctx); err != nil || k.evictAt.IsZero() {
		return err
	}
	pause(ctx, time.Until(k.evictAt), nil)
	_, err = k.evictGone(ctx)
	return err
}

// moreSeats reports whether Redis has more seats than ZooKeeper: what dead processes held is given back soon.
func (p *Process) moreSeats(ctx context.Context, books store.Books) (bool, error) {
	dir := znode.Seats(p.config.Root, p.Generation)
	if err := p.session.Sync(ctx, dir); err != nil {
		return false, err
	}
	names, _, err := p.session.Children(ctx, dir)
	return len(books.Seats) > len(names), err
}

// report writes what is amiss, if that has changed. failed is why Redis could not be looked at.
func (k *keeper) report(ctx context.Context, failed error) error {
	switch {
	case errors.As(failed, new(*zkconn.Error)), ctx.Err() != nil:
		return nil
	case failed == nil:
		k.silent, k.health.Redis = time.Time{}, ""
	case refused(failed), hopeless(failed), isReply(failed), errors.Is(failed, store.ErrReply):
		text := failed.Error()
		k.health.Redis = strings.ToValidUTF8(text[:min(len(text), 1000)], "") // a znode takes no more
	case k.silent.IsZero():
		k.silent = time.Now()
	case time.Since(k.silent) >= k.limits.period:
		k.health.Redis = "it does not answer"
	}
	return k.writeHealth(ctx)
}

// writeHealth writes k.health unless it is there. It names the seat of who wrote it. Nobody believes it once that is
// gone, so the write needs no check.
func (k *keeper) writeHealth(ctx context.Context) error {
	root, g := k.p.config.Root, k.p.Generation
	at := znode.QueueHealth(root, g)
	body, _, err := k.p.session.Get(ctx, at)
	if err != nil {
		return err
	}
	k.health.Seat = k.p.seat.Name()
	slices.Sort(k.health.Lost)
	slices.Sort(k.health.Failed)
	told := znode.Health{Seat: k.health.Seat} // by who has told nothing yet
	if was, err := znode.Decode[znode.Health](body); err == nil && was.Seat == told.Seat {
		told = was
	}
	if reflect.DeepEqual(told, k.health) {
		return nil
	}
	if body, err = znode.Encode(k.health); err != nil {
		return err
	}
	_, err = k.p.session.Set(ctx, at, body, -1)
	if errors.Is(err, zkconn.ErrUnknown) { // the next pass reads it again
		return nil
	}
	return err
}

// repair compares the batches of Redis and ZooKeeper, and finishes what was begun. Between two batches it evicts seats
// that are gone. An error of Redis ends it; the next pass begins again. What concerns one batch only is logged.
func (k *keeper) repair(ctx context.Context, books store.Books) error {
	found, err := k.p.store.ByID(ctx) // before ZooKeeper
	if err != nil {
		return err
	}
	manifests, err := k.readManifests(ctx)
	if err != nil {
		return err
	}
	amiss := znode.Health{Redis: k.health.Redis, Full: books.Full(int64(k.p.Queue().MaxBytes))}
	for id, b := range found {
		if m, there := manifests[id]; there && (b.Broken != "" || m.Life == "" || b.Life == m.Life) {
			continue
		}
		if err := k.one(id, "removed from redis", k.removeEnded(ctx, id, b.Life)); err != nil {
			return err
		}
		if err := k.seatsFirst(ctx); err != nil {
			return err
		}
		delete(found, id)
	}
	for id, m := range manifests {
		var known *store.Batch
		if b, there := found[id]; there && b.Broken == "" {
			known = &b
		}
		if err := k.repairBatch(ctx, id, m, known, &amiss); err != nil {
			return err
		}
		if err := k.seatsFirst(ctx); err != nil {
			return err
		}
	}
	k.health = amiss
	return errors.Join(k.forgetEnded(ctx), k.dropDead(ctx, books))
}

// seatsFirst evicts the seats that are gone, if seats have changed, or if those that died together have had the time to
// go. So neither many batches hold that up, nor many processes that come and go the batches.
func (k *keeper) seatsFirst(ctx context.Context) error {
	if !zkconn.Closed(k.events) && (k.evictAt.IsZero() || time.Now().Before(k.evictAt)) {
		return nil
	}
	_, err := k.evictGone(ctx)
	return err
}

// repairBatch does what is to be done about one batch, of which b is what Redis has; nil: nothing that can be used.
func (k *keeper) repairBatch(ctx context.Context, id string, m Manifest, b *store.Batch, amiss *znode.Health) error {
	switch {
	case b == nil || !waitsForWatcher(*b):
	case b.Tries < b.Attempts:
		amiss.Completed++
	case len(amiss.Failed) < znode.MaxHealth:
		amiss.Failed = append(amiss.Failed, id)
	}
	do := decide(m, b, k.now(), k.limits)
	if do.repair == repairLost || do.how == znode.EndUnattended {
		var err error
		if do, err = k.decideAgain(ctx, id, m); err != nil {
			return k.one(id, "", err)
		}
	}
	switch {
	case do.repair != repairLost:
		return k.one(id, string(do.repair), k.carryOut(ctx, id, m, do))
	case len(amiss.Lost) == znode.MaxHealth:
		amiss.MoreLost++
	default:
		amiss.Lost = append(amiss.Lost, id)
	}
	return nil
}

// decideAgain decides about a batch that Redis did not have when ZooKeeper did: it may have come since, or ended.
func (k *keeper) decideAgain(ctx context.Context, id string, m Manifest) (decision, error) {
	var known *store.Batch
	b, err := k.p.store.Batch(ctx, id)
	switch {
	case err == nil && b.Broken == "" && b.Life == m.Life:
		known = &b
	case err != nil && !errors.Is(err, store.ErrNoBatch) && !errors.Is(err, store.ErrBroken):
		return decision{}, err
	}
	if m, err = k.p.ledger.Manifest(ctx, id); err != nil {
		return decision{}, err
	}
	return decide(m, known, k.now(), k.limits), nil
}

// one logs an error that concerns one batch only, and what was done. It returns any other error.
func (k *keeper) one(id, did string, err error) error {
	switch {
	case err == nil && did != "":
		k.p.log.Info("repaired a batch", "batch", id, "did", did)
	case err == nil:
	case refused(err), isAny(err, ErrNoBatch, ErrGoesOn, errAgain), denied(err):
		k.p.log.Debug("a batch is looked at again later", "batch", id, "error", err)
	default:
		return err
	}
	return nil
}

// denied reports whether ZooKeeper refused a request, such as for the version or the ACL of one znode.
func denied(err error) bool {
	return errors.As(err, new(*zkconn.Error)) && !isAny(err,
		zkconn.ErrUnknown, zkconn.ErrNotSent, zkconn.ErrSessionLost, zkconn.ErrUnreachable, context.Canceled)
}

// readManifests reads all batches that ZooKeeper has; one that cannot be read is there, without tasks. The keeper
// follows them, so only new ones cost a read. What it knows may be a moment old: every write has the version read.
func (k *keeper) readManifests(ctx context.Context) (map[string]Manifest, error) {
	dir := znode.Batches(k.p.config.Root, k.p.Generation)
	if err := k.p.session.Sync(ctx, dir); err != nil {
		return nil, err
	}
	ids, _, err := k.p.session.Children(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		k.p.followBatch(id)
	}
	all := map[string]Manifest{}
	for _, id := range ids {
		m, err := k.p.Manifest(ctx, id)
		switch {
		case errors.Is(err, ErrNoBatch): // it has ended just now
		case ctx.Err() != nil:
			return nil, err
		case err != nil:
			k.p.log.Warn("a batch cannot be read", "batch", id, "error", err)
			all[id] = Manifest{Life: m.Life}
		default:
			all[id] = m
		}
	}
	return all, nil
}

// waitsForWatcher reports whether a batch is completed, and its results wait for a watcher.
func waitsForWatcher(b store.Batch) bool {
	return completed(b) && b.Results == string(queue.ResultsWatcher) && b.Holder == ""
}

// completed reports whether all tasks of a batch have ended.
func completed(b store.Batch) bool {
	return (b.State == string(znode.BatchOpen) || b.State == string(znode.BatchPaused)) && b.Done+b.Dead == b.Tasks
}

// removeEnded removes a batch from Redis, unless ZooKeeper has it: what the keeper knows may be a moment old. life is
// "" if it could not be read.
func (k *keeper) removeEnded(ctx context.Context, id, life string) error {
	if life == "" { // Redis refuses this unless it cannot tell the life: another one may have begun since
		err := k.p.store.Remove(ctx, id, "unknown")
		var r *store.Refusal
		if !errors.Is(err, store.ErrLife) || !errors.As(err, &r) {
			return err
		}
		life = r.Detail
	}
	m, err := k.p.ledger.Manifest(ctx, id)
	if err == nil && m.Life == life || err != nil && !errors.Is(err, ErrNoBatch) {
		return err
	}
	return k.p.store.Remove(ctx, id, life)
}

func (k *keeper) carryOut(ctx context.Context, id string, m Manifest, do decision) error {
	next := m.BatchManifest
	switch do.repair {
	case repairEnd:
		return k.p.ledger.end(ctx, k.p.store, id, m, do.how, k.p.Identity)
	case repairReopen:
		return k.p.store.Open(ctx, id, m.Life, m.Tasks)
	case repairSet:
		return m.tell(ctx, k.p.store, id)
	case repairOpened:
		next.State = znode.BatchOpen
	case repairCompleted:
		next.Completed = k.now()
	case repairRetried:
		next.Retrying = false
	case repairResumed:
		next.Completed = time.Time{}
	default:
		return nil
	}
	return k.p.ledger.set(ctx, id, &m, next)
}

// repair is what the keeper does about a batch, in the words of the log.
type repair string

const (
	repairEnd       repair = "ended"
	repairLost      repair = "named as lost"   // Redis does not have it
	repairReopen    repair = "opened in redis" // which has all its tasks, but went back to before it was opened
	repairSet       repair = "set in redis"    // which has another weight or state
	repairOpened    repair = "opened"          // its submitter has opened it, and not said so
	repairCompleted repair = "noted that it is completed"
	repairResumed   repair = "noted that it goes on"        // it is not completed, after all
	repairRetried   repair = "noted that nobody retries it" // who retried its dead tasks is gone
)

// decision is a repair; of repairEnd also how the batch ends.
type decision struct {
	repair
	how znode.EndState
}

// decide says what to do about a batch, of which b is what Redis has of this life; nil: nothing that can be used. now
// is ZooKeeper's time.
func decide(m Manifest, b *store.Batch, now time.Time, l keepLimits) decision {
	switch {
	case m.Tasks == 0: // it cannot be decoded
		return decision{}
	case m.State == znode.BatchCancelled:
		return decision{repairEnd, znode.EndCancelled}
	case m.State == znode.BatchSubmitting:
		return decideSubmitting(m, b, now.Sub(m.Modified), l)
	case b == nil:
		return decision{repair: repairLost}
	case b.State == string(znode.BatchSubmitting):
		if b.Tasks == m.Tasks {
			return decision{repair: repairReopen}
		}
		return decision{repair: repairLost}
	case b.Version < int64(m.Version) && (b.State != string(m.State) || b.Weight != m.Weight):
		return decision{repair: repairSet}
	}
	return decideCompleted(m, completed(*b), now, l)
}

// decideSubmitting is for a batch that nobody has written to for a while.
func decideSubmitting(m Manifest, b *store.Batch, idle time.Duration, l keepLimits) decision {
	switch {
	case b != nil && b.State != string(znode.BatchSubmitting):
		if idle >= l.finish {
			return decision{repair: repairOpened}
		}
	case idle >= l.giveUp && m.From == "": // or else tasks that are there only would go
		return decision{repairEnd, znode.EndUnattended}
	}
	return decision{}
}

// decideCompleted is for a batch whose results no watcher collects.
func decideCompleted(m Manifest, all bool, now time.Time, l keepLimits) decision {
	keep, kept := m.Results.Keep()
	switch {
	case m.Retrying && now.Sub(m.Modified) >= l.giveUp:
		return decision{repair: repairRetried}
	case m.Retrying:
	case m.Results == queue.ResultsWatcher:
	case all && m.Results == queue.ResultsDiscard:
		return decision{repairEnd, znode.EndDiscarded}
	case all && m.Completed.IsZero():
		return decision{repair: repairCompleted}
	case !all && !m.Completed.IsZero():
		return decision{repair: repairResumed}
	case all && kept && now.Sub(m.Completed) >= keep:
		return decision{repairEnd, znode.EndDiscarded}
	case all && !kept && now.Sub(m.Modified) >= l.attend:
		return decision{repairEnd, znode.EndUnattended}
	}
	return decision{}
}

// forgetEnded deletes what is known of batches that ended long ago, a page in each pass.
func (k *keeper) forgetEnded(ctx context.Context) error {
	dir := znode.EndedDays(k.p.config.Root, k.p.Generation)
	days, _, err := k.p.session.Children(ctx, dir)
	if err != nil {
		return err
	}
	for _, name := range days {
		day, err := znode.ParseEndedDay(name)
		if err != nil || k.now().Sub(day) < 24*time.Hour+k.limits.ended {
			continue
		}
		return k.forgetDay(ctx, resource.Join(dir, name))
	}
	return nil
}

// forgetDay deletes a page of a day, or its folder.
func (k *keeper) forgetDay(ctx context.Context, dir string) error {
	ids, _, err := k.p.session.Children(ctx, dir)
	if err == nil {
		var ops []zkconn.Op
		for _, id := range ids[:min(len(ids), k.limits.page)] {
			ops = append(ops, zkconn.DeleteOp(resource.Join(dir, id), -1))
		}
		if len(ids) <= k.limits.page {
			ops = append(ops, zkconn.DeleteOp(dir, -1))
		}
		_, err = k.p.session.Multi(ctx, ops...)
	}
	if isAny(err, zkconn.ErrNoNode, zkconn.ErrNotEmpty, zkconn.ErrUnknown) {
		return nil // another process does so too: the next pass looks again
	}
	return err
}

// dropDead drops dead tasks that are older than they are kept, a page of each batch in each pass.
func (k *keeper) dropDead(ctx context.Context, books store.Books) error {
	if books.WithDead == 0 {
		return nil
	}
	before := books.Now.Add(-time.Duration(k.p.Queue().KeepDead))
	ids, err := k.p.store.DeadBatches(ctx, before, k.limits.page)
	for _, id := range ids {
		if _, err := k.p.store.Drop(ctx, id, min(k.limits.page, store.MaxItems), before); err != nil {
			return err
		}
	}
	return err
}
