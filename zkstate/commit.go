package zkstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/text"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// maxAttempts is how often a transaction is sent. It is sent again only if it certainly did not happen. Every
// transaction has its preconditions, so nothing can be done twice.
const maxAttempts = 4

// Commit commits r in one transaction if r.Old still holds. It returns nil, plan.ErrAlreadyDone, plan.ErrMoved or
// plan.ErrUnknown, each wrapped with what happened. After any other error nothing was written.
func (s *Store) Commit(ctx context.Context, r plan.Row) error {
	var err error
	for again, sent := true, 0; again && sent < maxAttempts; sent++ {
		again, err = s.commitOnce(ctx, r)
	}
	return rowError(r, err)
}

func rowError(r plan.Row, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", r.Kind().Name, r.Path, err)
}

// transaction is one commit, ready to be sent. Without operations there is nothing to do.
type transaction struct {
	ops  []zkconn.Op
	done func(ctx context.Context) (bool, error) // reports whether it was committed
}

// commitOnce checks the row, sends its transaction once, and learns the outcome. again means that it was certainly not
// committed and can be tried again.
func (s *Store) commitOnce(ctx context.Context, r plan.Row) (again bool, err error) {
	var guards []zkconn.Op
	if r.Action() != plan.Create { // for a create, its create operations are the precondition
		var now *resource.Observed
		if now, guards, err = s.check(ctx, r); err != nil {
			return false, err
		}
		r.Old = now // with the whole Record, which a saved plan does not hold
	}
	t, err := s.transaction(ctx, r)
	if err != nil {
		return false, s.translate(ctx, err)
	}
	t.ops = append(guards, t.ops...)
	again, err = s.send(ctx, t)
	if errors.Is(err, plan.ErrMoved) {
		// If the facts are now as before, they were changed twice.
		if changed := s.Check(ctx, r); changed != nil {
			return false, changed
		}
	}
	return again, err
}

// send sends a transaction once, and learns the outcome. again means that it was certainly not committed. If ZooKeeper
// refused it, the error is plan.ErrMoved.
func (s *Store) send(ctx context.Context, t transaction) (again bool, err error) {
	_, err = s.session.Multi(ctx, t.ops...)
	switch {
	case errors.Is(err, zkconn.ErrUnknown):
		return s.resolve(ctx, t, err)
	case zkconn.PreconditionFailed(err):
		s.folders.Clear() // a folder may be missing
		return true, fmt.Errorf("%w: %w", plan.ErrMoved, err)
	}
	return false, s.translate(ctx, err)
}

// resolve learns the outcome of a transaction whose reply was lost.
func (s *Store) resolve(ctx context.Context, t transaction, lost error) (again bool, err error) {
	if err := s.session.Settled(ctx); err != nil {
		return false, fmt.Errorf("%w: %w", plan.ErrUnknown, lost)
	}
	done, err := t.done(ctx)
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", plan.ErrUnknown, err)
	case done:
		return false, nil
	}
	return true, fmt.Errorf("nothing was written: %w", lost)
}

