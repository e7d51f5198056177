package wrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// servers is the one ensemble of this test binary; every test has a root of its own.
var servers *zkserver.Ensemble

func TestMain(m *testing.M) {
	if os.Getenv(guardCommandVariable) != "" {
		_ = os.Unsetenv(guardCommandVariable)
		os.Exit(Guard(os.Args[1], os.Args[2:], os.Environ(), []*os.File{os.Stdin, os.Stdout, os.Stderr}, nil))
	}
	if behaviour, ok := os.LookupEnv(childVariable); ok {
		child(behaviour)
		return
	}
	if os.Getenv(guardVariable) != "" {
		GuardGroups(os.Stdin, nil)
		return
	}
	if os.Getenv(parallelVariable) != "" {
		asParallelInit()
	}
	if script, ok := os.LookupEnv(initVariable); ok {
		asInit(script)
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

// childVariable makes this test binary a command to be wrapped; its value is a behaviour, see child.
const childVariable = "WRAP_TEST_CHILD"

// leftVariable is for a child that another child leaves behind.
const leftVariable = "WRAP_TEST_LEFT"

// child is a command. Its behaviour is a list of words:
//
//	exits:N     at once
//	killed      by SIGKILL, at once
//	obeys:N     exits with N when asked to end
//	ends:N      exits with N at SIGUSR1
//	ignores     goes on whatever signal comes
//	environ     prints what concerns the worker
//	leaves:B    starts another child of behaviour B in its group, first
func child(behaviour string) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, Signals()...)
	var obeys, ends *int
	for _, word := range strings.Fields(behaviour) {
		verb, arg, _ := strings.Cut(word, ":")
		n, _ := strconv.Atoi(arg)
		switch verb {
		case "exits":
			os.Exit(n)
		case "killed":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "obeys":
			obeys = &n
		case "ends":
			ends = &n
		case "environ":
			for _, s := range os.Environ() {
				name, _, _ := strings.Cut(s, "=")
				if strings.HasPrefix(name, "MUSTER_") && !strings.HasPrefix(name, "MUSTER_TEST_") ||
					strings.HasPrefix(name, "MASTER_") || name == "RANK" || name == "WORLD_SIZE" || name == "KEPT" {
					fmt.Println(s)
				}
			}
		case "leaves":
			leaveBehind(arg)
		}
	}
	if os.Getenv(leftVariable) != "" {
		fmt.Println("left", os.Getpid())
		os.NewFile(3, "ready").Close()
	} else {
		fmt.Println("ready", os.Getpid())
	}
	for sig := range signals {
		fmt.Println("got", signalName(sig.(syscall.Signal)))
		if obeys != nil && asksToEnd(sig) {
			os.Exit(*obeys)
		}
		if ends != nil && sig == syscall.SIGUSR1 {
			os.Exit(*ends)
		}
	}
}

// leaveBehind returns when the other child is ready.
func leaveBehind(behaviour string) {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+behaviour, leftVariable+"=1")
	cmd.Stdout, cmd.ExtraFiles = os.Stdout, []*os.File{w}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	w.Close()
	_, _ = io.ReadAll(r) // until the other one closes its end
}

// testCommand is a child under a supervisor.
type testCommand struct {
	t      *testing.T
	pipe   *os.File
	out    *bufio.Reader // of the pipe
	launch launch
}

// newTestCommand makes a launch of a child whose output the test can read.
func newTestCommand(t *testing.T, behaviour string) *testCommand {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	noSleep := "GORACE=atexit_sleep_ms=0" // the race detector sleeps for a second at the end
	environ, files := append(os.Environ(), childVariable+"="+behaviour, noSleep), []*os.File{nil, w, os.Stderr}
	return &testCommand{t, r, bufio.NewReader(r), launch{self, []string{self}, environ, "", files, false}}
}

// says waits for a line of the child's output that starts so, and returns the rest.
func (w *testCommand) says(start string) string {
	w.t.Helper()
	if err := w.pipe.SetReadDeadline(time.Now().Add(long)); err != nil {
		w.t.Fatal(err)
	}
	var said []string
	for {
		line, err := w.out.ReadString('\n')
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, start); ok {
			return strings.TrimSpace(rest)
		}
		said = append(said, line)
		if err != nil {
			w.t.Fatalf("the command never said %q, only %q: %v", start, said, err)
		}
	}
}

// TestTypesOfExportedFieldsAreExported: a program that reads a kind or a stage must be able to write down its type.
func TestTypesOfExportedFieldsAreExported(t *testing.T) {
	for _, v := range []any{
		Config{}, Result{}, Self{}, Members{}, Wait{}, Barrier{}, Refusal{}, StateKeys{}, Operations{}, OperationRun{},
		StepRun{}, UseOf{}, OpenOperation{}, RunOfOperation{}, DutyCommand{},
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
