package zkstate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate"
)

// leaveWhenAsked leaves when the workers are asked to stop. The result gets the error.
func leaveWhenAsked(ctx context.Context, m *worker.Member) <-chan error {
	left := make(chan error, 1)
	go func() {
		err := m.StopRequested(ctx)
		if err == nil {
			err = m.Leave(ctx, worker.End{Signal: "TERM"})
		}
		left <- err
	}()
	return left
}

// TestTerminateWaitsForWorkers: the workers are asked to stop and leave, and then the job and its generation are
// deleted.
func TestTerminateWaitsForWorkers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("a", 2)
	f.apply(j)
	m0, _ := f.join(j, "w0")
	m1, _ := f.join(j, "w1")
	left := []<-chan error{leaveWhenAsked(t.Context(), m0)}
	var waits []string
	if err := f.store.Terminate(t.Context(), j.Path(), time.Minute, func(live []string) {
		if waits = append(waits, strings.Join(live, " ")); len(waits) == 1 {
			left = append(left, leaveWhenAsked(t.Context(), m1)) // m1 stays until the first call
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		if err := <-l; err != nil {
			t.Error(err)
		}
	}
	if len(waits) == 0 || waits[0] != "w0 w1" && waits[0] != "w1" {
		t.Errorf("waiting got %q", waits)
	}
	if d := cmp.Diff([]string{".muster", ".muster/job", ".muster/run"}, f.tree(j.Root)); d != "" {
		t.Errorf("znodes (-want +got):\n%s", d)
	}
	if err := f.store.Terminate(t.Context(), j.Path(), time.Minute, nil); !errors.Is(err, plan.ErrAlreadyDone) {
		t.Errorf("a job that is gone: %v", err)
	}
}

// TestTerminateTimesOut: if a worker does not leave, the job is kept and is open again.
func TestTerminateTimesOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("a", 2)
	f.apply(j)
	m0, _ := f.join(j, "obeys")
	f.join(j, "stays")
	left := leaveWhenAsked(t.Context(), m0)
	err := f.store.Terminate(t.Context(), j.Path(), time.Second, nil)
	if !errors.Is(err, zkstate.ErrStillLive) || !strings.Contains(err.Error(), "stays") {
		t.Errorf("terminate: %v, want an error that names who stays", err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
	if err := f.store.Terminate(t.Context(), j.Path(), time.Nanosecond, nil); !errors.Is(err, zkstate.ErrStillLive) {
		t.Errorf("terminate without time: %v", err)
	}
	o, err := f.store.Look(t.Context(), j.Path())
	if err != nil || o.Record.State != resource.StateOpen || o.Status() != job.Degraded {
		t.Errorf("observed %+v, %v; want an open, degraded job", o, err)
	}
	f.join(j, "obeys") // it can join again
}

// TestTerminateAtOnce: a job without live workers is deleted without waiting.
func TestTerminateAtOnce(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(f *fixture, j job.Job){
		"ready": func(*fixture, job.Job) {},
		"stale": func(f *fixture, j job.Job) { f.leave(j, "w0") },
		"completed": func(f *fixture, j job.Job) {
			for _, w := range []string{"w0", "w1"} {
				m, _ := f.join(j, w)
				f.complete(m)
			}
		},
		"terminating": func(f *fixture, j job.Job) {
			m, _ := f.join(j, "w0")
			ctx, crash := context.WithCancel(t.Context())
			f.store.Terminate(ctx, j.Path(), time.Minute, func([]string) { crash() })
			if err := m.Leave(t.Context(), worker.End{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			j := f.declare("a", 2)
			f.apply(j)
			before(f, j)
			if err := f.store.Terminate(t.Context(), j.Path(), time.Minute, func(live []string) {
				t.Errorf("waits for %v", live)
			}); err != nil {
				t.Fatal(err)
			}
			f.expect(map[string]plan.Reason{"a": plan.NotThere}, j)
		})
	}
}

func (f *fixture) leave(j job.Job, identity string) {
	f.t.Helper()
	m, _ := f.join(j, identity)
	if err := m.Leave(f.t.Context(), worker.End{}); err != nil {
		f.t.Fatal(err)
	}
}

// TestTerminateRefuses a protected job, a job of another stack, and a znode that is no job.
func TestTerminateRefuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	protected := f.declare("protected", 1, func(j *job.Job) { j.Lifecycle.Protect = true })
	others := f.declare("others", 1)
	f.apply(protected, others)
	f.write(f.root+"/jobs/foreign", []byte("something else"), 0)
	other, err := zkstate.NewStore(f.session, zkstate.Config{
		Home: f.root + "/home", Stack: "other", Kinds: []zkstate.Kind{zkstate.Job()},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		store *zkstate.Store
		want  error
	}{
		"protected": {f.store, zkstate.ErrProtected},
		"others":    {other, zkstate.ErrOtherStack},
		"foreign":   {f.store, zkstate.ErrNotTerminable},
		"nothing":   {f.store, plan.ErrAlreadyDone},
	} {
		before := f.tree(f.root)
		if err := c.store.Terminate(t.Context(), f.root+"/jobs/"+name, time.Second, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if d := cmp.Diff(before, f.tree(f.root)); d != "" {
			t.Errorf("%s changed znodes (-before +after):\n%s", name, d)
		}
	}
}

// TestLostReplyOfATermination cuts each of its transactions: the request, and the delete.
func TestLostReplyOfATermination(t *testing.T) {
	t.Parallel()
	for name, arm := range map[string]func(*fault.Proxy, func(int32, []byte) bool) <-chan struct{}{
		"before": (*fault.Proxy).BeforeSend, "reply lost": (*fault.Proxy).DropReply,
		"after": (*fault.Proxy).AfterReply,
	} {
		for nth := range 2 {
			t.Run(name+"/"+[]string{"request", "delete"}[nth], func(t *testing.T) {
				t.Parallel()
				f, proxy := newProxyFixture(t)
				direct := newFixture(t)
				j := f.declare("a", 1)
				f.apply(j)
				m, _ := direct.join(j, "w0")
				left := leaveWhenAsked(t.Context(), m)
				seen := 0
				fired := arm(proxy, func(op int32, _ []byte) bool {
					if op == opMulti {
						seen++
					}
					return op == opMulti && seen == nth+1
				})
				if err := f.store.Terminate(t.Context(), j.Path(), time.Minute, nil); err != nil {
					t.Fatal(err)
				}
				if err := <-left; err != nil {
					t.Error(err)
				}
				select {
				case <-fired:
				default:
					t.Error("the fault did not happen")
				}
				direct.root = f.root
				direct.expect(map[string]plan.Reason{"a": plan.NotThere}, j)
			})
		}
	}
}
