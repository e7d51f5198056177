package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Config says who joins what.
type Config struct {
	Root, Job string
	Identity  string       // stable across restarts of the same worker; see Identify
	Info      znode.Worker // the address that its peers reach it at, its place and ports; its ID and Identity are ignored
	Index     *int         // the id that it brings, if the job takes ids from its workers; others refuse it
	// FindIndex, unless nil, finds the index of an identity if Index is nil. Join calls it only for such a job.
	FindIndex func(identity string) (int, error)
	// Fits, unless nil, says why this process cannot be a worker of the job that is there, before anything is written.
	Fits func(job.Job) error
	Run  string // name of this run, if it has one: a run that has completed is not joined again
	// Limit, unless 0, is how long a spare waits for the first worker, and for an older process of its identity; else it
	// is the job's join timeout.
	Limit    time.Duration
	FailHeld bool // do not wait for the end of another process that holds the identity: ErrHeld
	// Waiting, unless nil, is called when Join begins to wait: for what, and how long at most. It is called again
	// when Join waits for something else.
	Waiting func(what string)
}

// The errors of Join, besides those of the session.
var (
	// ErrNoJob means that nobody created the job in time. Apply it, or check its name and root.
	ErrNoJob = errors.New("no such job")
	// ErrFull means that N other identities have joined. Join as one of those that the error names, because they are not
	// live, or wait for a new generation.
	ErrFull = errors.New("the job is full")
	// ErrNoPlace means that another identity has this index. Join as that one, if it is not live.
	ErrNoPlace = errors.New("no place for this index")
	// ErrNoIndex means that the index is N or more. Declare more workers.
	ErrNoIndex = errors.New("the job has no such index")
	// ErrIndex means that the job takes ids from its workers, and this one brings none; or that it brings one to a job
	// that gives ids itself.
	ErrIndex = errors.New("the index does not fit")
	// ErrOtherIndex means that this identity has joined with another index.
	ErrOtherIndex = errors.New("it is another index than before")
	// ErrNotOpen means that the job took no new worker in time: its workers were asked to stop, or it belongs to a
	// run that died, or to another run. Apply again, or start its old workers again.
	ErrNotOpen = errors.New("the job takes no new workers")
	// ErrHeld means that another process is this identity. Wait until it ends, or use another identity.
	ErrHeld = errors.New("another process holds this identity")
	// ErrCompleted means that the run of this name has completed. Do not start the command; there is nothing left to
	// do.
	ErrCompleted = errors.New("the run has completed")
	// ErrDone means that this identity completed its part in an earlier life; see DoneError.
	ErrDone = errors.New("this worker has completed")
)

// DoneError is ErrDone. Do not start the command again. Exit as it did.
type DoneError struct {
	Exit  int  // code of the command
	Spare bool // it was none, but all have completed
}

func (e *DoneError) Error() string {
	if e.Spare {
		return "all workers have completed, and this spare was not needed"
	}
	return fmt.Sprintf("%v with exit code %d", ErrDone, e.Exit)
}

// Unwrap makes it ErrDone.
func (e *DoneError) Unwrap() error { return ErrDone }

// Identify chooses the identity of a worker. It is the first of these: the flag; MUSTER_IDENTITY; the index of an
// indexed container job, as worker-<index>; in Kubernetes a host name that ends in a number, as a StatefulSet gives
// it; the address that the worker advertises, ip:port. Only the address is not stable: a worker that restarts with
// another address is a new worker. An error names the source whose value cannot be an identity.
func Identify(
	flag string, getenv func(string) string, hostname, advertise string,
) (identity string, stable bool, err error) {
	if flag != "" {
		return flag, true, from("--identity", znode.CheckIdentity(flag))
	}
	if name := getenv("MUSTER_IDENTITY"); name != "" {
		return name, true, from("MUSTER_IDENTITY", znode.CheckIdentity(name))
	}
	for _, source := range indexes {
		if index := getenv(source); index != "" {
			_, err := ParseIndex(index)
			return "worker-" + index, true, from(source, err)
		}
	}
	if getenv("KUBERNETES_SERVICE_HOST") != "" && regexp.MustCompile(`.-[0-9]+$`).MatchString(hostname) {
		return hostname, true, from("the host name", znode.CheckIdentity(hostname))
	}
	return advertise, false, from("the address", znode.CheckIdentity(advertise))
}

