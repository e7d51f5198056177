package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Joining writes, in the generation g that the Record names:
//
//	run/<g>/{id,by,end,barrier}   persistent   by the first worker; removed with the generation. id names the run
//	run/<g>/by/<identity>         persistent   the claim
//	run/<g>/id/n-<10>             persistent   sequential: the suffix is the id
//	<job>/<identity>              ephemeral    live
//
// That is one transaction, which checks the gate: a process that dies at any moment has either joined or written
// nothing. The first worker also makes the folders in it, so a generation belongs to the run that its first worker
// named.
//
// Ids have no gap: only this transaction creates below id, nothing below N is ever deleted there, and an aborted
// transaction gives its number back. The claim makes an identity take an id only once. Afterwards the member writes
// its id into the live znode, for those that list the live workers.

// errAgain means that what was read has changed: start again from the Record.
var errAgain = errors.New("the job's znodes do not fit together")

// maxAttempts is how often a join starts again without a wait in between. Changes by other workers need far fewer; a
// job that is damaged needs more.
const maxAttempts = 100

// Join makes the process behind s a worker of the job: the one that it was in an earlier life, if it had one.
//
// While the job does not exist or takes no worker like this one, Join waits: until ctx's deadline, or without one for
// the job's join timeout. The error then wraps the reason and context.DeadlineExceeded. If no server answers, the
// reason is zkconn.ErrUnreachable.
func Join(ctx context.Context, s *zkconn.Session, c Config) (*Member, error) {
	if err := znode.CheckIdentity(c.Identity); err != nil {
		return nil, err
	}
	j := &join{s: s, c: c, nonce: zkstate.NewID(), begun: time.Now()}
	for {
		m, err := j.attempt(ctx)
		if err == nil {
			return m.start(), nil
		}
		moved := errors.Is(err, errAgain) || errors.Is(err, zkconn.ErrNoNode) // the generation may end at any moment
		if moved && j.attempts < maxAttempts {
			j.attempts++
			err = s.Sync(ctx, znode.Record(job.KindName, c.Root, c.Job))
		}
		if errors.Is(err, context.DeadlineExceeded) && !errors.As(err, new(*waitError)) {
			err = fmt.Errorf("%w: %w", zkconn.ErrUnreachable, err) // a request that got no answer
		}
		if err != nil {
			return nil, fmt.Errorf("join %s as %s: %w", resource.Join(c.Root, c.Job), c.Identity, err)
		}
	}
}

// join is a Join under way.
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
	mzxid int64           // of the Record
	acl   []zkconn.ACL
}

// attempt joins in the generation that the Record names now.
func (j *join) attempt(ctx context.Context) (*Member, error) {
	j.first = false
	if err := j.read(ctx); err != nil {
		return nil, err
	}
	if err := j.admit(ctx); err != nil {
		return nil, err
	}
	return j.claim(ctx)
}

// read reads the Record.
func (j *join) read(ctx context.Context) error {
	body, stat, err := j.s.Get(ctx, znode.Record(job.KindName, j.c.Root, j.c.Job))
	if errors.Is(err, zkconn.ErrNoNode) {
		j.rec, j.job, j.mzxid = resource.Record{}, job.Default(), 0
		j.job.Root, j.job.Name = j.c.Root, j.c.Job
		return j.awaitRecord(ctx, ErrNoJob, "the job to be created: "+j.job.Path(), nil)
	}
	if err != nil {
		return err
	}
	if j.mzxid == 0 {
		j.begun = time.Now() // the job's time begins with the job
	}
	rec, err := znode.DecodeRecordAt(job.Kind(), resource.Join(j.c.Root, j.c.Job), body)
	if err != nil {
		return err
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
// At its first attempt a joiner without a run name relies on one read, which nearly always suffices: the job znode has
// children while somebody is live, and a body once all have joined.
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
		// The gate, or nothing: then somebody deleted that, and the transaction of this join is refused until it is back.
		if j.first = generation.NumChildren <= 1; j.first || err != nil {
			return err
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
func (j *join) folders() []zkconn.Op {
	root, g := j.job.Root, j.rec.Generation
	ops := []zkconn.Op{zkconn.CreateOp(znode.IDs(root, g), []byte(j.c.Run), zkconn.Persistent, j.acl)}
	for _, dir := range []string{znode.By(root, g), znode.End(root, g), znode.Barriers(root, g)} {
		ops = append(ops, zkconn.CreateOp(dir, nil, zkconn.Persistent, j.acl))
	}
	return ops
}

// claim is the transaction of an identity that joins for the first time.
func (j *join) claim(ctx context.Context) (*Member, error) {
	root, g := j.job.Root, j.rec.Generation
	claim := znode.Claim{Nonce: j.nonce, Lives: 1, State: znode.In}
	mark, err := znode.Encode(claim)
	if err != nil {
		return nil, err
	}
	info := j.c.Info
	info.ID = znode.NoID
	body, err := znode.EncodeWorker(info)
	if err != nil {
		return nil, err
	}
	by := znode.ByIdentity(root, g, j.c.Identity)
	ops := []zkconn.Op{zkconn.CheckOp(znode.Gate(root, g), -1)}
	if j.first {
		ops = append(ops, j.folders()...)
	}
	at := len(ops) + 1 // index of the operation that creates the id
	results, err := j.s.Multi(ctx, append(ops,
		zkconn.CreateOp(by, mark, zkconn.Persistent, j.acl),
		zkconn.CreateOp(znode.NewID(root, g), body, zkconn.PersistentSequential, j.acl),
		zkconn.CreateOp(j.live(), body, zkconn.Ephemeral, j.acl),
	)...)
	var refused *zkconn.Error
	switch {
	case err == nil:
		id, err := znode.IDNumber(results[at].Path)
		if err != nil {
			return nil, err
		}
		return j.becomeMember(ctx, id, claim, 0)
	case errors.Is(err, zkconn.ErrNodeExists) && errors.As(err, &refused) && refused.Path == by:
		return j.rejoin(ctx)
	case errors.Is(err, zkconn.ErrNodeExists) && errors.As(err, &refused) && refused.Path == znode.IDs(root, g):
		// Another worker was the first.
		return nil, fmt.Errorf("%w: %w", errAgain, err)
	}
	return nil, j.refused(ctx, err)
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
	var refused *zkconn.Error
	switch {
	case errors.Is(err, zkconn.ErrUnknown): // if it was committed, the next attempt finds this join's nonce
		if settle := j.s.Settled(ctx); settle != nil {
			return fmt.Errorf("%w: %w", settle, err)
		}
	case errors.Is(err, zkconn.ErrNodeExists): // the live znode: nothing else can be somebody else's
		return j.awaitHolder(ctx)
	case errors.Is(err, zkconn.ErrNoNode) && errors.As(err, &refused) && j.attempts > 0 &&
		missingPart(refused) != j.live():
		return j.awaitRepair(ctx, missingPart(refused))
	case errors.Is(err, zkconn.ErrNoNode): // its live znode, or the one read misled it: a child may be no worker
	case errors.Is(err, zkconn.ErrBadVersion):
	default:
		return err
	}
	return fmt.Errorf("%w: %w", errAgain, err)
}

func (j *join) live() string { return znode.Live(j.job.Root, j.job.Name, j.c.Identity) }
