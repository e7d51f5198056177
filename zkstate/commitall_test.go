package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
			before, multis := count(proxy), proxy.Requests()[zkserver.OpMulti]
			for name, err := range f.commitRows(rows) {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			multis = proxy.Requests()[zkserver.OpMulti] - multis
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
	for fault, arm := range map[string]func(p *zkserver.Proxy) <-chan struct{}{
		"before it is sent":     func(p *zkserver.Proxy) <-chan struct{} { return p.BeforeSend(isMulti) },
		"committed, reply lost": func(p *zkserver.Proxy) <-chan struct{} { return p.DropReply(isMulti) },
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