func from(source string, err error) error { return resource.InField("identity from "+source, err) }

// Joining writes, in the generation g that the Record names:
//
//	run/<g>/{id,by,end,barrier}   persistent   by the first worker; removed with the generation. id names the run
//	run/<g>/by/<identity>         persistent   the claim
//	run/<g>/id/n-<10>             persistent   sequential: the suffix is the id
//	<job>/<identity>              ephemeral    live
//
// In a job that takes ids from its workers, id/n-<10> is created by this name, and beside it
//
//	run/<g>/joined                persistent   by the first worker
//	run/<g>/joined/j-<10>         persistent   sequential: the last of N shows that all have joined
//
// That is one transaction, which checks the gate: a process that dies at any moment has either joined or written
// nothing. The first worker also makes the folders in it, so a generation belongs to the run that its first worker
// named.
//
// Ids that the job gives have no gap: only this transaction creates below id, nothing below N is ever deleted there,
// and an aborted transaction gives its number back. The claim makes an identity take an id only once. Afterwards the
// member writes its id into the live znode, for those that list the live workers.

// errAgain means that what was read has changed: start again from the Record.
var errAgain = errors.New("changed while it was read; starting again")

// maxAttempts is how often a join starts again without a wait in between. Changes by other workers need far fewer; a
// job that is damaged needs more.
const maxAttempts = 100

// Join makes the process behind s a worker of the job: the one that it was in an earlier life, if it had one.
//
// While the job does not exist or takes no worker like this one, Join waits: until ctx's deadline, or without one for
// the job's join timeout. The error then wraps the reason and context.DeadlineExceeded. If no server answers, the
// reason is zkconn.ErrUnreachable.
func Join(ctx context.Context, s *zkconn.Session, c Config) (*Member, error) {
	j := newJoin(s, c)
	return j.until(ctx, j.attempt)
}

func newJoin(s *zkconn.Session, c Config) *join {
	return &join{s: s, c: c, nonce: zkstate.NewID(), begun: time.Now()}
}

// until calls attempt until it has made this process a worker, or has failed for good.
func (j *join) until(ctx context.Context, attempt func(context.Context) (*Member, error)) (*Member, error) {
	if err := cmp.Or(znode.CheckIdentity(j.c.Identity), checkInfo(j.c.Info)); err != nil {
		return nil, err
	}
	for {
		m, err := attempt(ctx)
		if err == nil {
			return m.start(), nil
		}
		moved := errors.Is(err, errAgain) || errors.Is(err, zkconn.ErrNoNode) // the generation may end at any moment
		if moved && j.attempts < maxAttempts {
			j.attempts++
			err = j.s.Sync(ctx, znode.Record(job.KindName, j.c.Root, j.c.Job))
		}
		if errors.Is(err, context.DeadlineExceeded) && !errors.As(err, new(*waitError)) {
			err = fmt.Errorf("%w: %w", zkconn.ErrUnreachable, text.Plain(err)) // a request that got no answer
		}
		if err != nil {
			return nil, fmt.Errorf("join %s as %s: %w", resource.Join(j.c.Root, j.c.Job), j.c.Identity, err)
		}
	}
}

type join struct {
	s     *zkconn.Session
	c     Config
	nonce string // in every claim that it writes

	begun     time.Time
	waitsFor  string // what Waiting was told last
	attempts  int    // since the last wait
	completed string // the generation of which it has seen that all have completed

	rec   resource.Record // as read by this attempt
	job   job.Job         // which that declares
	first bool            // nobody has joined, as read by this attempt
	index int             // the id that it brings, if the job takes ids from its workers
	wrong error           // why that, or this process, does not fit
	place int             // how many had joined before it; NoID if that is not known
	mzxid int64           // of the Record
	acl   []zkconn.ACL
}

