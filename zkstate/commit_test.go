package zkstate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

func TestLifeOfAJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, c := f.declare("a", 2), f.declare("c", 1)

	f.expect(map[string]plan.Reason{"a": plan.NotThere, "c": plan.NotThere}, a, c)
	f.apply(a, c)
	f.expect(map[string]plan.Reason{"a": plan.Equal, "c": plan.Equal}, a, c)

	a.Labels = map[string]string{"team": "data"}
	f.expect(map[string]plan.Reason{"a": plan.MutableDiffers, "c": plan.Equal}, a, c)
	f.apply(a, c)
	a.Workers = 3
	f.expect(map[string]plan.Reason{"a": plan.ReadyDiffers, "c": plan.Equal}, a, c)
	f.apply(a, c)

	m, leave := f.join(a, "w0")
	if m.ID != 0 {
		t.Errorf("the first worker has id %d", m.ID)
	}
	f.expect(map[string]plan.Reason{"a": plan.Equal, "c": plan.Undeclared}, a)
	f.expect(map[string]plan.Reason{"a": plan.LiveDiffers, "c": plan.Equal}, f.declare("a", 4), c)
	f.expect(map[string]plan.Reason{"a": plan.UndeclaredLive, "c": plan.Equal}, c)
	leave()
	f.expect(map[string]plan.Reason{"a": plan.StaleLeftover, "c": plan.Equal}, a, c)
	f.apply(a, c)
	f.expect(map[string]plan.Reason{"a": plan.Equal, "c": plan.Equal}, a, c)

	f.apply()
	f.expect(map[string]plan.Reason{})
	if _, err := f.store.Collect(t.Context(), []string{f.root + "/jobs"}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{".muster", ".muster/job", ".muster/run"}, f.tree(f.root+"/jobs")); d != "" {
		t.Errorf("left behind (-want +got):\n%s", d)
	}
}

// TestStatusOfARun takes a job of two workers through every status that workers can cause.
func TestStatusOfARun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("a", 2)
	f.apply(j)
	status := func(want resource.Status) {
		t.Helper()
		o, err := f.store.Look(t.Context(), j.Path())
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Status(); got != want {
			t.Fatalf("status %s, want %s: %+v", got, want, o)
		}
	}
	status(resource.StatusReady)
	m0, leave0 := f.join(j, "w0")
	status(job.Forming)
	f.complete(m0)
	leave0()
	status(job.Forming) // all that joined have completed; the other worker can still join
	m1, leave1 := f.join(j, "w1")
	status(job.Running)
	f.complete(m1)
	leave1()
	status(job.Completed)
	f.apply(j)
	status(resource.StatusReady)
	o, err := f.store.Look(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	if last := job.LastRun(o.Record); last == nil || last.Generation != m1.Generation {
		t.Errorf("the record forgot the run that completed: %+v", last)
	}

	_, leave0 = f.join(j, "w0")
	_, leave1 = f.join(j, "w1")
	status(job.Running)
	leave0()
	status(job.Degraded)
	leave1()
	status(resource.StatusStale)
}

func TestCommitRefusesWhatMoved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		workers int // declared when the row is planned; 0: not declared
		move    func(f *fixture, j job.Job)
		says    string
	}{
		"worker joined before a replace": {3, func(f *fixture, j job.Job) { f.joinFirst(j, "w0") }, "a worker joined: w0"},
		"worker joined before a delete":  {0, func(f *fixture, j job.Job) { f.joinFirst(j, "w1") }, "a worker joined: w1"},
		"worker came and went": {0, func(f *fixture, j job.Job) {
			_, leave := f.join(j, "w1")
			leave()
		}, "joined 0 -> 1"},
		"somebody updated": {3, func(f *fixture, j job.Job) {
			j.Labels = map[string]string{"by": "me"}
			f.apply(j)
		}, "its record was changed by tester@here at 2023-11-14T22:13:20Z: labels.by none -> me"},
		"somebody edited": {3, func(f *fixture, j job.Job) {
			at := znode.Record(job.KindName, j.Root, j.Name)
			body, _, err := f.session.Get(f.t.Context(), at)
			if err == nil {
				edited := bytes.Replace(body, []byte(`"workers":2`), []byte(`"workers":7`), 1)
				_, err = f.session.Set(f.t.Context(), at, edited, -1)
			}
			if err != nil {
				f.t.Fatal(err)
			}
		}, "its record was edited, not by muster: workers 2 -> 7"},
		"somebody deleted and created": {3, func(f *fixture, j job.Job) {
			f.apply()
			f.apply(j)
		}, "the job was made anew by tester@here"},
		"somebody deleted": {3, func(f *fixture, _ job.Job) { f.apply() }, "the job is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			j := f.declare("a", 2)
			f.apply(j)
			var declared []job.Job
			if test.workers > 0 {
				declared = append(declared, f.declare("a", test.workers))
			}
			p := f.plan(declared...)
			test.move(f, j)
			before := f.snapshot(f.root)
			err := f.commit(p)[j.Path()]
			if !errors.Is(err, plan.ErrMoved) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("commit: %v; want moved: %s", err, test.says)
			}
			if d := cmp.Diff(before, f.snapshot(f.root)); d != "" {
				t.Errorf("a refused commit wrote (-before +after):\n%s", d)
			}
		})
	}
}

