package wrap

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// memberRun is one RunMember.
type memberRun struct {
	c           MemberConfig
	takeover    member.Takeover // as the caller wants it
	path        string          // of the command
	null        *os.File
	sessions    sessions
	socket      *socket
	health      *health
	metrics     *memberMetrics
	killAll     chan struct{} // closed when the commands of all duties are to be killed at once
	lost        chan error    // why the command is to be killed at once
	lostCommand bool          // the command was killed for that
	opRuns      opRuns

	mu    sync.Mutex
	state memberState
}

// memberState is what a member tells of itself.
type memberState struct {
	stage   Stage
	member  *member.Member // nil while there is none
	session *zkconn.Session
	holds   map[string]*hold // by duty: what a command does now
	taken   map[string]int64 // the epoch of each duty that is held, also of a cron between two runs
	ready   bool             // the command has said so
	rejoins int
}

func newMemberRun(c MemberConfig) *memberRun {
	r := &memberRun{
		c: c, takeover: c.Member.Takeover, metrics: newMemberMetrics(),
		killAll: make(chan struct{}), lost: make(chan error, 1),
		sessions: sessions{
			connect: c.Connect, timeout: c.SessionTimeout, waiting: c.Member.Waiting, log: c.Log,
			limit: cmp.Or(c.JoinTimeout, time.Duration(group.Default().Timeouts.Join)),
		},
		state: memberState{stage: StageJoining, holds: map[string]*hold{}, taken: map[string]int64{}},
	}
	can := slices.Concat(slices.Collect(maps.Keys(c.Duties)), c.Can)
	slices.Sort(can)
	r.c.Member.Can = slices.Compact(can)
	return r
}

// now is a copy of the state.
func (r *memberRun) now() memberState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.holds, s.taken = maps.Clone(s.holds), maps.Clone(s.taken)
	return s
}

func (r *memberRun) set(change func(*memberState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
}

func (r *memberRun) enter(stage Stage) { r.set(func(s *memberState) { s.stage = stage }) }

// join makes this process a member, in another session if one is lost on the way, or the answer to a join is.
func (r *memberRun) join(ctx context.Context) error {
	return r.sessions.join(ctx, r.joinOnce, func() {
		r.c.Member.Takeover = member.TakeoverWait // the process that holds the identity may be this one
	})
}

// joinOnce opens a session and joins. If it fails it leaves no session behind.
func (r *memberRun) joinOnce(ctx context.Context) error {
	s, err := r.sessions.open(ctx, r.recordedTimeout)
	if err != nil {
		return err
	}
	c := r.c.Member
	c.NotReady = c.NotReady && !r.now().ready
	c.MaxSilence = (&lease{session: s}).limit()
	m, err := member.Join(ctx, s, c)
	if err != nil {
		r.sessions.close()
		return err
	}
	if timeout := time.Duration(m.Group().Timeouts.Session); timeout != r.sessions.timeout {
		r.sessions.timeout = timeout
		return errors.Join(errOtherTimeout, m.Leave())
	}
	r.set(func(now *memberState) { now.member, now.session = m, s })
	if r.c.Joined != nil {
		r.c.Joined(m)
	}
	return nil
}

// recordedTimeout is the session timeout that the Record says. Without a Record that can be read the timeout stays as
// it is: member.Join waits for the Record, or says what is wrong with it.
func (r *memberRun) recordedTimeout(ctx context.Context, s *zkconn.Session) (time.Duration, error) {
	root, name := r.c.Member.Root, r.c.Member.Group
	rec, err := readableRecord(ctx, s, group.Kind(), root, name)
	if err != nil || rec == nil {
		return r.sessions.timeout, err
	}
	return time.Duration(group.Of(rec).Timeouts.Session), nil
}

// readableRecord is the Record of a job or a group; nil if there is none that can be read.
func readableRecord(
	ctx context.Context, s *zkconn.Session, kind resource.Kind, root, name string,
) (*resource.Record, error) {
	body, _, err := s.Get(ctx, znode.Record(kind.Name, root, name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rec, err := znode.DecodeRecordAt(kind, resource.Join(root, name), body)
	if err != nil {
		return nil, nil
	}
	return &rec, nil
}