// attempt joins in the generation that the Record names now.
func (j *join) attempt(ctx context.Context) (*Member, error) {
	j.first, j.place = false, znode.NoID
	if err := j.read(ctx); err != nil {
		return nil, err
	}
	j.wrong = j.findIndex()
	if j.wrong == nil && j.c.Fits != nil {
		j.wrong = j.c.Fits(j.job)
	}
	if err := j.admit(ctx); err != nil {
		return nil, err
	}
	if j.wrong != nil { // after admit: a job of another run may have other indexes
		return nil, j.wrong
	}
	if j.job.Gang != nil && !j.first {
		a, _, _, err := zkstate.ReadAttempt(ctx, j.s, j.job, j.rec.Generation)
		if err = cmp.Or(err, (&Attempt{GangAttempt: a}).Err()); err != nil {
			return nil, err
		}
	}
	return j.claim(ctx)
}

func (j *join) read(ctx context.Context) error {
	rec, stat, err := zkstate.ReadRecord(ctx, j.s, job.Kind(), resource.Join(j.c.Root, j.c.Job))
	if errors.Is(err, zkconn.ErrNoNode) {
		j.rec, j.job, j.mzxid = resource.Record{}, job.Default(), 0
		j.job.Root, j.job.Name = j.c.Root, j.c.Job
		return j.awaitRecord(ctx, ErrNoJob, "the job"+zkstate.ToBeCreated+j.job.Path(), nil)
	}
	if err != nil {
		return err
	}
	if j.mzxid == 0 {
		j.begun = time.Now() // the job's time begins with the job
	}
	j.rec, j.job, j.mzxid = rec, job.Of(&rec), stat.Mzxid
	if j.acl, err = zkstate.ParseACL(rec.ACL); err != nil {
		return err
	}
	last := job.LastRun(&rec)
	switch {
	case j.c.Run != "" && last != nil && last.ID == j.c.Run:
		return fmt.Errorf("%w: %s, on %s", ErrCompleted, last.ID, last.Completed)
	case rec.State == resource.StateTerminating:
		return j.awaitRecord(ctx, ErrNotOpen, "a new generation: the workers of this one were asked to stop", nil)
	}
	if err := zkstate.CheckOwn(ctx, j.s, &rec); !errors.Is(err, zkstate.ErrNotOwn) {
		return err
	}
	return j.awaitRecord(ctx, ErrNotOpen, "muster apply to put its record right: it names another's generation", nil)
}

// admit keeps every worker of another run out. It keeps a worker that has no claim out of a job that is full, and of
// one that a dead run has left behind.
//
// At its first attempt since it began or last waited, a joiner without a run name relies on one read, which nearly
// always suffices: the job znode has children while somebody is live, and a body once all have joined.
func (j *join) admit(ctx context.Context) error {
	top, _, err := j.s.Exists(ctx, j.job.Path())
	if err != nil {
		return err
	}
	if j.attempts == 0 && j.c.Run == "" && top.NumChildren > 0 && top.Version == 0 &&
		job.NoRoll(&j.rec) != j.rec.Generation {
		return nil
	}
	return j.admitBy(ctx, top.NumChildren > 0)
}

// admitBy decides by who has joined, and for which run.
func (j *join) admitBy(ctx context.Context, live bool) error {
	root, g := j.job.Root, j.rec.Generation
	run, ids, err := j.s.Get(ctx, znode.IDs(root, g))
	if errors.Is(err, zkconn.ErrNoNode) {
		generation, _, err := j.s.Exists(ctx, znode.Run(root, g))
		if err != nil {
			return err
		}
		// Only the gate is there: nobody has joined. If it is gone too, the transaction of this join waits for it.
		if j.first = generation.NumChildren <= 1; j.first {
			return nil
		}
		return j.awaitRepair(ctx, znode.IDs(root, g))
	}
	if err != nil {
		return err
	}
	if j.c.Run != "" && j.c.Run != string(run) {
		what := "a new generation: this one is of run " + string(run)
		if len(run) == 0 {
			what = "a new generation: the first worker of this one named no run"
		}
		return j.awaitNext(ctx, ErrNotOpen, what)
	}
	full := int(ids.NumChildren) >= j.job.Workers
	if !full && live {
		return nil
	}
	_, mine, err := j.s.Exists(ctx, znode.ByIdentity(root, g, j.c.Identity))
	switch {
	case err != nil || mine:
		return err
	case full:
		return j.full(ctx)
	}
	return j.avoidLeftover(ctx)
}