func TestAlreadyDone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("a", 2)
	create := f.plan(j)
	f.apply(j)
	remove := f.plan()
	if err := f.commit(create)[j.Path()]; !errors.Is(err, plan.ErrAlreadyDone) {
		t.Errorf("a create of what exists as declared: %v", err)
	}
	f.apply(f.declare("a", 3))
	if err := f.commit(create)[j.Path()]; !errors.Is(err, plan.ErrMoved) {
		t.Errorf("a create of what exists otherwise: %v", err)
	}
	f.apply()
	if err := f.commit(remove)[j.Path()]; !errors.Is(err, plan.ErrAlreadyDone) {
		t.Errorf("a delete of what is gone: %v", err)
	}
}

func TestUpdateToleratesJoins(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("a", 2)
	f.apply(j)
	j.Timeouts.Join *= 2
	update := f.plan(j)
	f.join(j, "w0")
	if err := f.commit(update)[j.Path()]; err != nil {
		t.Fatal(err)
	}
	f.expect(map[string]plan.Reason{"a": plan.Equal}, j)
}

func TestRecreatedJobIsNotTheSameJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("a", 2)
	f.apply(j)
	remove := f.plan()
	f.apply()
	f.apply(j) // every version is 0 again
	err := f.commit(remove)[j.Path()]
	if !errors.Is(err, plan.ErrMoved) || !strings.Contains(err.Error(), "made anew") {
		t.Errorf("deleting another job of the same name: %v", err)
	}
	f.expect(map[string]plan.Reason{"a": plan.Equal}, j)
}

// TestClassicJobs reads and replaces a job of the classic controller.
func TestClassicJobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(f.declare("other", 1)) // creates the root
	s, ctx := f.session, t.Context()
	acl, _ := zkstate.ParseACL(nil)
	j := f.declare("old", 2)
	roll, err := znode.EncodeRoll(job.Text, []znode.Worker{{ID: 0, IP: "10.0.0.1", Port: 9000}})
	if err != nil {
		t.Fatal(err)
	}
	create := func(path string, body []byte, mode zkconn.Mode) {
		t.Helper()
		if _, err := s.Create(ctx, path, body, mode, acl); err != nil {
			t.Fatal(err)
		}
	}
	live := j.Path() + "/_c_4a9c3b0e-7c7e-4f0e-9d5e-0f3a5d2f9b11-10.0.0.1:9000"
	create(j.Path(), roll, zkconn.Persistent)
	create(j.Path()+"-dai-for-worker-id", []byte{0, 0, 0, 1}, zkconn.Persistent)
	create(j.Path()+"-lock", nil, zkconn.Persistent)
	create(live, nil, zkconn.Ephemeral)

	other := f.declare("other", 1)
	f.expect(map[string]plan.Reason{"old": plan.ClassicLive, "other": plan.Equal}, j, other)
	f.expect(map[string]plan.Reason{"old": plan.NotOurs, "other": plan.Equal}, other)
	if err := s.Delete(ctx, live, 0); err != nil {
		t.Fatal(err)
	}
	p := f.expect(map[string]plan.Reason{"old": plan.ClassicLeftover, "other": plan.Equal}, j, other)
	if got := p.Rows[0].Old.Status(); got != resource.StatusStale {
		t.Errorf("a classic roll without live workers is %s, want stale", got)
	}
	f.apply(j, other)
	f.expect(map[string]plan.Reason{"old": plan.Equal, "other": plan.Equal}, j, other)
	for _, name := range f.tree(f.root + "/jobs") {
		if strings.HasPrefix(name, "old-") {
			t.Errorf("the companion %s is left", name)
		}
	}
}