// translate returns the error of ctx if a write was not sent because ctx ended; otherwise err.
func (s *Store) translate(ctx context.Context, err error) error {
	if errors.Is(err, zkconn.ErrNotSent) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// change reads a resource and sends the transaction that decide returns for it, if any. It does so again if somebody
// else changed the resource meanwhile.
func (s *Store) change(ctx context.Context, path string, decide func(*resource.Observed) (transaction, error)) error {
	var err error
	for again, sent := true, 0; again && sent < maxAttempts; sent++ {
		o, lookErr := s.Look(ctx, path)
		if lookErr != nil {
			return lookErr
		}
		t, decideErr := decide(o)
		if len(t.ops) == 0 || decideErr != nil {
			return decideErr
		}
		again, err = s.send(ctx, t)
	}
	return err
}

// removeGeneration removes what is left of generation g of the resource at path, if it has ended and is that of this
// resource, as its copy of the Record says. It ignores errors: the next apply removes the rest.
//
// Unlike Collect it does not ask the other Records of the root whether they name g, since each run of each job ends so.
// None of them could be right.
func (s *Store) removeGeneration(ctx context.Context, kind resource.Kind, path, g string) {
	root, _ := split(path)
	c, err := s.readRunCopy(ctx, root, g)
	if err != nil || c == nil || c.record == nil || c.kind.Name != kind.Name || c.record.Declaration.ID().Path() != path {
		return
	}
	if ended, err := s.ended(ctx, kind, path, g); err == nil && ended {
		_ = s.removeTree(ctx, znode.Run(root, g))
	}
}

// ended reports whether generation g of the resource at path has ended: it has no gate, and no Record names it. If only
// the gate is missing, somebody deleted it by hand, and the generation goes on.
func (s *Store) ended(ctx context.Context, kind resource.Kind, path, g string) (bool, error) {
	root, _ := split(path)
	open, err := s.exists(znode.Gate(root, g))(ctx)
	if err != nil || open {
		return false, err
	}
	rec, _, err := ReadRecord(ctx, s.session, kind, path)
	if errors.Is(err, zkconn.ErrNoNode) {
		return true, nil
	}
	return err == nil && rec.Generation != g, err
}

// exists reports whether a znode exists, also one that may not be read.
func (r *Reader) exists(path string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		_, there, err := r.source.Exists(ctx, path)
		if there {
			err = nil
		}
		return there, err
	}
}

// Limits of a transaction that several changes share. ZooKeeper executes a hundred operations many times faster in one
// transaction than in twenty-five. A larger one gains nothing, and more must be read again if its reply is lost.
const (
	sharedOps   = 150
	sharedBytes = 256 << 10
)

