package zkstate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/job"
	"muster/plan"
	"muster/resource"
	"muster/worker"
	"muster/zkserver"
	"muster/zkstate"
)

// obey leaves when the workers are asked to stop, and returns how that ended.
func obey(ctx context.Context, m *worker.Member) <-chan error {
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

// TestTerminateWaitsForWorkers: they are asked, they leave, and then the job is deleted with all that it had.
func TestTerminateWaitsForWorkers(t *testing.T) {
	b := newBed(t)
	j := b.declare("a", 2)
	b.apply(j)
	m0, _ := b.join(j, "w0")
	m1, _ := b.join(j, "w1")
	left := []<-chan error{obey(t.Context(), m0)}
	var told []string
	if err := b.store.Terminate(t.Context(), j.Path(), time.Minute, func(live []string) {
		if told = append(told, strings.Join(live, " ")); len(told) == 1 {
			left = append(left, obey(t.Context(), m1)) // the other one stays until this was told
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		if err := <-l; err != nil {
			t.Error(err)
		}
	}
	if len(told) == 0 || told[0] != "w0 w1" && told[0] != "w1" {
		t.Errorf("was told %q", told)
	}
	if d := cmp.Diff([]string{".muster", ".muster/job", ".muster/run"}, b.tree(j.Root)); d != "" {
		t.Errorf("znodes (-want +got):\n%s", d)
	}
	if err := b.store.Terminate(t.Context(), j.Path(), time.Minute, nil); !errors.Is(err, plan.ErrAlreadyDone) {
		t.Errorf("a job that is gone: %v", err)
	}
}

// TestTerminateGivesUp: a worker that does not leave keeps the job, which is open again.
func TestTerminateGivesUp(t *testing.T) {
	b := newBed(t)
	j := b.declare("a", 2)
	b.apply(j)
	m0, _ := b.join(j, "obeys")
	b.join(j, "stays")
	left := obey(t.Context(), m0)
	err := b.store.Terminate(t.Context(), j.Path(), time.Second, nil)
	if !errors.Is(err, zkstate.ErrStillLive) || !strings.Contains(err.Error(), "stays") {
		t.Errorf("terminate: %v, want an error that names who stays", err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
	if err := b.store.Terminate(t.Context(), j.Path(), time.Nanosecond, nil); !errors.Is(err, zkstate.ErrStillLive) {
		t.Errorf("terminate without time: %v", err)
	}
	o, err := b.store.Look(t.Context(), j.Path())
	if err != nil || o.Record.State != resource.StateOpen || o.Status() != job.Degraded {
		t.Errorf("observed %+v, %v; want an open, degraded job", o, err)
	}
	b.join(j, "obeys") // may come back
}

// TestTerminateAtOnce: nobody has to be asked in a job without live workers, whatever its timeout.
func TestTerminateAtOnce(t *testing.T) {
	for name, before := range map[string]func(b *bed, j job.Job){
		"ready": func(*bed, job.Job) {},
		"stale": func(b *bed, j job.Job) { b.leave(j, "w0") },
		"completed": func(b *bed, j job.Job) {
			for _, w := range []string{"w0", "w1"} {
				m, _ := b.join(j, w)
				b.complete(m)
			}
		},
		"terminating": func(b *bed, j job.Job) {
			m, _ := b.join(j, "w0")
			ctx, crash := context.WithCancel(t.Context())
			b.store.Terminate(ctx, j.Path(), time.Minute, func([]string) { crash() })
			if err := m.Leave(t.Context(), worker.End{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			j := b.declare("a", 2)
			b.apply(j)
			before(b, j)
			if err := b.store.Terminate(t.Context(), j.Path(), time.Minute, func(live []string) {
				t.Errorf("waits for %v", live)
			}); err != nil {
				t.Fatal(err)
			}
			b.expect(map[string]plan.Reason{"a": plan.NotThere}, j)
		})
	}
}

func (b *bed) leave(j job.Job, identity string) {
	b.t.Helper()
	m, _ := b.join(j, identity)
	if err := m.Leave(b.t.Context(), worker.End{}); err != nil {
		b.t.Fatal(err)
	}
}

// TestTerminateRefuses what is protected, or not the stack's.
func TestTerminateRefuses(t *testing.T) {
	b := newBed(t)
	protected := b.declare("protected", 1, func(j *job.Job) { j.Lifecycle.Protect = true })
	others := b.declare("others", 1)
	b.apply(protected, others)
	b.write(b.root+"/jobs/foreign", []byte("something else"), 0)
	other, err := zkstate.NewStore(b.session, zkstate.Config{
		Home: b.root + "/home", Stack: "other", Kinds: []zkstate.Kind{zkstate.Job()},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		store *zkstate.Store
		want  error
	}{
		"protected": {b.store, zkstate.ErrProtected},
		"others":    {other, zkstate.ErrOtherStack},
		"foreign":   {b.store, zkstate.ErrNotTerminable},
		"nothing":   {b.store, plan.ErrAlreadyDone},
	} {
		before := b.tree(b.root)
		if err := c.store.Terminate(t.Context(), b.root+"/jobs/"+name, time.Second, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if d := cmp.Diff(before, b.tree(b.root)); d != "" {
			t.Errorf("%s changed znodes (-before +after):\n%s", name, d)
		}
	}
}

// TestLostReplyOfATermination cuts each of its transactions: the request, and the delete.
func TestLostReplyOfATermination(t *testing.T) {
	for name, arm := range map[string]func(*zkserver.Proxy, func(int32, []byte) bool) <-chan struct{}{
		"before": (*zkserver.Proxy).BeforeSend, "reply lost": (*zkserver.Proxy).DropReply, "after": (*zkserver.Proxy).AfterReply,
	} {
		for nth := range 2 {
			t.Run(name+"/"+[]string{"request", "delete"}[nth], func(t *testing.T) {
				t.Parallel()
				b, proxy := newProxyBed(t)
				direct := newBed(t)
				j := b.declare("a", 1)
				b.apply(j)
				m, _ := direct.join(j, "w0")
				left := obey(t.Context(), m)
				seen := 0
				fired := arm(proxy, func(op int32, _ []byte) bool {
					if op == opMulti {
						seen++
					}
					return op == opMulti && seen == nth+1
				})
				if err := b.store.Terminate(t.Context(), j.Path(), time.Minute, nil); err != nil {
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
				direct.root = b.root
				direct.expect(map[string]plan.Reason{"a": plan.NotThere}, j)
			})
		}
	}
}
