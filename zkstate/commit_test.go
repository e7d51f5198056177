package zkstate_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/job"
	"muster/plan"
	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

func TestLifeOfAJob(t *testing.T) {
	b := newBed(t)
	a, c := b.declare("a", 2), b.declare("c", 1)

	b.expect(map[string]plan.Reason{"a": plan.NotThere, "c": plan.NotThere}, a, c)
	b.apply(a, c)
	b.expect(map[string]plan.Reason{"a": plan.Equal, "c": plan.Equal}, a, c)

	a.Labels = map[string]string{"team": "data"}
	b.expect(map[string]plan.Reason{"a": plan.MutableDiffers, "c": plan.Equal}, a, c)
	b.apply(a, c)
	a.Workers = 3
	b.expect(map[string]plan.Reason{"a": plan.ReadyDiffers, "c": plan.Equal}, a, c)
	b.apply(a, c)

	m, leave := b.join(a, "w0")
	if m.ID != 0 {
		t.Errorf("the first worker has id %d", m.ID)
	}
	b.expect(map[string]plan.Reason{"a": plan.Equal, "c": plan.Undeclared}, a)
	b.expect(map[string]plan.Reason{"a": plan.LiveDiffers, "c": plan.Equal}, b.declare("a", 4), c)
	b.expect(map[string]plan.Reason{"a": plan.UndeclaredLive, "c": plan.Equal}, c)
	leave()
	b.expect(map[string]plan.Reason{"a": plan.StaleLeftover, "c": plan.Equal}, a, c)
	b.apply(a, c)
	b.expect(map[string]plan.Reason{"a": plan.Equal, "c": plan.Equal}, a, c)

	b.apply()
	b.expect(map[string]plan.Reason{})
	if _, err := b.store.Collect(t.Context(), []string{b.root + "/jobs"}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{".muster", ".muster/job", ".muster/run"}, b.tree(b.root+"/jobs")); d != "" {
		t.Errorf("left behind (-want +got):\n%s", d)
	}
}

// TestStatusOfARun walks one job of two workers through every status that workers can bring about.
func TestStatusOfARun(t *testing.T) {
	b := newBed(t)
	j := b.declare("a", 2)
	b.apply(j)
	status := func(want resource.Status) {
		t.Helper()
		o, err := b.store.Look(t.Context(), j.Path())
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Status(); got != want {
			t.Fatalf("status %s, want %s: %+v", got, want, o)
		}
	}
	status(resource.StatusReady)
	m0, leave0 := b.join(j, "w0")
	status(job.Forming)
	b.complete(m0)
	leave0()
	status(job.Forming) // all who joined have completed, the others may still come
	m1, leave1 := b.join(j, "w1")
	status(job.Running)
	b.complete(m1)
	leave1()
	status(job.Completed)
	b.apply(j)
	status(resource.StatusReady)
	o, err := b.store.Look(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	if last := job.LastRun(o.Record); last == nil || last.Generation != m1.Generation {
		t.Errorf("the record forgot the run that completed: %+v", last)
	}

	_, leave0 = b.join(j, "w0")
	_, leave1 = b.join(j, "w1")
	status(job.Running)
	leave0()
	status(job.Degraded)
	leave1()
	status(resource.StatusStale)
}

func TestCommitRefusesWhatMoved(t *testing.T) {
	for name, test := range map[string]struct {
		workers int // declared when the row is planned; 0: not declared
		move    func(b *bed, j job.Job)
		says    string
	}{
		"worker joined before a replace": {3, func(b *bed, j job.Job) { b.join(j, "w0") }, "a worker joined: w0"},
		"worker joined before a delete":  {0, func(b *bed, j job.Job) { b.join(j, "w1") }, "a worker joined: w1"},
		"worker came and went": {0, func(b *bed, j job.Job) {
			_, leave := b.join(j, "w1")
			leave()
		}, "joined 0 -> 1"},
		"somebody updated": {3, func(b *bed, j job.Job) {
			j.Labels = map[string]string{"by": "me"}
			b.apply(j)
		}, "its record was changed by tester@here at 2023-11-14T22:13:20Z: labels.by none -> me"},
		"somebody edited": {3, func(b *bed, j job.Job) {
			at := znode.Record(job.KindName, j.Root, j.Name)
			body, _, err := b.session.Get(b.t.Context(), at)
			if err == nil {
				_, err = b.session.Set(b.t.Context(), at, bytes.Replace(body, []byte(`"workers":2`), []byte(`"workers":7`), 1), -1)
			}
			if err != nil {
				b.t.Fatal(err)
			}
		}, "its record was edited, not by muster: workers 2 -> 7"},
		"somebody deleted and created": {3, func(b *bed, j job.Job) {
			b.apply()
			b.apply(j)
		}, "the job was made anew by tester@here"},
		"somebody deleted": {3, func(b *bed, _ job.Job) { b.apply() }, "the job is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			j := b.declare("a", 2)
			b.apply(j)
			var declared []job.Job
			if test.workers > 0 {
				declared = append(declared, b.declare("a", test.workers))
			}
			p := b.plan(declared...)
			test.move(b, j)
			before := b.snapshot(b.root)
			err := b.commit(p)[j.Path()]
			if !errors.Is(err, plan.ErrMoved) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("commit: %v; want moved: %s", err, test.says)
			}
			if d := cmp.Diff(before, b.snapshot(b.root)); d != "" {
				t.Errorf("a refused commit wrote (-before +after):\n%s", d)
			}
		})
	}
}