// avoidLeftover waits while nobody is live and somebody has left without completing: an apply may be about to replace
// the job.
func (j *join) avoidLeftover(ctx context.Context) error {
	path := j.job.Path()
	o, err := zkstate.NewReader(j.s, "", zkstate.Job()).Look(ctx, path)
	if err != nil || o.Class() != resource.Stale {
		return err
	}
	live, _, event, err := j.s.ChildrenW(ctx, path)
	switch {
	case errors.Is(err, zkconn.ErrNoNode), err == nil && len(live) > 0:
		return errAgain
	case err != nil:
		return err
	}
	what := fmt.Sprintf("a new generation, or an old worker of this one: nobody is live, "+
		"and %d left without completing", job.Left(o))
	return j.awaitRecord(ctx, ErrNotOpen, what, event)
}

// folders are the operations of the first worker only.
func (j *join) folders() ([]zkconn.Op, error) {
	root, g := j.job.Root, j.rec.Generation
	bodies := map[string][]byte{znode.IDs(root, g): []byte(j.c.Run)}
	first, err := znode.Encode(znode.GangAttempt{Number: 1, State: znode.GangOpen})
	if err != nil {
		return nil, err
	}
	bodies[znode.GangAttemptAt(root, g)] = first
	var ops []zkconn.Op
	for _, name := range znode.JobFolders(j.job) {
		dir := resource.Join(znode.Run(root, g), name)
		ops = append(ops, zkconn.CreateOp(dir, bodies[dir], zkconn.Persistent, j.acl))
	}
	if j.job.Gang == nil {
		return ops, nil
	}
	for _, name := range []string{znode.StartBarrier, znode.FinishBarrier} {
		floor := znode.BarrierFloor(root, g, name)
		ops = append(ops, zkconn.CreateOp(floor, znode.EncodeFloor(0), zkconn.Persistent, j.acl))
	}
	rounds, err := gangRounds(j.job, g, 1, j.acl)
	return append(ops, rounds...), err
}

// claim is the transaction of an identity that joins for the first time.
func (j *join) claim(ctx context.Context) (*Member, error) {
	root, g := j.job.Root, j.rec.Generation
	if j.byIndex() && j.index >= j.job.Workers {
		return j.claimBeyond(ctx)
	}
	claim := znode.Claim{Nonce: j.nonce, Lives: 1, State: znode.In}
	info := j.info(znode.NoID)
	if j.byIndex() {
		claim.ID, info = &j.index, j.info(j.index)
	}
	claimBody, body, err := encode(claim, info)
	if err != nil {
		return nil, err
	}
	by := znode.ByIdentity(root, g, j.c.Identity)
	id := zkconn.CreateOp(znode.NewID(root, g), body, zkconn.PersistentSequential, j.acl)
	if j.byIndex() {
		id = zkconn.CreateOp(znode.ID(root, g, j.index), body, zkconn.Persistent, j.acl)
	}
	ops := []zkconn.Op{zkconn.CheckOp(znode.Gate(root, g), -1)}
	if j.first {
		folders, err := j.folders()
		if err != nil {
			return nil, err
		}
		ops = append(ops, folders...)
	}
	at := len(ops) + 1 // index of the operation that creates the id
	ops = append(ops, zkconn.CreateOp(by, claimBody, zkconn.Persistent, j.acl), id,
		zkconn.CreateOp(j.live(), body, zkconn.Ephemeral, j.acl))
	if j.byIndex() {
		ops = append(ops, zkconn.CreateOp(znode.NewJoined(root, g), nil, zkconn.PersistentSequential, j.acl))
	}
	results, err := j.s.Multi(ctx, ops...)
	switch {
	case err == nil && j.byIndex():
		if j.place, err = znode.JoinedNumber(results[len(ops)-1].Path); err != nil {
			return nil, err
		}
		return newMember(j, j.index, claim, 0), nil
	case err == nil:
		if j.place, err = znode.IDNumber(results[at].Path); err != nil {
			return nil, err
		}
		return j.becomeMember(ctx, j.place, claim, 0)
	case zkconn.RefusedAt(err, by, zkconn.ErrNodeExists):
		return j.rejoin(ctx)
	case j.byIndex() && zkconn.RefusedAt(err, znode.ID(root, g, j.index), zkconn.ErrNodeExists):
		return nil, j.full(ctx)
	case zkconn.RefusedAt(err, znode.IDs(root, g), zkconn.ErrNodeExists): // another worker was the first
		return nil, fmt.Errorf("%w: %w", errAgain, err)
	}
	return nil, j.refused(ctx, err)
}

