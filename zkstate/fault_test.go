package zkstate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/plan"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Operation codes of ZooKeeper's protocol.
const (
	opCreate = 1
	opMulti  = 14
)

// newProxyFixture is a fixture whose session goes through a proxy.
func newProxyFixture(t testing.TB) (*fixture, *fault.Proxy) {
	t.Helper()
	proxy := rig.Proxy(t, servers.Addrs()[0])
	return newFixtureAt(t, []string{proxy.Addr()}), proxy
}

// newProxyPair is a fixture whose session goes through a proxy, and one in the same root whose session does not.
func newProxyPair(t testing.TB) (through, direct *fixture, proxy *fault.Proxy) {
	t.Helper()
	through, proxy = newProxyFixture(t)
	direct = newFixture(t)
	direct.root = through.root
	direct.store = direct.newStore(direct.session)
	return through, direct, proxy
}

func isMulti(op int32, _ []byte) bool { return op == opMulti }

// TestLostReplyOfEachKindOfCommit cuts the transaction of every kind of commit before it is sent, after it was
// committed and before its reply, and after its reply. Each ends applied, exactly once.
func TestLostReplyOfEachKindOfCommit(t *testing.T) {
	t.Parallel()
	type kind struct {
		name   string
		before func(f *fixture) // creates the state before the change
		want   func(f *fixture) []job.Job
		reason plan.Reason
	}
	kinds := []kind{
		{"create", func(*fixture) {},
			func(f *fixture) []job.Job { return []job.Job{f.declare("a", 2)} }, plan.NotThere},
		{"update", func(f *fixture) { f.apply(f.declare("a", 2)) }, func(f *fixture) []job.Job {
			return []job.Job{f.declare("a", 2, func(j *job.Job) { j.Lifecycle.OnRunning = job.Fail })}
		}, plan.MutableDiffers},
		{"replace", func(f *fixture) { f.apply(f.declare("a", 2)) }, func(f *fixture) []job.Job {
			return []job.Job{f.declare("a", 3)}
		}, plan.ReadyDiffers},
		{"replace classic", makeClassic, func(f *fixture) []job.Job { return []job.Job{f.declare("a", 2)} },
			plan.ClassicLeftover},
		{"delete", func(f *fixture) { f.apply(f.declare("a", 2)) },
			func(*fixture) []job.Job { return nil }, plan.Undeclared},
	}
	for name, parts := range damages() {
		kinds = append(kinds, kind{"repair of " + name, func(f *fixture) {
			f.apply(f.declare("a", 2))
			if _, err := f.lose(f.declare("a", 2), parts); err != nil {
				f.t.Fatal(err)
			}
		}, func(f *fixture) []job.Job { return []job.Job{f.declare("a", 2)} }, plan.IsDamaged})
	}
	faults := map[string]func(p *fault.Proxy) <-chan struct{}{
		"before it is sent":         func(p *fault.Proxy) <-chan struct{} { return p.BeforeSend(isMulti) },
		"committed, reply lost":     func(p *fault.Proxy) <-chan struct{} { return p.DropReply(isMulti) },
		"right after its own reply": func(p *fault.Proxy) <-chan struct{} { return p.AfterReply(isMulti) },
	}
	for _, kind := range kinds {
		for fault, arm := range faults {
			t.Run(kind.name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				f, proxy := newProxyFixture(t)
				f.apply(f.declare("other", 1))
				kind.before(f)
				declared := append(kind.want(f), f.declare("other", 1))
				p := f.plan(declared...)
				path := f.root + "/jobs/a"
				for _, r := range p.Rows {
					if r.Path == path && r.Reason != kind.reason {
						t.Fatalf("the row is %s, want %s", r.Reason, kind.reason)
					}
				}
				fired := arm(proxy)
				if err := f.commit(p)[path]; err != nil {
					t.Fatal(err)
				}
				select { // the reply may arrive before the connection is cut
				case <-fired:
				case <-t.Context().Done():
					t.Fatal("the fault did not happen")
				}
				for _, r := range f.plan(declared...).Rows {
					if r.Action() != plan.None {
						t.Errorf("%s is %s after the commit", r.Path, r.Reason)
					}
				}
				f.noDuplicates(len(declared))
			})
		}
	}
}

