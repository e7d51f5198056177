package reconcile

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/zkstate/znode"
)

// TestItDoesWhatIsAllowed: missing jobs come, differences go, damage is mended; what is not allowed is told and left.
func TestItDoesWhatIsAllowed(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a", "b", "c:remove")
	e.applies("b:barrier=3m", "gone")
	r := e.start()
	rig.Await(t, "a", func() bool { return e.there("a") })
	rig.Await(t, "b as declared", func() bool { return e.barrier("b") == e.barrier("a") })
	r.waits(e.path("gone"), "it is a delete, which --allow does not name")
	r.waits(e.path("c"), "only an apply does this")
	if err := e.s.Delete(t.Context(), e.path("a"), -1); err != nil { // its znode
		t.Fatal(err)
	}
	rig.Await(t, "the repair of a", func() bool { return e.there("a") && e.look("a").Class() == resource.Ready })
	if !e.there("gone") || e.there("c") {
		t.Errorf("gone is there: %v, c: %v", e.there("gone"), e.there("c"))
	}
	if n := r.count(RowWaiting); n != 2 {
		t.Errorf("%d events of rows that wait, want one for each", n)
	}
	found, err := e.store.History(t.Context(), stack, 0)
	if err != nil || len(found) != 2 || found[0].Passes < 2 || found[0].Config != "1: a b c:remove" {
		t.Errorf("the history: %+v, %v", found, err)
	}
}

// TestItDeletesAndReplaces if that is allowed: what is declared no more, and what nobody has joined. Never under live
// workers.
func TestItDeletesAndReplaces(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a:workers=xxx", "b:workers=xxx")
	e.applies("a", "b", "gone", "live")
	leave := e.joins("b", "w")
	defer leave()
	defer e.joins("live", "w")()
	e.start(allowing(Delete, Replace))
	rig.Await(t, "the delete", func() bool { return !e.there("gone") })
	rig.Await(t, "the other number", func() bool { return e.there("a") && workers(e.look("a")) == 3 })
	if workers(e.look("b")) != 2 || e.look("b").Live != 1 || e.look("live").Live != 1 {
		t.Errorf("the live ones are %+v, %+v", e.look("b"), e.look("live"))
	}
}

func workers(o *resource.Observed) int {
	if o == nil || o.Record == nil {
		return 0
	}
	return job.Of(o.Record).Workers
}

// TestStaleJobsWait for as long as is said, since nobody is live.
func TestStaleJobsWait(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a")
	e.applies("a")
	e.joins("a", "w")()
	before := e.look("a").Record.Generation
	r := e.start(allowing(Restart), func(c *Config) { c.RestartAfter = 3 * time.Second })
	r.waits(e.path("a"), "its members may come back until")
	waited := time.Now()
	rig.Await(t, "another generation", func() bool { o := e.look("a"); return o != nil && o.Record.Generation != before })
	if since := time.Since(waited); since < 2*time.Second {
		t.Errorf("it was restarted after %s", since)
	}
}

// TestAnApplyByHandIsLeft: what a person has applied from other files stays, but is repaired, until the files change or
// somebody says so.
func TestAnApplyByHandIsLeft(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a:barrier=3m", "b")
	r := e.start()
	rig.Await(t, "all", func() bool { return e.barrier("a") == 3*time.Minute && e.there("b") })
	r.settles(e)
	e.applies("a:barrier=5m", "b")
	r.waits(e.path("a"), "left as ann@desk has applied it")
	if err := e.s.Delete(t.Context(), e.path("b"), -1); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "the repair of b", func() bool { return e.look("b").Class() == resource.Ready })
	r.settles(e)
	if e.barrier("a") != 5*time.Minute {
		t.Fatalf("a has %s", e.barrier("a"))
	}
	e.declare("2", "a:barrier=4m", "b")
	rig.Await(t, "the new files", func() bool { return e.barrier("a") == 4*time.Minute })
	r.settles(e)
	e.applies("a:barrier=5m", "b")
	r.settles(e)
	if e.barrier("a") != 5*time.Minute {
		t.Fatalf("a has %s", e.barrier("a"))
	}
	found, err := e.store.History(t.Context(), stack, 1)
	if err != nil {
		t.Fatal(err)
	}
	e.edit(func(k *znode.Reconcile) { k.Seen = found[0].Number + 1 }) // as muster resume does
	rig.Await(t, "the files again", func() bool { return e.barrier("a") == 4*time.Minute })
}