// claimBeyond is claim of a process that brings an index beyond the last: it is a spare, unless it has an id already.
func (j *join) claimBeyond(ctx context.Context) (*Member, error) {
	_, mine, err := j.s.Exists(ctx, znode.ByIdentity(j.job.Root, j.rec.Generation, j.c.Identity))
	switch {
	case err != nil:
		return nil, err
	case mine:
		return j.rejoin(ctx)
	}
	return nil, ErrSpare
}

// info is what the znodes of this worker say of it. They name its identity if workers bring their ids, or if there are
// spares.
func (j *join) info(id int) znode.Worker {
	info := j.c.Info
	info.ID, info.Identity = id, ""
	if j.byIndex() || j.job.Gang.HasSpares() {
		info.Identity = j.c.Identity
	}
	return info
}

// encode encodes a claim and what the live znode and that of the id say of its worker.
func encode(c znode.Claim, info znode.Worker) (claim, worker []byte, err error) {
	if claim, err = znode.Encode(c); err == nil {
		worker, err = znode.EncodeWorker(info)
	}
	return claim, worker, err
}

// becomeMember is for a join that has committed and got this id. It withdraws if another one took the last place at the
// same time.
func (j *join) becomeMember(ctx context.Context, id int, claim znode.Claim, version int32) (*Member, error) {
	if id >= j.job.Workers {
		return nil, j.withdraw(ctx, id)
	}
	return newMember(j, id, claim, version), nil
}

// refused decides what to do about the error of a transaction that would have made this process a member.
func (j *join) refused(ctx context.Context, err error) error {
	switch refused, ok := errors.AsType[*zkconn.Error](err); {
	case errors.Is(err, zkconn.ErrUnknown): // if it was committed, the next attempt finds this join's nonce
		if settle := j.s.Settled(ctx); settle != nil {
			return fmt.Errorf("%w: %w", settle, err)
		}
	case errors.Is(err, zkconn.ErrNodeExists): // the live znode: nothing else can be somebody else's
		return j.awaitHolder(ctx)
	case errors.Is(err, zkconn.ErrNoNode) && ok && j.attempts > 0 && missingPart(refused) != j.live():
		return j.awaitRepair(ctx, missingPart(refused))
	case errors.Is(err, zkconn.ErrNoNode): // from here on it is read again, by more than the one read of admit
	case errors.Is(err, zkconn.ErrBadVersion):
	default:
		return err
	}
	return fmt.Errorf("%w: %w", errAgain, err)
}

func (j *join) live() string { return znode.Live(j.job.Root, j.job.Name, j.c.Identity) }

// lastRead is how long a server may take to answer the read that follows when the time of a wait is over.
const lastRead = 2 * time.Second

// awaitRecord waits until the Record is no longer as this attempt read it, or until the other event, if there is one.
func (j *join) awaitRecord(ctx context.Context, why error, what string, other <-chan struct{}) error {
	stat, _, event, err := j.s.ExistsW(ctx, znode.Record(job.KindName, j.c.Root, j.c.Job))
	if err != nil {
		return err
	}
	if stat.Mzxid != j.mzxid {
		return errAgain
	}
	return j.await(ctx, why, what, event, other)
}