// many is n jobs of this many workers.
func (f *fixture) many(n, workers int, edits ...func(*job.Job)) []job.Job {
	var jobs []job.Job
	for i := range n {
		jobs = append(jobs, f.declare(fmt.Sprintf("j%03d", i), workers, edits...))
	}
	return jobs
}

// commitTogether commits every change of a plan for jobs at once, and returns the errors by name.
func (f *fixture) commitTogether(jobs ...job.Job) map[string]error {
	f.t.Helper()
	return f.commitRows(f.plan(jobs...).Changes())
}

func (f *fixture) commitRows(rows []plan.Row) map[string]error {
	errs := map[string]error{}
	for i, err := range f.store.CommitAll(f.t.Context(), rows) {
		errs[strings.TrimPrefix(rows[i].Path, f.root+"/jobs/")] = err
	}
	return errs
}

// sharedChanges are the changes that share transactions: what is there before, and what is declared then.
func sharedChanges(n int) []struct {
	name         string
	before, want func(f *fixture) []job.Job
} {
	jobs := func(workers int, edits ...func(*job.Job)) func(*fixture) []job.Job {
		return func(f *fixture) []job.Job { return f.many(n, workers, edits...) }
	}
	none := func(*fixture) []job.Job { return nil }
	protect := func(j *job.Job) { j.Labels = map[string]string{"team": "data"} }
	return []struct {
		name         string
		before, want func(f *fixture) []job.Job
	}{
		{"create", none, jobs(2)}, {"update", jobs(2), jobs(2, protect)},
		{"replace", jobs(2), jobs(3)}, {"delete", jobs(2), none},
	}
}

// TestChangesShareTransactions: changes that depend on nothing but what their transaction holds are sent many at a
// time, with nothing read before. A delete of a job that nobody has joined leaves nothing to be collected.
func TestChangesShareTransactions(t *testing.T) {
	t.Parallel()
	const n = 60
	for _, c := range sharedChanges(n) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, proxy := newProxyFixture(t)
			keep := f.declare("keep", 1)
			f.apply(append(c.before(f), keep)...)
			want := append(c.want(f), keep)
			rows := f.plan(want...).Changes()
			before, multis := count(proxy), proxy.Requests()[fault.OpMulti]
			for name, err := range f.commitRows(rows) {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			multis = proxy.Requests()[fault.OpMulti] - multis
			if requests := count(proxy) - before; requests > 5 || len(rows) != n {
				t.Errorf("%d changes took %d requests, %d of them transactions; want at most 5", len(rows), requests, multis)
			}
			for _, r := range f.plan(want...).Changes() {
				t.Errorf("%s is %s after the commit", r.Path, r.Reason)
			}
			if got := len(f.tree(f.root + "/jobs/.muster/run")); got != 2*len(want) {
				t.Errorf("%d znodes of generations, want %d", got, 2*len(want))
			}
		})
	}
}

// TestLostReplyOfASharedTransaction: the connection is cut before the transaction is sent, or before its reply. Each
// change is made exactly once.
func TestLostReplyOfASharedTransaction(t *testing.T) {
	t.Parallel()
	for fault, arm := range map[string]func(p *fault.Proxy) <-chan struct{}{
		"before it is sent":     func(p *fault.Proxy) <-chan struct{} { return p.BeforeSend(isMulti) },
		"committed, reply lost": func(p *fault.Proxy) <-chan struct{} { return p.DropReply(isMulti) },
	} {
		for _, c := range sharedChanges(5) {
			t.Run(c.name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				f, proxy := newProxyFixture(t)
				keep := f.declare("keep", 1)
				f.apply(append(c.before(f), keep)...)
				want := append(c.want(f), keep)
				fired := arm(proxy)
				for name, err := range f.commitTogether(want...) {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				select {
				case <-fired:
				default:
					t.Error("the fault did not happen")
				}
				for _, r := range f.plan(want...).Changes() {
					t.Errorf("%s is %s after the commit", r.Path, r.Reason)
				}
				f.noDuplicates(len(want))
			})
		}
	}
}