func makeClassic(f *fixture) {
	f.t.Helper()
	roll, err := znode.EncodeRoll(job.Protobuf, []znode.Worker{{ID: 0, IP: "10.0.0.1", Port: 9000}})
	if err != nil {
		f.t.Fatal(err)
	}
	acl, _ := zkstate.ParseACL(nil)
	for path, body := range map[string][]byte{"/a": roll, "/a-dai-for-barrier": {0, 0, 0, 0}} {
		if _, err := f.session.Create(f.t.Context(), f.root+"/jobs"+path, body, zkconn.Persistent, acl); err != nil {
			f.t.Fatal(err)
		}
	}
}

// noDuplicates checks that there are as many generations with a gate, Records and job znodes as jobs.
func (f *fixture) noDuplicates(jobs int) {
	f.t.Helper()
	open, records, znodes := 0, 0, 0
	names, _, err := f.session.Children(f.t.Context(), f.root+"/jobs")
	if err != nil {
		f.t.Fatal(err)
	}
	znodes = len(names) - 1 // .muster
	for _, g := range f.tree(f.root + "/jobs/.muster/run") {
		if len(g) > 5 && g[len(g)-5:] == "/gate" {
			open++
		}
	}
	records = len(f.tree(f.root + "/jobs/.muster/job"))
	if open != jobs || records != jobs || znodes != jobs {
		f.t.Errorf("%d open generations, %d records, %d job znodes; want %d of each", open, records, znodes, jobs)
	}
}

// TestLostSessionDuringACommitIsUnknown: without a session, Commit cannot learn the outcome.
func TestLostSessionDuringACommitIsUnknown(t *testing.T) {
	t.Parallel()
	proxy := rig.Proxy(t, servers.Addrs()[0])
	direct := newFixture(t)
	direct.apply(direct.declare("other", 1))
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{proxy.Addr()}, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	store := direct.newStore(s)
	p := direct.plan(direct.declare("a", 2), direct.declare("other", 1))
	proxy.DropReply(func(op int32, req []byte) bool {
		if isMulti(op, req) {
			proxy.Refuse(true) // before the connection is cut, so that the session cannot reconnect
		}
		return isMulti(op, req)
	})
	for _, r := range p.Rows {
		if r.Action() == plan.Create {
			if err := store.Commit(t.Context(), r); !errors.Is(err, plan.ErrUnknown) {
				t.Errorf("commit: %v, want an unknown outcome", err)
			}
		}
	}
	direct.expect(map[string]plan.Reason{"a": plan.Equal, "other": plan.Equal},
		direct.declare("a", 2), direct.declare("other", 1))
}

// TestCancelledBeforeSendingIsNotStarted: a commit whose context has ended writes nothing, and returns the context's
// error.
func TestCancelledBeforeSendingIsNotStarted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.plan(f.declare("a", 2))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.store.Commit(ctx, p.Rows[0]); !errors.Is(err, context.Canceled) || errors.Is(err, plan.ErrUnknown) {
		t.Errorf("commit: %v, want context canceled", err)
	}
	f.expect(map[string]plan.Reason{"a": plan.NotThere}, f.declare("a", 2))
}

// TestLostReplyOfACreate drops each reply to a create of the lock, the ensemble's id, the mark of an applied plan, and
// their folders.
func TestLostReplyOfACreate(t *testing.T) {
	t.Parallel()
	steps := map[string]func(ctx context.Context, s *zkstate.Store) error{
		"lock": func(ctx context.Context, s *zkstate.Store) error {
			_, release, err := s.Lock(ctx, "p", 10*time.Second, nil)
			if err != nil {
				return err
			}
			return release()
		},
		"ensemble": func(ctx context.Context, s *zkstate.Store) error {
			id, err := s.CreateEnsembleID(ctx)
			if again, err := s.CreateEnsembleID(ctx); err != nil || again != id {
				return fmt.Errorf("id %q, then %q: %w", id, again, err)
			}
			return err
		},
		"applied": func(ctx context.Context, s *zkstate.Store) error {
			id := zkstate.NewID()
			if err := s.MarkApplied(ctx, id); err != nil {
				return err
			}
			if err := s.MarkApplied(ctx, id); !errors.Is(err, plan.ErrApplied) {
				return fmt.Errorf("applied twice: %w", err)
			}
			return nil
		},
	}
	creates := map[string]int{"lock": 5, "ensemble": 3, "applied": 4} // of the folders and of the znode itself
	for name, step := range steps {
		for nth := range creates[name] {
			t.Run(fmt.Sprintf("%s/create %d", name, nth), func(t *testing.T) {
				t.Parallel()
				f, proxy := newProxyFixture(t)
				seen := 0
				fired := proxy.DropReply(func(op int32, _ []byte) bool {
					if op == opCreate {
						seen++
					}
					return op == opCreate && seen == nth+1
				})
				if err := step(t.Context(), f.store); err != nil {
					t.Error(err)
				}
				<-fired
				if left := f.tree(f.root + "/home"); name == "lock" && len(left) != 2 { // lock, lock/tests
					t.Errorf("left behind: %v", left)
				}
			})
		}
	}
}