// await returns errAgain at an event, or a waitError when the time is over.
func (j *join) await(ctx context.Context, why error, what string, event, other <-chan struct{}) error {
	var timeUp <-chan time.Time
	end, given := ctx.Deadline()
	if !given {
		end = j.begun.Add(cmp.Or(j.c.Limit, time.Duration(j.job.Timeouts.Join)))
		timeUp = time.After(time.Until(end))
	}
	j.tell(what, fmt.Sprintf(" (%s at most)", roughly(max(0, time.Until(end)))))
	select {
	case <-event:
	case <-other:
	case <-ctx.Done():
	case <-timeUp:
		return j.timedOut(ctx, why, what, event, other)
	case <-j.s.Context().Done():
		return context.Cause(j.s.Context())
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return j.timedOut(ctx, why, what, event, other)
	case ctx.Err() != nil: // also if an event came at the same time
		return &waitError{why, time.Since(j.begun), what, context.Cause(ctx)}
	}
	j.attempts = 0
	return errAgain
}

// tell says for what it waits, and how long at most, unless it has said that it waits for this.
func (j *join) tell(what, limit string) {
	if j.c.Waiting != nil && what != j.waitsFor {
		j.c.Waiting(what + limit)
		j.waitsFor = what
	}
}

// errTooLate is the reason if what Join waited for came when the time was over.
var errTooLate = errors.New("too late")

// timedOut is for when the time is over. It makes sure that no event is on its way from the server: one that came in
// time is errAgain, one that came while ctx was over is errTooLate, and without one the reason is why.
func (j *join) timedOut(ctx context.Context, why error, what string, event, other <-chan struct{}) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRead)
	defer cancel()
	switch err := j.s.Sync(last, znode.Record(job.KindName, j.c.Root, j.c.Job)); {
	case err != nil:
		why, what = zkconn.ErrUnreachable, what+", and no server answers"
	case !zkconn.Closed(event) && !zkconn.Closed(other):
	case ctx.Err() == nil:
		return errAgain
	default:
		why = errTooLate
	}
	return &waitError{why, time.Since(j.begun), what, context.DeadlineExceeded}
}

func roughly(d time.Duration) resource.Duration {
	if d > 10*time.Second {
		return resource.Duration(d.Round(time.Second))
	}
	return resource.Duration(d.Round(100 * time.Millisecond))
}

// waitError is why a join waits no longer. It wraps the reason for the wait and what ended it.
type waitError struct {
	why    error
	waited time.Duration
	what   string
	ended  error
}

func (e *waitError) Error() string {
	s := fmt.Sprintf("%v: waited %s for %s", e.why, roughly(e.waited), e.what)
	if errors.Is(e.ended, context.DeadlineExceeded) {
		return s
	}
	return fmt.Sprintf("%s: %v", s, e.ended)
}

func (e *waitError) Unwrap() []error { return []error{e.why, e.ended} }

// An identity that has a claim joins again under its old id, in one transaction that checks the gate:
//
//	run/<g>/by/<identity>   set, at the version read   one of several processes wins; the holder before it is fenced
//	run/<g>/id/n-<id>       set                        the newest address
//	<job>/<identity>        created, ephemeral         refused while an older process is live
//
// The claim says the id if the worker brought it. Else it is found by the claim's czxid: one transaction created both.
// A process that dies before the commit has changed nothing; one that dies after it has joined, and its next life takes
// over from it.