func TestAlreadyDone(t *testing.T) {
	b := newBed(t)
	j := b.declare("a", 2)
	create := b.plan(j)
	b.apply(j)
	remove := b.plan()
	if err := b.commit(create)[j.Path()]; !errors.Is(err, plan.ErrAlreadyDone) {
		t.Errorf("a create of what exists as declared: %v", err)
	}
	b.apply(b.declare("a", 3))
	if err := b.commit(create)[j.Path()]; !errors.Is(err, plan.ErrMoved) {
		t.Errorf("a create of what exists otherwise: %v", err)
	}
	b.apply()
	if err := b.commit(remove)[j.Path()]; !errors.Is(err, plan.ErrAlreadyDone) {
		t.Errorf("a delete of what is gone: %v", err)
	}
}

func TestUpdateToleratesJoins(t *testing.T) {
	b := newBed(t)
	j := b.declare("a", 2)
	b.apply(j)
	j.Timeouts.Join *= 2
	update := b.plan(j)
	b.join(j, "w0")
	if err := b.commit(update)[j.Path()]; err != nil {
		t.Fatal(err)
	}
	b.expect(map[string]plan.Reason{"a": plan.Equal}, j)
}

func TestRecreatedJobIsNotTheSameJob(t *testing.T) {
	b := newBed(t)
	j := b.declare("a", 2)
	b.apply(j)
	remove := b.plan()
	b.apply()
	b.apply(j) // every version is 0 again
	if err := b.commit(remove)[j.Path()]; !errors.Is(err, plan.ErrMoved) || !strings.Contains(err.Error(), "made anew") {
		t.Errorf("deleting another job of the same name: %v", err)
	}
	b.expect(map[string]plan.Reason{"a": plan.Equal}, j)
}

// TestClassicJobs reads and replaces what the classic worker controller leaves behind.
func TestClassicJobs(t *testing.T) {
	b := newBed(t)
	b.apply(b.declare("other", 1)) // makes the root
	s, ctx := b.session, t.Context()
	acl, _ := zkstate.ParseACL(nil)
	j := b.declare("old", 2)
	roll, err := znode.EncodeRoll(job.Text, []znode.Worker{{ID: 0, IP: "10.0.0.1", Port: 9000}})
	if err != nil {
		t.Fatal(err)
	}
	make := func(path string, body []byte, mode zkconn.Mode) {
		t.Helper()
		if _, err := s.Create(ctx, path, body, mode, acl); err != nil {
			t.Fatal(err)
		}
	}
	live := j.Path() + "/_c_4a9c3b0e-7c7e-4f0e-9d5e-0f3a5d2f9b11-10.0.0.1:9000"
	make(j.Path(), roll, zkconn.Persistent)
	make(j.Path()+"-dai-for-worker-id", []byte{0, 0, 0, 1}, zkconn.Persistent)
	make(j.Path()+"-lock", nil, zkconn.Persistent)
	make(live, nil, zkconn.Ephemeral)

	other := b.declare("other", 1)
	b.expect(map[string]plan.Reason{"old": plan.ClassicLive, "other": plan.Equal}, j, other)
	b.expect(map[string]plan.Reason{"old": plan.NotOurs, "other": plan.Equal}, other)
	if err := s.Delete(ctx, live, 0); err != nil {
		t.Fatal(err)
	}
	p := b.expect(map[string]plan.Reason{"old": plan.ClassicLeftover, "other": plan.Equal}, j, other)
	if got := p.Rows[0].Old.Status(); got != resource.StatusStale {
		t.Errorf("a classic roll without live workers is %s, want stale", got)
	}
	b.apply(j, other)
	b.expect(map[string]plan.Reason{"old": plan.Equal, "other": plan.Equal}, j, other)
	for _, name := range b.tree(b.root + "/jobs") {
		if strings.HasPrefix(name, "old-") {
			t.Errorf("the companion %s is left", name)
		}
	}
}