// TestRowThatMovedDoesNotKeepOthers moves one of five jobs when their transaction is about to reach the server, in
// every way that an operation of it guards against. That one is refused, nothing of it is written, and the others are
// changed.
func TestRowThatMovedDoesNotKeepOthers(t *testing.T) {
	t.Parallel()
	join := func(f *fixture, r plan.Row) (*worker.Member, error) {
		return worker.Join(context.Background(), f.session, worker.Config{
			Root: f.root + "/jobs", Job: "j002", Identity: "w", Info: znode.Worker{IP: "127.0.0.1", Port: 1},
		})
	}
	createAt := func(f *fixture, path string) error {
		_, err := f.session.Create(context.Background(), path, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll))
		return err
	}
	moves := map[string]func(f *fixture, r plan.Row) error{
		"worker joined": func(f *fixture, r plan.Row) error {
			_, err := join(f, r)
			return err
		},
		"worker came and went": func(f *fixture, r plan.Row) error {
			m, err := join(f, r)
			if err == nil {
				err = m.Leave(context.Background(), worker.End{})
			}
			return err
		},
		"record set": func(f *fixture, r plan.Row) error {
			at := znode.Record(job.KindName, f.root+"/jobs", "j002")
			body, _, err := f.session.Get(context.Background(), at)
			if err == nil {
				_, err = f.session.Set(context.Background(), at, body, -1)
			}
			return err
		},
		"gate closed": func(f *fixture, r plan.Row) error {
			return f.session.Delete(context.Background(), znode.Gate(f.root+"/jobs", r.Old.Record.Generation), -1)
		},
		"roll written": func(f *fixture, r plan.Row) error {
			_, err := f.session.Set(context.Background(), r.Path, []byte("\n10.0.0.1,1,0;null,null,null"), -1)
			return err
		},
		"made": func(f *fixture, r plan.Row) error { return createAt(f, r.Path) },
		"record made": func(f *fixture, _ plan.Row) error {
			return createAt(f, znode.Record(job.KindName, f.root+"/jobs", "j002"))
		},
	}
	for _, c := range sharedChanges(5) {
		for how, move := range moves {
			if strings.HasSuffix(how, "made") != (c.name == "create") ||
				c.name == "update" && how != "record set" && how != "gate closed" {
				continue // an update does not depend on workers
			}
			t.Run(c.name+"/"+how, func(t *testing.T) {
				t.Parallel()
				f, direct, proxy := newProxyPair(t)
				keep := f.declare("keep", 1)
				f.apply(append(c.before(f), keep)...)
				rows := f.plan(append(c.want(f), keep)...).Changes()
				var moved error
				var before []string
				at := 0
				proxy.BeforeSend(func(op int32, _ []byte) bool {
					if op == opMulti {
						if at++; at == 1 {
							moved, before = move(direct, rows[2]), direct.ofRow(rows[2])
						}
					}
					return false
				})
				errs := f.commitRows(rows)
				if moved != nil || at == 0 || len(errs) != 5 {
					t.Fatalf("the job was not moved: %v, %d transactions, %d rows", moved, at, len(errs))
				}
				for name, err := range errs {
					if (name == "j002") != errors.Is(err, plan.ErrMoved) || name != "j002" && err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				if d := cmp.Diff(before, direct.ofRow(rows[2])); d != "" {
					t.Errorf("a refused change wrote (-before +after):\n%s", d)
				}
			})
		}
	}
}

// ofRow lists what is there of a job, with the transaction that last wrote each znode.
func (f *fixture) ofRow(r plan.Row) []string {
	f.t.Helper()
	paths := []string{r.Path, znode.Record(job.KindName, f.root+"/jobs", "j002")}
	if r.Old != nil {
		paths = append(paths, znode.Gate(f.root+"/jobs", r.Old.Record.Generation))
	}
	var all []string
	for _, path := range paths {
		stat, _, err := f.session.Exists(f.t.Context(), path)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s written by %x", path, stat.Mzxid))
	}
	return all
}