// rejoin is for an identity that has a claim already.
func (j *join) rejoin(ctx context.Context) (*Member, error) {
	root, g := j.job.Root, j.rec.Generation
	by := znode.ByIdentity(root, g, j.c.Identity)
	if err := j.s.Sync(ctx, by); err != nil {
		return nil, err
	}
	claim, stat, err := readClaim(ctx, j.s, by)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, fmt.Errorf("%w: %w", errAgain, err)
	}
	if err != nil {
		return nil, err
	}
	mine := claim.Nonce == j.nonce // this join has committed; the reply was lost
	if claim.State == znode.Done && !mine {
		if all, _, err := j.allCompleted(ctx); err == nil && all {
			_ = finishOnce(ctx, j.s, j.job.Path(), g) // if it cannot do what on_complete says, the next one does
		}
		return nil, &DoneError{Exit: *claim.Exit}
	}
	id, err := j.idOf(ctx, claim, stat.Czxid)
	switch {
	case err != nil:
		return nil, err
	case j.byIndex() && id != j.index && !j.job.Gang.HasSpares(): // else it may have taken another's
		return nil, fmt.Errorf("%w: %s joined with %d, and comes back with %d", ErrOtherIndex, j.c.Identity, id, j.index)
	case mine:
		return j.becomeMember(ctx, id, claim, stat.Version)
	case id >= j.job.Workers: // too late in an earlier life, which did not get to withdraw
		return nil, j.withdraw(ctx, id)
	}
	return j.takeOver(ctx, id, claim, stat.Version)
}

func readClaim(ctx context.Context, s *zkconn.Session, path string) (znode.Claim, zkconn.Stat, error) {
	body, stat, err := s.Get(ctx, path)
	if err != nil {
		return znode.Claim{}, stat, err
	}
	claim, err := znode.Decode[znode.Claim](body)
	return claim, stat, resource.InField(path, err)
}

// takeOver is the transaction of an identity that joins again. old is the claim as read at this version.
func (j *join) takeOver(ctx context.Context, id int, old znode.Claim, version int32) (*Member, error) {
	root, g := j.job.Root, j.rec.Generation
	claim := old // it keeps how the last life ended
	claim.Nonce, claim.Lives, claim.State = j.nonce, old.Lives+1, znode.In
	claimBody, body, err := encode(claim, j.info(id))
	if err != nil {
		return nil, err
	}
	results, err := j.s.Multi(ctx,
		zkconn.CheckOp(znode.Gate(root, g), -1),
		zkconn.SetOp(znode.ByIdentity(root, g, j.c.Identity), claimBody, version),
		zkconn.SetOp(znode.ID(root, g, id), body, anyVersion), // only the process that sets the claim writes here
		zkconn.CreateOp(j.live(), body, zkconn.Ephemeral, j.acl),
	)
	if err != nil {
		return nil, j.refused(ctx, err)
	}
	return newMember(j, id, claim, results[1].Stat.Version), nil
}

// awaitHolder waits until the older process that is live as this identity has ended.
func (j *join) awaitHolder(ctx context.Context) error {
	if j.c.FailHeld {
		return ErrHeld
	}
	_, exists, event, err := j.s.ExistsW(ctx, j.live())
	if err != nil {
		return err
	}
	if !exists {
		return errAgain
	}
	what := fmt.Sprintf("the session of an older process that is %s to end", j.c.Identity)
	return j.await(ctx, ErrHeld, what, event, nil)
}