// CommitAll commits rows of different paths, and returns for each what Commit would.
//
// Rows share a transaction if it holds every fact on which they depend, so that nothing need be read before it:
// creates; updates of a resource that keeps nothing for its members; deletes and replaces of one that nobody has
// joined. If a shared transaction is refused, nothing of it was written. Each of its rows is then committed alone, so
// that a row which has moved does not keep the others.
func (s *Store) CommitAll(ctx context.Context, rows []plan.Row) []error {
	errs := make([]error, len(rows))
	var alone []int
	var b shared
	send := func() {
		alone = append(alone, s.commitShared(ctx, rows, b, errs)...)
		b = shared{}
	}
	for i, r := range rows {
		t, ok := s.selfContained(ctx, r)
		if !ok {
			alone = append(alone, i)
			continue
		}
		if !b.fits(t) {
			send()
		}
		b.add(i, t)
	}
	send()
	var g errgroup.Group
	g.SetLimit(reads)
	for _, i := range alone {
		g.Go(func() error {
			errs[i] = s.Commit(ctx, rows[i])
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	return errs
}

// selfContained builds the transaction of a row if it needs no read before it.
func (s *Store) selfContained(ctx context.Context, r plan.Row) (t transaction, ok bool) {
	act := r.Action()
	deletes := act == plan.Delete || act == plan.Replace
	switch {
	case act == plan.Create:
	case !s.needsNoRead(r), r.Reason == plan.IsDamaged,
		deletes && (r.Old.Class() != resource.Ready || r.Old.Live > 0):
		return t, false
	}
	t, err := s.transaction(ctx, r)
	if deletes { // with its folder: ZooKeeper refuses that if anybody has ever joined the generation
		rec := r.Old.Record
		t.ops = append(t.ops, zkconn.DeleteOp(znode.Run(rec.Declaration.ID().Root, rec.Generation), -1))
	}
	return t, err == nil
}

// needsNoRead reports whether the row has all that its transaction needs: the whole Record of its resource, which one
// in a saved plan has not, and members save nothing in resources of that kind.
func (s *Store) needsNoRead(r plan.Row) bool {
	o := r.Old
	if o == nil || o.Classic || len(o.Lost) > 0 || o.Record == nil || o.Record.Body == nil ||
		o.Record.Declaration.ID().Path() != r.Path {
		return false
	}
	k, ok := s.kind(o.Record.Declaration.Kind().Name)
	return ok && k.Saved == nil
}

// shared is a transaction of several rows.
type shared struct {
	rows  []int // their indexes
	parts []transaction
	ops   []zkconn.Op
	bytes int
}

// size is how many bytes its operations are on the wire.
func (t transaction) size() (n int) {
	for _, o := range t.ops {
		n += o.Size()
	}
	return n
}

// fits reports whether there is room for t, or nothing yet.
func (b *shared) fits(t transaction) bool {
	return len(b.rows) == 0 || len(b.ops)+len(t.ops) < sharedOps && b.bytes+t.size() < sharedBytes
}

func (b *shared) add(row int, t transaction) {
	b.rows, b.parts, b.ops = append(b.rows, row), append(b.parts, t), append(b.ops, t.ops...)
	b.bytes += t.size()
}

// commitShared sends b, and puts into errs what became of its rows. It returns those that are certainly not committed
// and can be committed alone.
func (s *Store) commitShared(ctx context.Context, rows []plan.Row, b shared, errs []error) (alone []int) {
	if len(b.rows) < 2 {
		return b.rows
	}
	_, err := s.session.Multi(ctx, b.ops...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zkconn.ErrUnknown):
		for k, i := range b.rows {
			again, err := s.resolve(ctx, b.parts[k], err)
			if errs[i] = rowError(rows[i], err); again {
				alone = append(alone, i)
			}
		}
		return alone
	case zkconn.PreconditionFailed(err):
		s.folders.Clear()
	}
	return b.rows
}

// Check reads the resource of the row again. It returns nil if the row can be committed, plan.ErrAlreadyDone, or
// plan.ErrMoved with what has changed. It writes nothing.
//
// For a delete or a replace, every fact must be unchanged. An update changes only the Record, and a repair creates only
// what is missing, so for these members may join and leave.
func (s *Store) Check(ctx context.Context, row plan.Row) error {
	_, _, err := s.check(ctx, row)
	return err
}

// check is Check; it also returns what was read, and guards for the transaction: nothing was saved that it deletes, and
// the run has neither begun nor completed since.
func (s *Store) check(ctx context.Context, row plan.Row) (*resource.Observed, []zkconn.Op, error) {
	now, err := s.checkFacts(ctx, row)
	if err != nil {
		return now, nil, err
	}
	guards, err := s.checkSaved(ctx, row, now)
	if err != nil {
		return now, nil, err
	}
	run, err := s.guardRun(ctx, row, now)
	return now, append(guards, run...), err
}

// checkFacts checks everything but what members have saved.
func (s *Store) checkFacts(ctx context.Context, row plan.Row) (*resource.Observed, error) {
	now, err := s.observeAgain(ctx, row.Path, row.Old)
	act := row.Action()
	switch {
	case err != nil:
		return nil, err
	case act == plan.Create:
		return now, s.checkCreate(row, now)
	case now == nil && act == plan.Delete:
		return nil, fmt.Errorf("%w: the %s is gone", plan.ErrAlreadyDone, row.Kind().Name)
	case now == nil:
		return nil, fmt.Errorf("%w: the %s is gone", plan.ErrMoved, row.Kind().Name)
	case act == plan.Update:
		return now, checkUpdate(row, now)
	case now.Equal(*row.Old):
		return now, nil
	}
	_ = s.FillMembers(ctx, row.Path, now) // without them the message has only their number
	return now, moved(row, now)
}

// checkCreate returns plan.ErrAlreadyDone if the resource exists as declared, is ready, and belongs to this stack. One
// that is kept in place may have members: it would be left to them if it were there before.
func (s *Store) checkCreate(row plan.Row, now *resource.Observed) error {
	kind, class := row.Kind().Name, now.Class()
	unused := class == resource.Ready || class == resource.Idle ||
		class.IsLive() && row.New.Policy().InPlace && !now.Classic
	switch {
	case now == nil:
		return nil
	case unused && now.Record != nil && now.Record.Stack == s.cfg.Stack &&
		now.Record.Declaration.Kind().Name == kind && len(resource.Changes(now.Record.Declaration, row.New)) == 0:
		return fmt.Errorf("%w: the %s exists, %s and as declared", plan.ErrAlreadyDone, kind, now.Status())
	}
	if now.Record != nil {
		kind = now.Record.Declaration.Kind().Name
	}
	what := fmt.Sprintf("the %s exists now (%s)", kind, now.Status())
	if rec := now.Record; rec != nil {
		what += ", applied" + by(rec)
		if rec.Stack != s.cfg.Stack {
			what += " for stack " + rec.Stack
		}
	}
	return fmt.Errorf("%w: %s", plan.ErrMoved, what)
}

func checkUpdate(row plan.Row, now *resource.Observed) error {
	old := row.Old
	switch {
	case row.Reason == plan.IsDamaged && !now.Repairable() && now.Record != nil &&
		now.Record.Generation == old.Record.Generation:
		return fmt.Errorf("%w: nothing is missing any more", plan.ErrAlreadyDone)
	case now.Record == nil || now.Problem != "" || !slices.Equal(now.Lost, old.Lost),
		now.Record.Generation != old.Record.Generation, now.RecordVersion != old.RecordVersion:
		return moved(row, now)
	}
	return nil
}

// moved is plan.ErrMoved with what has changed, and by whom if the Record shows it.
func moved(row plan.Row, now *resource.Observed) error {
	old, kind := row.Old, row.Kind()
	var what []string
	add := func(format string, args ...any) { what = append(what, fmt.Sprintf(format, args...)) }
	switch {
	case now.Problem != "":
		add("%s", now.Problem)
	case now.Record != nil && old.Record == nil:
		add("the %s was made anew%s", kind.Name, by(now.Record))
	case !slices.Equal(now.Lost, old.Lost):
		add("parts of it were deleted by hand, or put back")
	case now.Record != nil &&
		(now.Record.Generation != old.Record.Generation || now.RecordVersion != old.RecordVersion):
		add("%s", recordMoved(*old.Record, *now.Record))
	}
	switch {
	case now.Live > old.Live && len(now.Members) > 0:
		add("a %s joined: %s", kind.Member, text.List(now.Members, 3))
	case now.Live != old.Live:
		add("live %d -> %d", old.Live, now.Live)
	}
	for _, c := range kind.Counts {
		if now.Count(c.Name) != old.Count(c.Name) {
			add("%s %d -> %d", c.Word, old.Count(c.Name), now.Count(c.Name))
		}
	}
	if len(what) == 0 && now.Pzxid != old.Pzxid {
		add("a %s joined and left", kind.Member)
	}
	if len(what) == 0 {
		add("its znode was changed")
	}
	return fmt.Errorf("%w: %s", plan.ErrMoved, strings.Join(what, "; "))
}

// recordMoved says how a Record was changed. Only an apply writes By and Applied: an edit, a request to stop and the
// end of a run keep those of the last apply.
func recordMoved(old, now resource.Record) string {
	var fields []string
	if now.Stack != old.Stack {
		fields = append(fields, "stack "+old.Stack+" -> "+now.Stack)
	}
	for _, c := range resource.Changes(old.Declaration, now.Declaration) {
		fields = append(fields, fmt.Sprintf("%s %s -> %s", c.Name, orNone(c.Old), orNone(c.New)))
	}
	applied := now.By != old.By || now.Applied != old.Applied
	what := "its record was changed"
	lastRun := job.LastRun(&now)
	switch {
	case now.Edited():
		what = "its record was edited, not by muster"
	case now.State == resource.StateTerminating && old.State != now.State:
		what = "its " + now.Declaration.Kind().Member + "s were asked to stop"
	case now.Generation != old.Generation && !applied && lastRun != nil && lastRun.Generation == old.Generation:
		what = "a run was completed at " + lastRun.Completed
	case now.Generation != old.Generation:
		what = "the " + now.Declaration.Kind().Name + " was made anew" + by(&now)
	case applied || now.Op != old.Op && len(fields) > 0:
		what += by(&now)
	}
	if len(fields) > 0 {
		what += ": " + text.List(fields, 3)
	}
	return what
}

func orNone(value *string) string {
	if value == nil {
		return "none"
	}
	return *value
}

func by(rec *resource.Record) string {
	if rec.By == "" {
		return ""
	}
	return fmt.Sprintf(" by %s at %s", rec.By, rec.Applied)
}

// guardRun returns operations with which a delete or a replace of a job is refused, also if nobody is live any more, if
// what was read of its run has changed since.
//
// Nobody has joined: then nobody must have, so there must be no ids. All have joined, and some have not completed: then
// the run must not have completed. If only some have joined, it cannot complete unnoticed: its last worker writes
// either the roll (into the znode) or that there is no roll (into the Record). The transaction checks both versions.
func (s *Store) guardRun(ctx context.Context, row plan.Row, now *resource.Observed) ([]zkconn.Op, error) {
	act := row.Action()
	if act != plan.Delete && act != plan.Replace || now == nil || now.Record == nil || len(now.Lost) > 0 {
		return nil, nil
	}
	j, ok := now.Record.Declaration.(job.Job)
	switch joined := job.Joined(now); {
	case !ok:
		return nil, nil
	case joined == 0:
		return guardAbsent(now, znode.IDs(j.Root, now.Record.Generation))
	case joined == j.Workers && job.Done(now) < j.Workers && j.Gang != nil:
		return s.guardGang(ctx, j, now.Record.Generation)
	case joined == j.Workers && job.Done(now) < j.Workers:
		return s.guardUnfinished(ctx, znode.By(j.Root, now.Record.Generation), j.Workers)
	}
	return nil, nil
}

// guardUnfinished returns operations which check that one of n workers that have joined has not completed: its claim is
// unchanged. There may be more claims than workers: of processes that found the job full, and died. Nobody can tell
// whose they are, so as many more are checked. None of these says done.
func (s *Store) guardUnfinished(ctx context.Context, claims string, n int) ([]zkconn.Op, error) {
	names, err := s.children(ctx, claims)
	if err != nil {
		return nil, err
	}
	var guards []zkconn.Op
	// At most len(names)-n claims are of nobody, so among one more is that of a worker.
	need := len(names) - n + 1
	for at, size := 0, need; at < len(names); at, size = at+size, min(2*size, reads) { // mostly the first will do
		unfinished, err := s.unfinished(ctx, claims, names[at:min(at+size, len(names))])
		if err != nil {
			return nil, err
		}
		if guards = append(guards, unfinished...); len(guards) >= need {
			return guards[:need], nil
		}
	}
	return nil, fmt.Errorf("%w: its workers have completed", plan.ErrMoved)
}

// unfinished returns the checks of those claims of these names that do not say done.
func (s *Store) unfinished(ctx context.Context, claims string, names []string) ([]zkconn.Op, error) {
	all, err := ForEach(ctx, names, func(ctx context.Context, name string) ([]zkconn.Op, error) {
		at := resource.Join(claims, name)
		body, stat, there, err := zkconn.IfThere(s.session.Get(ctx, at))
		if c, bad := znode.Decode[znode.Claim](body); !there || bad == nil && c.State == znode.Done {
			return nil, err
		}
		return []zkconn.Op{zkconn.CheckOp(at, stat.Version)}, nil
	})
	return slices.Concat(all...), err
}
