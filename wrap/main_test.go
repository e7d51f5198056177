package wrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/wrap/command"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// servers is the one ensemble of this test binary; every test has a root of its own.
var servers *zkserver.Ensemble

func TestMain(m *testing.M) {
	if behaviour, ok := os.LookupEnv(childVariable); ok {
		child(behaviour)
		return
	}
	os.Exit(rig.Main(m, rig.ZooKeeper(&servers, zkserver.Options{})))
}

// dial opens a session of this length.
func dial(ctx context.Context, timeout time.Duration, addrs ...string) (*zkconn.Session, error) {
	return zkconn.Dial(ctx, zkconn.Config{Servers: addrs, Timeout: timeout})
}

// testJob is a job, and a session to look at it with.
type testJob struct {
	t       *testing.T
	s       *zkconn.Session
	store   *zkstate.Store
	job     job.Job
	session time.Duration // timeout of a worker's session: shorter than the job's, so that one is soon lost
}

// newTestJob makes a job of n workers in a root of its own, unless n is 0: then there is only the root's name.
func newTestJob(t *testing.T, n int) *testJob {
	t.Helper()
	s := rig.Dial(t, 10*time.Second, servers.Addrs()...)
	f := &testJob{t: t, s: s, job: job.Default(), session: 2 * time.Second}
	f.job.Root, f.job.Name, f.job.Workers = "/test-"+zkstate.NewID(), "j", max(n, 1)
	f.job.Lifecycle.OnComplete = job.Retain
	f.store = rig.Store(t, s, f.job.Root, zkstate.Job())
	if n > 0 {
		f.create()
	}
	return f
}

func (f *testJob) create() { rig.Create(f.t, f.store, f.job) }

func (f *testJob) look() *resource.Observed { return rig.Look(f.t, f.store, f.job.Path()) }

// claim says how an identity stands: "in", "left 1", "left SIGKILL", "done 0"; empty if it never joined.
func (f *testJob) claim(identity string) string {
	f.t.Helper()
	body, _, err := f.s.Get(f.t.Context(), znode.ByIdentity(f.job.Root, f.look().Record.Generation, identity))
	if errors.Is(err, zkconn.ErrNoNode) {
		return ""
	}
	var c znode.Claim
	if err == nil {
		c, err = znode.Decode[znode.Claim](body)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	switch {
	case c.Exit != nil:
		return fmt.Sprint(c.State, " ", *c.Exit)
	case c.Signal != "":
		return fmt.Sprint(c.State, " ", c.Signal)
	}
	return string(c.State)
}

// takeOver writes the claim of an identity as another process would.
func (f *testJob) takeOver(identity string) {
	f.t.Helper()
	claim, err := znode.Encode(znode.Claim{Nonce: "another", Lives: 2, State: znode.In})
	if err == nil {
		_, err = f.s.Set(f.t.Context(), znode.ByIdentity(f.job.Root, f.look().Record.Generation, identity), claim, -1)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestTypesOfExportedFieldsAreExported: a program that reads a kind or a stage must be able to write down its type.
func TestTypesOfExportedFieldsAreExported(t *testing.T) {
	for _, v := range []any{
		Config{}, command.Result{}, Self{}, Members{}, Wait{}, Barrier{}, Refusal{}, StateKeys{}, Operations{},
		OperationRun{}, StepRun{}, UseOf{}, OpenOperation{}, RunOfOperation{}, DutyCommand{},
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(v)) {
			typ := field.Type
			holds := []reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Chan}
			for typ.Name() == "" && slices.Contains(holds, typ.Kind()) {
				typ = typ.Elem()
			}
			first, _ := utf8.DecodeRuneInString(typ.Name())
			if typ.PkgPath() != "" && field.IsExported() && !unicode.IsUpper(first) {
				t.Errorf("%T.%s is a %s", v, field.Name, typ)
			}
		}
	}
}