func (e *estate) edit(f func(k *znode.Reconcile)) {
	e.t.Helper()
	if _, err := e.store.EditReconcile(e.t.Context(), func(k *znode.Reconcile) bool { f(k); return true }); err != nil {
		e.t.Fatal(err)
	}
}

// TestHolds: what is paused stays as it is, all or one; a hold may end by itself.
func TestHolds(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a", "b")
	hold := znode.Hold{Why: znode.Paused, By: "ann", Since: time.Now(), Because: "the racks move"}
	e.edit(func(k *znode.Reconcile) { k.Held = map[string]znode.Hold{e.path("a"): hold} })
	r := e.start()
	rig.Await(t, "b", func() bool { return e.there("b") })
	r.waits(e.path("a"), "paused by ann since")
	r.waits(e.path("a"), "the racks move")
	brief := hold
	brief.Until = time.Now().Add(3 * time.Second)
	e.edit(func(k *znode.Reconcile) { k.Held, k.All = nil, &brief })
	e.declare("2", "a", "b", "c")
	r.waits(e.path("c"), "paused by ann")
	if e.there("a") || e.there("c") {
		t.Error("a paused job is there")
	}
	rig.Await(t, "all after the pause", func() bool { return e.there("a") && e.there("c") })
	if r.count(RowHeld) == 0 {
		t.Error("no event tells of a hold")
	}
}

// TestItGivesWay: what a person says while a pass waits for the lock counts.
func TestItGivesWay(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a")
	r := e.start()
	rig.Await(t, "a", func() bool { return e.there("a") })
	r.settles(e)
	_, release, err := e.store.Lock(t.Context(), "plan", rig.Patience, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.declare("2", "a", "b")
	rig.Await(t, "it waits for the lock", func() bool {
		places, _, err := e.s.Children(t.Context(), znode.Lock(e.root+"/home", stack))
		return err == nil && len(places) == 2
	})
	hold := znode.Hold{Why: znode.Paused, By: "ann", Since: time.Now()}
	e.edit(func(k *znode.Reconcile) { k.All = &hold })
	if err := release(); err != nil {
		t.Fatal(err)
	}
	r.waits(e.path("b"), "paused by ann")
	if e.there("b") {
		t.Error("b is there")
	}
	e.edit(func(k *znode.Reconcile) { k.All = nil })
	rig.Await(t, "b", func() bool { return e.there("b") })
}

// TestTerminatedStaysSo until a person applies it, or resumes it.
func TestTerminatedStaysSo(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a", "b")
	r := e.start()
	rig.Await(t, "all", func() bool { return e.there("a") && e.there("b") })
	for _, name := range []string{"a", "b"} {
		if err := e.store.Terminate(t.Context(), e.path(name), rig.Patience, nil); err != nil {
			t.Fatal(err)
		}
		r.waits(e.path(name), "terminated by ann@desk")
	}
	r.settles(e)
	if e.there("a") || e.there("b") {
		t.Fatal("a terminated job is there")
	}
	e.edit(func(k *znode.Reconcile) { delete(k.Held, e.path("b")) })
	rig.Await(t, "b", func() bool { return e.there("b") })
	c := e.want("a", "b")
	rig.Create(t, e.store, c.Want.Declared[0])
	rig.Await(t, "the end of the hold", func() bool { return len(e.kept().Held) == 0 })
	if err := e.s.Delete(t.Context(), e.path("a"), -1); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "the repair", func() bool { return e.look("a").Class() == resource.Ready })
}

