package zkstate_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/tasks"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// estate is two stacks that share a root, with ACLs as in examples/guarded: ops may do everything, the workers of each
// stack what is theirs, and everybody may look. The stack of the attacker has the resource a, the other one b.
type estate struct {
	*fixture
	attacker     *zkconn.Session // has the rights of a's workers
	mine, theirs *zkstate.Store  // of the two stacks, with the rights of ops
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	f := newFixture(t)
	acl := func(who ...string) (all []string) {
		for _, w := range who {
			user, perms, _ := strings.Cut(w, ":")
			all = append(all, "digest:"+user+":"+digestID(user)+":"+perms)
		}
		return append(all, "world:anyone:r")
	}
	f.session = f.dial(digestOf("ops"))
	folders, err := zkstate.ParseACL(acl("ops:cdrwa"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{
		"", "/home", "/home/stack", "/jobs", "/jobs/.muster", "/jobs/.muster/run", "/jobs/.muster/job",
		"/jobs/.muster/group", "/jobs/.muster/queue",
	} {
		if _, err := f.session.Create(t.Context(), f.root+dir, nil, zkconn.Persistent, folders); err != nil {
			t.Fatal(err)
		}
	}
	e := &estate{fixture: f, attacker: f.dial(digestOf("mallory"))}
	store := func(stack string, acl []string) *zkstate.Store {
		s, err := zkstate.NewStore(f.session, zkstate.Config{
			Home: f.root + "/home", Stack: stack, By: "ops@here", At: time.Unix(1700000000, 0), ACL: acl,
			Kinds: []zkstate.Kind{zkstate.Job(), zkstate.Group(), zkstate.Queue()},
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	e.mine = store("mine", acl("ops:cdrwa", "mallory:cdrw"))
	e.theirs = store("theirs", acl("ops:cdrwa", "alice:cdrw"))
	f.store = e.mine
	return e
}

// digestID is what ZooKeeper makes of the user's password, which is secret.
func digestID(user string) string {
	sum := sha1.Sum([]byte(user + ":secret"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// declareKind is a resource of a kind. Another size is another declaration, for which it has to be replaced or updated.
func (e *estate) declareKind(kind, name string, size int) resource.Declaration {
	root := e.root + "/jobs"
	switch kind {
	case group.KindName:
		g := group.Default()
		g.Root, g.Name, g.Address = root, name, "group."+name
		g.Labels = map[string]string{"size": fmt.Sprint(size)}
		g.Add(group.NewDuty(group.Leader, "main"))
		return g
	case queue.KindName:
		q := queue.Default()
		q.Root, q.Name, q.Address, q.Redis = root, name, "queue."+name, fmt.Sprintf("redis://127.0.0.1:1/%d", size)
		return q
	}
	return e.declare(name, size)
}

// tryApply plans and commits as a stack does, and collects. What a row answers does not matter here.
func (e *estate) tryApply(s *zkstate.Store, stack string, declared ...resource.Declaration) plan.Plan {
	e.t.Helper()
	root := e.root + "/jobs"
	state, err := s.Read(e.t.Context(), []string{root})
	if err != nil {
		e.t.Fatal(err)
	}
	p := plan.Diff(plan.Want{Stack: stack, Home: e.root + "/home", Declared: declared}, state)
	for i, err := range s.CommitAll(e.t.Context(), p.Changes()) {
		if err != nil {
			e.t.Logf("%s: %v", p.Changes()[i].Title(), err)
		}
	}
	if _, err := s.Collect(e.t.Context(), []string{root}); err != nil {
		e.t.Logf("collect: %v", err)
	}
	return p
}

// generationOf is the generation of a resource.
func (e *estate) generationOf(d resource.Declaration) string {
	e.t.Helper()
	o, err := e.theirs.Find(e.t.Context(), d.ID().Path())
	if err != nil || o == nil || o.Record == nil {
		e.t.Fatalf("%s: %+v, %v", d.ID().Name, o, err)
	}
	return o.Record.Generation
}

// all is everything that belongs to d in generation g, with the transaction that wrote each znode last.
func (e *estate) all(d resource.Declaration, g string) []string {
	e.t.Helper()
	id := d.ID()
	var all []string
	for _, top := range []string{id.Path(), znode.Record(d.Kind().Name, id.Root, id.Name), znode.Run(id.Root, g)} {
		stat, there, err := e.session.Exists(e.t.Context(), top)
		if err != nil {
			e.t.Fatal(err)
		}
		if !there {
			all = append(all, top+" is gone")
			continue
		}
		all = append(all, fmt.Sprintf("%s written by %x", top, stat.Mzxid))
		for _, below := range e.snapshot(top) {
			all = append(all, top+"/"+below)
		}
	}
	return all
}

// edit replaces text in the body of a znode, with the rights of the attacker.
func (e *estate) edit(path, old, with string) {
	e.t.Helper()
	body, _, err := e.attacker.Get(e.t.Context(), path)
	if err == nil && !bytes.Contains(body, []byte(old)) {
		err = fmt.Errorf("%s does not say %s", path, old)
	}
	if err == nil {
		_, err = e.attacker.Set(e.t.Context(), path, bytes.ReplaceAll(body, []byte(old), []byte(with)), -1)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// occupy adds what somebody who is live in b leaves there.
func (e *estate) occupy(d resource.Declaration, g string) {
	e.t.Helper()
	id := d.ID()
	everyone := zkconn.World(zkconn.PermRead)
	folders := map[string][]string{
		job.KindName: znode.JobFolders(job.Job{}), group.KindName: znode.GroupFolders(),
		queue.KindName: znode.QueueFolders(),
	}
	ops := []zkconn.Op{zkconn.CreateOp(id.Path()+"/live", nil, zkconn.Ephemeral, everyone)}
	for _, folder := range folders[d.Kind().Name] {
		ops = append(ops, zkconn.CreateOp(resource.Join(znode.Run(id.Root, g), folder), nil, zkconn.Persistent, everyone))
	}
	if _, err := e.session.Multi(e.t.Context(), ops...); err != nil {
		e.t.Fatal(err)
	}
}

// TestARecordThatNamesAnothersGeneration is damaged: the record of its own generation is put back if there is exactly
// one that is open; otherwise nothing is done, and explain says what to do.
func TestARecordThatNamesAnothersGeneration(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{job.KindName, group.KindName, queue.KindName} {
		for name, c := range map[string]struct {
			do     func(e *estate, root, g, h string)
			want   plan.Reason
			lost   []resource.Part
			says   string // of what cannot be put back
			repair string // of what explain says
		}{
			"its own is open": {
				do: func(*estate, string, string, string) {}, want: plan.IsDamaged,
				lost: []resource.Part{resource.PartReference}, repair: "muster apply puts it back",
			},
			"its own is closed": {
				do: func(e *estate, root, g, _ string) {
					if err := e.attacker.Delete(e.t.Context(), znode.Gate(root, g), -1); err != nil {
						e.t.Fatal(err)
					}
				},
				want: plan.DamagedBeyondRepair, lost: []resource.Part{resource.PartReference},
				says: "is that of job b", repair: "another's",
			},
			"a name that nothing has": {
				do:   func(e *estate, root, _, h string) { e.edit(znode.Record(kind, root, "a"), h, "nothing") },
				want: plan.IsDamaged, lost: []resource.Part{resource.PartReference}, repair: "muster apply puts it back",
			},
			"the copy is changed": {
				do: func(e *estate, root, g, h string) {
					e.edit(znode.Record(kind, root, "a"), h, g)
					e.edit(znode.Run(root, g), g, h)
				},
				want: plan.IsDamaged, lost: []resource.Part{resource.PartCopy}, repair: "muster apply puts it back",
			},
			"the copy is garbage": {
				do: func(e *estate, root, g, h string) {
					e.edit(znode.Record(kind, root, "a"), h, g)
					e.edit(znode.Run(root, g), "{", "")
				},
				want: plan.IsDamaged, lost: []resource.Part{resource.PartCopy}, repair: "muster apply puts it back",
			},
			"the copy is of another path": {
				do: func(e *estate, root, g, h string) {
					e.edit(znode.Record(kind, root, "a"), h, g)
					e.edit(znode.Run(root, g), `"name":"a"`, `"name":"c"`)
				},
				want: plan.DamagedBeyondRepair, lost: []resource.Part{resource.PartReference},
				says: "is that of " + kind + " c", repair: "another's",
			},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				e := newEstate(t)
				a, b := e.declareKind(kind, "a", 2), e.declareKind(job.KindName, "b", 2)
				e.tryApply(e.mine, "mine", a)
				e.tryApply(e.theirs, "theirs", b)
				g, h := e.generationOf(a), e.generationOf(b)
				before := e.all(b, h)
				record := znode.Record(kind, a.ID().Root, "a")
				was, _, err := e.session.Get(t.Context(), record)
				if err != nil {
					t.Fatal(err)
				}
				e.edit(record, g, h)
				c.do(e, a.ID().Root, g, h)
				rows := slices.DeleteFunc(e.tryApply(e.mine, "mine", a).Rows, func(r plan.Row) bool {
					return r.Path != a.ID().Path()
				})
				if len(rows) != 1 || rows[0].Reason != c.want {
					t.Fatalf("the plan is %+v, want %s", rows, c.want)
				}
				o := rows[0].Old
				if d := cmp.Diff(c.lost, o.Lost); d != "" || !strings.Contains(o.BeyondRepair, c.says) ||
					(o.BeyondRepair == "") != (c.says == "") {
					t.Errorf("%s; lost (-want +got):\n%s", o.BeyondRepair, d)
				}
				parts, repair, err := e.mine.Parts(t.Context(), a.Kind(), a.ID().Path(), o)
				if err != nil || !strings.Contains(repair, c.repair) {
					t.Errorf("explain says %q of %+v, want %q; %v", repair, parts, c.repair, err)
				}
				if c.want == plan.DamagedBeyondRepair {
					err := e.mine.Terminate(t.Context(), a.ID().Path(), time.Second, nil)
					if !errors.Is(err, zkstate.ErrNotTerminable) {
						t.Errorf("terminate: %v", err)
					}
				}
				if d := cmp.Diff(before, e.all(b, h)); d != "" {
					t.Errorf("b (-before +after):\n%s", d)
				}
				if c.want != plan.IsDamaged {
					return
				}
				for _, at := range []string{record, znode.Run(a.ID().Root, g)} {
					if now, _, err := e.session.Get(t.Context(), at); err != nil || !bytes.Equal(was, now) {
						t.Errorf("%s is\n%s, want\n%s; %v", at, now, was, err)
					}
				}
			})
		}
	}
}

// early reads as who has listed the generations before any was made.
type early struct{ zkstate.Source }

func (e early) Children(ctx context.Context, at string) ([]string, zkconn.Stat, error) {
	if path.Base(at) == "run" {
		return nil, zkconn.Stat{}, nil
	}
	return e.Source.Children(ctx, at)
}

// TestAGenerationMadeAfterTheListing: the plan calls a generation lost, and it is only not the one that the record
// names. A commit would leave it open with nobody to close it, so it is refused. The next plan sees it.
func TestAGenerationMadeAfterTheListing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   string
		reason plan.Reason
		gone   bool // from the configuration
	}{
		{job.KindName, plan.DamagedLeftover, false},
		{job.KindName, plan.Undeclared, true},
		{group.KindName, plan.IsDamaged, false},
		{queue.KindName, plan.IsDamaged, false},
	} {
		t.Run(c.kind+" "+string(c.reason), func(t *testing.T) {
			t.Parallel()
			e := newEstate(t)
			a := e.declareKind(c.kind, "a", 2)
			e.tryApply(e.mine, "mine", a)
			g, root := e.generationOf(a), a.ID().Root
			e.edit(znode.Record(c.kind, root, "a"), g, zkstate.NewID())
			want := plan.Want{Stack: "mine", Home: e.root + "/home", Declared: []resource.Declaration{a}}
			if c.gone {
				want.Declared = nil
			}
			kinds := []zkstate.Kind{zkstate.Job(), zkstate.Group(), zkstate.Queue()}
			state, err := zkstate.NewReader(early{e.session}, want.Home, kinds...).Read(t.Context(), []string{root})
			if err != nil {
				t.Fatal(err)
			}
			rows := plan.Diff(want, state).Changes()
			if len(rows) != 1 || rows[0].Reason != c.reason {
				t.Fatalf("the plan is %+v, want %s", rows, c.reason)
			}
			before := e.all(a, g)
			if err := e.mine.CommitAll(t.Context(), rows)[0]; !errors.Is(err, plan.ErrMoved) {
				t.Errorf("commit: %v, want %v", err, plan.ErrMoved)
			}
			if d := cmp.Diff(before, e.all(a, g)); d != "" {
				t.Errorf("a (-before +after):\n%s", d)
			}
			e.tryApply(e.mine, "mine", a)
			if o, err := e.mine.Look(t.Context(), a.ID().Path()); err != nil || len(o.Lost) > 0 || o.Record.Generation != g {
				t.Errorf("after the next apply: %+v, %v", o, err)
			}
		})
	}
}

// forger is somebody who may write in the generation of one job, and makes its copy name another resource.
type forger struct {
	*fixture
	as  *zkconn.Session
	own job.Job
}

// newForger applies the forger's job, which belongs to the worker and to the deployer.
func newForger(t *testing.T) *forger {
	t.Helper()
	f := &forger{fixture: newFixture(t)}
	f.session = f.dial(digestOf("deployer"))
	f.store = f.newStore(f.session, deployerID+":cdrwa", workerID+":cdrw", "world:anyone:r")
	f.as, f.own = f.dial(digestOf("worker")), f.declare("own", 1)
	f.apply(f.own)
	f.store = f.newStore(f.session, deployerID+":cdrwa", "world:anyone:r")
	return f
}

// forge makes its generation the copy of a record of j, and its own record name no generation any more.
func (f *forger) forge(j job.Job, edits ...func(*resource.Record)) (generation string) {
	f.t.Helper()
	o, err := f.store.Look(f.t.Context(), f.own.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	rec := *o.Record
	err = rec.Declare(j)
	for _, edit := range edits {
		edit(&rec)
	}
	body, encoded := znode.EncodeRecord(rec)
	if err != nil || encoded != nil {
		f.t.Fatal(err, encoded)
	}
	for path, body := range map[string][]byte{
		znode.Run(j.Root, rec.Generation): body, znode.Record(job.KindName, j.Root, f.own.Name): []byte("{"),
	} {
		if _, err := f.as.Set(f.t.Context(), path, body, -1); err != nil {
			f.t.Fatal(err)
		}
	}
	return rec.Generation
}

// TestForgedCopyIsNoJob: a job that is declared and not there yet is created as it is declared, whatever a copy says.
// If it is not declared, the generation with that copy ends, and nothing is created.
func TestForgedCopyIsNoJob(t *testing.T) {
	t.Parallel()
	ours := func(*resource.Record) {}
	for name, c := range map[string]struct {
		declared bool
		edit     func(*resource.Record)
	}{
		"declared": {true, ours}, "undeclared": {false, ours},
		"of another stack": {true, func(r *resource.Record) { r.Stack = "other" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForger(t)
			j, declared := f.declare("b", 2), c.declared
			forged := f.forge(f.declare("b", 7), c.edit)
			var want []job.Job
			if declared {
				want = append(want, j)
			}
			if err := f.commit(f.plan(want...))[j.Path()]; err != nil {
				t.Fatal(err)
			}
			o, err := f.store.Find(t.Context(), j.Path())
			switch {
			case err != nil:
				t.Fatal(err)
			case !declared && o != nil:
				t.Errorf("the job is there: %+v", o)
			case !declared:
			case o == nil, o.Record == nil, len(o.Lost) > 0, o.Record.Generation == forged, job.Of(o.Record).Workers != 2:
				t.Errorf("the job is %+v", o)
			case strings.Contains(strings.Join(o.Record.ACL, " "), workerID):
				t.Errorf("whoever has forged the copy may write the job: %q", o.Record.ACL)
			}
		})
	}
}

// TestForgedRecordIsNotPutBack: the record of a job was deleted by hand, and its generation is gone. A copy in a
// generation with other rights is not put in its place.
func TestForgedRecordIsNotPutBack(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	j := f.declare("b", 2)
	f.apply(j, f.own)
	o, err := f.store.Look(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	g := o.Record.Generation
	f.forge(f.declare("b", 7))
	for _, path := range []string{
		znode.Record(job.KindName, j.Root, j.Name), znode.Gate(j.Root, g), znode.Run(j.Root, g),
	} {
		if err := f.session.Delete(t.Context(), path, -1); err != nil {
			t.Fatal(err)
		}
	}
	p := f.expect(map[string]plan.Reason{"b": plan.IsDamaged, "own": plan.IsUnreadable}, j, f.own)
	err = f.commit(p)[j.Path()]
	if err == nil || !strings.Contains(err.Error(), "another ACL") {
		t.Errorf("the commit ended with %v", err)
	}
	if o, err := f.store.Look(t.Context(), j.Path()); err != nil || o == nil || o.Has(resource.PartRecord) {
		t.Errorf("a record was written: %+v, %v", o, err)
	}
}

// TestNobodyWritesIntoAnothersGeneration: somebody made the record of a name the generation of b. A process of a that
// joins waits, until the record is right again, and who asks something of a is refused.
func TestNobodyWritesIntoAnothersGeneration(t *testing.T) {
	t.Parallel()
	for kind, actions := range map[string]map[string]func(ctx context.Context, e *estate, root string) error{
		job.KindName: {"join": func(ctx context.Context, e *estate, root string) error {
			_, err := worker.Join(ctx, e.attacker, worker.Config{Root: root, Job: "a", Identity: "w"})
			return err
		}},
		group.KindName: {
			"join": func(ctx context.Context, e *estate, root string) error {
				_, err := member.Join(ctx, e.attacker, member.Config{Root: root, Group: "a", Identity: "m", Version: "1.0.0"})
				return err
			},
			"ask": func(ctx context.Context, e *estate, root string) error {
				_, err := member.SendAsk(ctx, e.session, root, "a", znode.Ask{Duty: "main", Do: znode.AskPause, By: "ops"})
				return err
			},
		},
		queue.KindName: {
			"join": func(ctx context.Context, e *estate, root string) error {
				_, err := tasks.Join(ctx, e.attacker, tasks.Config{
					Root: root, Queue: "a", Identity: "e", Role: queue.Executor, Parallel: 1,
				})
				return err
			},
			"operate": func(ctx context.Context, e *estate, root string) error {
				_, err := tasks.NewOperator(ctx, e.session, tasks.OperatorConfig{Root: root, Queue: "a"})
				return err
			},
		},
	} {
		for name, do := range actions {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				e := newEstate(t)
				a, b := e.declareKind(kind, "a", 2), e.declareKind(kind, "b", 2)
				e.tryApply(e.mine, "mine", a)
				e.tryApply(e.theirs, "theirs", b)
				g, h := e.generationOf(a), e.generationOf(b)
				root := a.ID().Root
				e.edit(znode.Record(kind, root, "a"), g, h)
				before := e.all(b, h)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				err := do(ctx, e, root)
				waits := errors.Is(err, worker.ErrNotOpen) || errors.Is(err, member.ErrNotOpen) || errors.Is(err, tasks.ErrNotOpen)
				if name == "join" && !waits || name != "join" && !errors.Is(err, zkstate.ErrNotOwn) {
					t.Errorf("%s: %v", name, err)
				}
				if d := cmp.Diff(before, e.all(b, h)); d != "" {
					t.Errorf("b (-before +after):\n%s", d)
				}
				var rec resource.Record
				rec.Declaration, rec.Generation = a, g
				if err := zkstate.CheckOwn(t.Context(), e.session, &rec); err != nil {
					t.Errorf("its own: %v", err)
				}
			})
		}
	}
}

// TestARecordThatCannotBeReadIsNotGivenUp: explain says to delete it only if its generation has a copy.
func TestARecordThatCannotBeReadIsNotGivenUp(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{job.KindName, group.KindName, queue.KindName} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := newEstate(t)
			a := e.declareKind(kind, "a", 2)
			e.tryApply(e.mine, "mine", a)
			at, root, g := a.ID().Path(), a.ID().Root, e.generationOf(a)
			says := func(want string) {
				t.Helper()
				o, err := e.mine.Look(t.Context(), at)
				if err != nil || o.Class() != resource.Unreadable {
					t.Fatalf("%+v, %v", o, err)
				}
				_, repair, err := e.mine.Parts(t.Context(), a.Kind(), at, o)
				if err != nil || !strings.HasPrefix(repair, want) {
					t.Errorf("explain says %q, want %q; %v", repair, want, err)
				}
			}
			e.edit(znode.Record(kind, root, "a"), "{", "")
			says("delete the record, and nothing else")
			e.edit(znode.Run(root, g), "{", "")
			says("once nobody is live in it, delete what is present of it")
		})
	}
}