// TestGateDeletedAfterFinishLooked: somebody deletes the gate by hand after the end of a run has been looked at. One
// worker of two has completed, so the generation goes on: all that is in it stays.
func TestGateDeletedAfterFinishLooked(t *testing.T) {
	t.Parallel()
	f, direct, proxy := newProxyPair(t)
	j := direct.declare("a", 2)
	direct.apply(j)
	m, _ := direct.join(j, "done")
	direct.joinFirst(j, "works")
	direct.complete(m)
	gate := znode.Gate(j.Root, m.Generation)
	before := direct.tree(j.Root)
	deleted := make(chan error, 1)
	byHand := sync.OnceFunc(func() { deleted <- direct.session.Delete(t.Context(), gate, 0) })
	proxy.BeforeSend(func(op int32, req []byte) bool {
		if op == fault.OpExists && bytes.Contains(req, []byte(gate)) {
			byHand()
		}
		return false
	})
	if err := f.store.Finish(t.Context(), j.Path(), m.Generation); err != nil {
		t.Error(err)
	}
	if len(deleted) == 0 {
		t.Fatal("Finish did not look at the gate")
	}
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	rest := slices.DeleteFunc(before, func(path string) bool { return strings.HasSuffix(path, "/gate") })
	if d := cmp.Diff(rest, direct.tree(j.Root)); d != "" {
		t.Errorf("znodes (-before +after):\n%s", d)
	}
}

// snapshot lists every znode below path with the transaction that last wrote it.
func (f *fixture) snapshot(path string) []string {
	f.t.Helper()
	var all []string
	for _, name := range f.tree(path) {
		stat, _, err := f.session.Exists(f.t.Context(), path+"/"+name)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s written by %x", name, stat.Mzxid))
	}
	return all
}

// row is the row of one job in a plan.
func (f *fixture) row(name string, declared []job.Job) plan.Row {
	f.t.Helper()
	for _, r := range f.plan(declared...).Rows {
		if strings.HasSuffix(r.Path, "/"+name) {
			return r
		}
	}
	f.t.Fatalf("no row for %s", name)
	return plan.Row{}
}

// TestRowWithTwoPathsIsRefused: a row that observed one job and declares another changes neither.
func TestRowWithTwoPathsIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(f.declare("a", 2), f.declare("other", 2))
	row := f.row("a", []job.Job{f.declare("a", 3)})
	row.New = f.declare("other", 3)
	before := f.snapshot(f.root)
	if err := f.store.Commit(t.Context(), row); err == nil {
		t.Error("it was committed")
	}
	if d := cmp.Diff(before, f.snapshot(f.root)); d != "" {
		t.Errorf("it wrote (-before +after):\n%s", d)
	}
}

// TestRowChangesOnlyItsPath: a Record of another job in a row, as in an edited plan file, does not change that job.
func TestRowChangesOnlyItsPath(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.declare("other", 2)
	f.apply(f.declare("a", 2), other)
	row := f.row("a", nil)
	if err := row.Old.Record.Declare(other); err != nil {
		t.Fatal(err)
	}
	if err := f.store.Commit(t.Context(), row); err != nil {
		t.Error(err)
	}
	f.expect(map[string]plan.Reason{"other": plan.Equal}, other)
}