// TestATerminationThatFailsHoldsNothing.
func TestATerminationThatFailsHoldsNothing(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a")
	r := e.start()
	rig.Await(t, "a", func() bool { return e.there("a") })
	r.settles(e)
	defer e.joins("a", "deaf")()
	if err := e.store.Terminate(t.Context(), e.path("a"), time.Second, nil); err == nil {
		t.Fatal("a worker that does not listen has left")
	}
	if kept := e.kept(); len(kept.Held) > 0 {
		t.Errorf("held: %+v", kept.Held)
	}
}

// TestContested: who undoes a change again and again wins.
func TestContested(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a:barrier=3m")
	r := e.start()
	for range contestedAfter {
		rig.Await(t, "a as declared", func() bool { return e.barrier("a") == 3*time.Minute })
		r.settles(e)
		rig.Update(t, e.store, e.job("a:barrier=5m"))
	}
	r.waits(e.path("a"), "somebody undoes it")
	r.settles(e)
	if e.barrier("a") != 5*time.Minute {
		t.Errorf("it has %s", e.barrier("a"))
	}
}

// TestFiles: what is half there is not taken, what does not load changes nothing, and nothing declared is no
// configuration. Other servers end it.
func TestFiles(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	r := e.start(allowing(Words()...))
	rig.Await(t, "the refusal of nothing", func() bool { return strings.Contains(r.Now().Problem, "declares nothing") })
	ready := func() string {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	if got := ready(); got != "503 no configuration is loaded\n" {
		t.Error(got)
	}
	e.declare("1", "a", "b")
	rig.Await(t, "both", func() bool { return e.there("a") && e.there("b") })
	if got := ready(); got != "200 ready\n" {
		t.Error(got)
	}
	e.load(func() (*Configuration, error) { return nil, errHalf })
	rig.Await(t, "the refusal", func() bool { return r.Now().Problem == errHalf.Error() })
	var n atomic.Int64
	e.load(func() (*Configuration, error) { // it changes with each reading, and lacks what the next one has
		c := e.want("a")
		c.Digest = fmt.Sprint(n.Add(1))
		return c, nil
	})
	rig.Await(t, "some readings", func() bool { return n.Load() > 20 })
	r.settles(e)
	if !e.there("b") {
		t.Error("files that were half there have deleted b")
	}
	if r.count(ConfigRefused) != 2 || r.count(ConfigLoaded) != 1 {
		t.Errorf("%d refused, %d loaded", r.count(ConfigRefused), r.count(ConfigLoaded))
	}
	e.load(func() (*Configuration, error) { return nil, fmt.Errorf("%w: other servers", ErrElsewhere) })
	if err := rig.Receive(t, r.ended, "its end"); !errors.Is(err, ErrElsewhere) {
		t.Error(err)
	}
}

// TestGuards: if too much is to be deleted or replaced nothing of that is, and it stays so after a restart, until
// somebody says that it is meant.
func TestGuards(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a")
	e.applies("a", "b", "c", "d")
	guarded := func(c *Config) { c.Allow, c.MaxDelete = Words(), 2 }
	r := e.start(guarded)
	r.waits(e.path("b"), "more than 2 would be deleted within an hour")
	r.stop()
	rig.Receive(t, r.ended, "its end")
	r = e.start(guarded)
	r.waits(e.path("b"), "more than 2 would be deleted within an hour")
	e.declare("2", "a", "b")
	rig.Await(t, "the two deletes", func() bool { return !e.there("c") && !e.there("d") })
	if !e.there("b") {
		t.Error("b is gone")
	}
	e.declare("3", "a")
	r.waits(e.path("b"), "more than 2 would be deleted within an hour")
	r.settles(e)
	if kept := e.kept(); !e.there("b") || len(kept.Deleted) != 2 || kept.Shut[string(Delete)].Why != znode.TooMany {
		t.Errorf("b is there: %v; kept %+v", e.there("b"), kept)
	}
	e.edit(func(k *znode.Reconcile) { // as muster resume does
		k.Shut, k.Meant = nil, map[string]time.Time{string(Delete): time.Now()}
	})
	rig.Await(t, "the last delete", func() bool { return !e.there("b") })
	rig.Await(t, "the end of the permission", func() bool { return len(e.kept().Meant) == 0 })
}

// TestOneActs: of two the first; when it ends, the other one. One with other files waits for them first.
func TestOneActs(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a:barrier=3m")
	first := e.start()
	rig.Await(t, "a", func() bool { return e.barrier("a") == 3*time.Minute })
	old := e.want("a:barrier=9m")
	second := e.start(func(c *Config) {
		c.Patience = 4 * time.Second
		c.Load = func() (*Configuration, error) { return old, nil }
	})
	rig.Await(t, "the second", func() bool { n := second.Now(); return n.Connected && n.Differs })
	if second.Now().Acts {
		t.Error("both act")
	}
	first.stop()
	if err := rig.Receive(t, first.ended, "its end"); err != nil {
		t.Error(err)
	}
	rig.Await(t, "the second acts", func() bool { return second.Now().Acts })
	began := time.Now()
	rig.Await(t, "its files", func() bool { return e.barrier("a") == 9*time.Minute })
	if waited := time.Since(began); waited < 2*time.Second {
		t.Errorf("it waited %s for other files", waited)
	}
	if first.count(LeaderChanged) != 1 || second.count(LeaderChanged) != 1 {
		t.Error("the events do not say who acts")
	}
}

// TestASessionIsLost: it goes on in another one, and counts anew since when nobody is live.
func TestASessionIsLost(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a")
	p := rig.Proxy(t, servers.Addrs()[0])
	r := e.start(func(c *Config) { c.Connect = connectTo(p.Addr()) })
	rig.Await(t, "a", func() bool { return e.there("a") })
	p.Refuse(true)
	p.Cut()
	rig.Await(t, "its session ends", func() bool {
		_, acts, err := e.store.Acting(t.Context(), stack)
		return err == nil && !acts
	})
	e.declare("2", "a", "b")
	if e.there("b") {
		t.Error("b is there without a session")
	}
	p.Refuse(false)
	rig.Await(t, "b", func() bool { return e.there("b") })
	if r.count(LeaderChanged) != 2 {
		t.Errorf("it began to act %d times", r.count(LeaderChanged))
	}
}

// TestAFailingRowDelaysNoOther, and is tried again, ever more rarely.
func TestAFailingRowDelaysNoOther(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a:barrier=3m", "b:barrier=3m")
	e.applies("a", "b")
	c, _, err := zk.Connect(servers.Addrs(), 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	at := znode.Record(job.KindName, e.root, "b")
	if _, err := c.SetACL(at, zk.WorldACL(zk.PermRead|zk.PermAdmin), -1); err != nil {
		t.Fatal(err)
	}
	r := e.start()
	rig.Await(t, "a", func() bool { return e.barrier("a") == 3*time.Minute })
	rig.Await(t, "several tries", func() bool { return r.count(RowFailed) >= 3 })
	r.waits(e.path("b"), "it is tried again at")
	if _, err := c.SetACL(at, zk.WorldACL(zk.PermAll), -1); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "b", func() bool { return e.barrier("b") == 3*time.Minute })
}

// TestPoliciesOfTheFiles: a denied row waits while others go on, and comes when other policies are read.
func TestPoliciesOfTheFiles(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a", "b")
	policies := func(name string) {
		c := e.want("a", "b")
		c.Policies = name
		c.Judge = func(plan.Plan) (string, map[string]string) {
			return "", map[string]string{e.path(name): "denied by " + name}
		}
		e.load(func() (*Configuration, error) { return c, nil })
	}
	policies("a")
	r := e.start()
	r.waits(e.path("a"), "denied by a")
	rig.Await(t, "b", func() bool { return e.there("b") })
	if e.there("a") {
		t.Error("a denied job is there")
	}
	policies("nothing")
	rig.Await(t, "a", func() bool { return e.there("a") })
}