// find looks for the id that the transaction with this czxid created. Ids are in the order of commits, so it is a
// binary search: 15 reads for 20,000 workers.
func (j *join) find(ctx context.Context, czxid int64) (int, error) {
	root, g := j.job.Root, j.rec.Generation
	ids, there, err := j.s.Exists(ctx, znode.IDs(root, g))
	if err != nil {
		return 0, err
	}
	if !there {
		return 0, j.awaitRepair(ctx, znode.IDs(root, g))
	}
	lo, hi := 0, min(j.job.Workers, int(ids.NumChildren)) // numbers from N on have gaps: some have withdrawn
	for lo < hi {
		mid := (lo + hi) / 2
		stat, _, err := j.s.Exists(ctx, znode.ID(root, g, mid))
		switch {
		case err != nil:
			return 0, err
		case stat.Czxid == czxid:
			return mid, nil
		case stat.Czxid < czxid:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return j.findBeyond(ctx, czxid)
}

// findBeyond looks for an id of N or above: its join came too late and has not withdrawn.
func (j *join) findBeyond(ctx context.Context, czxid int64) (int, error) {
	root, g := j.job.Root, j.rec.Generation
	names, _, err := j.s.Children(ctx, znode.IDs(root, g))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		id, err := znode.IDNumber(name)
		if err != nil || id < j.job.Workers {
			continue
		}
		if stat, _, err := j.s.Exists(ctx, znode.ID(root, g, id)); err != nil || stat.Czxid == czxid {
			return id, err
		}
	}
	return 0, fmt.Errorf("%w: no id was created together with the claim of %s", errAgain, j.c.Identity)
}

// The error of a full job names at most maxVacancies identities, and at most maxVacancyReads claims are read for it.
const maxVacancies, maxVacancyReads = 5, 100

// full is ErrFull with the ids whose workers are not live, and the identities that may join as them again. If all have
// completed it waits for the next generation.
func (j *join) full(ctx context.Context) error {
	all, _, err := j.allCompleted(ctx)
	if err != nil {
		return err
	}
	if all {
		return j.awaitNext(ctx, ErrFull, "a new generation: all workers of this one have completed")
	}
	switch {
	case j.wrong != nil:
		return j.wrong
	case j.job.Gang.HasSpares():
		return ErrSpare
	case j.byIndex():
		return j.taken(ctx)
	}
	root, g, n := j.job.Root, j.rec.Generation, j.job.Workers
	claimed, _, err := j.s.Children(ctx, znode.By(root, g))
	if err != nil {
		return err
	}
	live, _, err := j.s.Children(ctx, j.job.Path())
	if err != nil {
		return err
	}
	absent := slices.DeleteFunc(claimed, func(identity string) bool {
		_, is := slices.BinarySearch(live, identity)
		return is
	})
	var vacant []string
	for i, identity := range absent {
		if len(vacant) == maxVacancies || i == maxVacancyReads {
			vacant = append(vacant, "perhaps others")
			break
		}
		id, _, err := j.vacancy(ctx, identity)
		if err != nil {
			return err
		}
		if id != znode.NoID {
			vacant = append(vacant, fmt.Sprintf("id %d (%s)", id, identity))
		}
	}
	if len(vacant) == 0 {
		return fmt.Errorf("%w: %d of %d workers have joined, and each is live or has completed", ErrFull, n, n)
	}
	return fmt.Errorf("%w: %d of %d workers have joined; "+
		"not live, and free for a process that joins under the same identity: %s",
		ErrFull, n, n, strings.Join(vacant, ", "))
}

// vacancy is the id of a worker that is not live and may come back, and the version of its claim. It is NoID of one
// that has completed, or has no id.
func (j *join) vacancy(ctx context.Context, identity string) (id int, version int32, err error) {
	body, stat, _, err := zkconn.IfThere(j.s.Get(ctx, znode.ByIdentity(j.job.Root, j.rec.Generation, identity)))
	claim, bad := znode.Decode[znode.Claim](body)
	if err != nil || bad != nil || claim.State == znode.Done {
		return znode.NoID, 0, err
	}
	id, err = j.idOf(ctx, claim, stat.Czxid)
	switch {
	case errors.Is(err, errAgain), errors.Is(err, errNoID), err == nil && id >= j.job.Workers:
		return znode.NoID, 0, nil
	}
	return id, stat.Version, err
}

// withdraw undoes, in one transaction, a join that came too late: two joined at once, and one place was left. Only
// the first of several processes that try finds the id.
func (j *join) withdraw(ctx context.Context, id int) error {
	root, g := j.job.Root, j.rec.Generation
	ops := []zkconn.Op{
		zkconn.CheckOp(znode.Gate(root, g), -1),
		zkconn.DeleteOp(znode.ID(root, g, id), anyVersion),
		zkconn.DeleteOp(znode.ByIdentity(root, g, j.c.Identity), anyVersion),
	}
	live, exists, err := j.s.Exists(ctx, j.live())
	switch {
	case err != nil:
		return err
	case exists && live.EphemeralOwner != j.s.ID():
		return j.awaitHolder(ctx)
	case exists:
		ops = append(ops, zkconn.DeleteOp(j.live(), anyVersion))
	}
	if _, err := j.s.Multi(ctx, ops...); err != nil {
		return j.refused(ctx, err)
	}
	return j.full(ctx)
}
