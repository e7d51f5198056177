package cli_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"muster/dev/zkserver"
	"muster/member"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/needs"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// servers is the ensemble of this test binary. Every test has a root and a home of its own.
var servers *zkserver.Ensemble

// refusingAddr is an address that refuses connections.
var refusingAddr string

// bin is the directory with the real binary.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	complain := func(err error) int { fmt.Fprintln(os.Stderr, err); return 1 }
	if signal.Ignored(syscall.SIGHUP) { // by nohup, and every muster would inherit that
		return complain(startWithoutNohup())
	}
	var err error
	if bin, err = os.MkdirTemp("", "muster-bin-"); err != nil {
		return complain(err)
	}
	defer os.RemoveAll(bin)
	stamp := fmt.Sprintf("-buildvcs=%v", exec.Command("git", "rev-parse", "HEAD").Run() == nil) // as make build does
	build := exec.Command("go", "build", stamp, "-o", filepath.Join(bin, "muster"), "..")
	if out, err := build.CombinedOutput(); err != nil {
		return complain(fmt.Errorf("go build: %w\n%s", err, out))
	}
	var free func() error
	if refusingAddr, free, err = zkserver.Refusing(); err != nil {
		return complain(err)
	}
	defer free()
	stopServers, err := startServers()
	if err != nil {
		return complain(err)
	}
	code := m.Run()
	for _, stop := range []func() error{stopServers, stopRedis} {
		if err := stop(); err != nil {
			return complain(err)
		}
	}
	return code
}

// startWithoutNohup makes this process the same program again, which does not ignore SIGHUP: a signal that is caught is
// not inherited. To catch it is not enough, since a worker that a test runs in this process resets it to what it was.
func startWithoutNohup() error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, os.Environ())
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":      cmdExits,
			"plain":      cmdPlain,
			"start":      cmdStart,
			"signal":     cmdSignal,
			"ends":       cmdEnds,
			"eventually": cmdEventually,
			"needs":      cmdNeeds,
			"zk":         cmdZK,
			"group":      cmdGroup,
			"queue":      cmdQueue,
			"redis":      cmdRedis,
		},
		RequireExplicitExec: true,
	})
}

// setup gives a script its environment, a root as $ROOT and var.root, and a session for the zk command.
func setup(env *testscript.Env) error {
	root := "/t-" + zkstate.NewID()[:12]
	examples, err := filepath.Abs("../examples")
	if err != nil {
		return err
	}
	env.Setenv("EXAMPLES", examples)
	env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
	env.Setenv("SERVERS", scriptServer)
	env.Setenv("PORT", scriptServer[strings.LastIndex(scriptServer, ":")+1:])
	env.Setenv("MUSTER_SERVERS", scriptServer)
	env.Setenv("NOBODY", refusingAddr)
	env.Setenv("ROOT", root)
	env.Setenv("MUSTER_VAR_root", root)
	env.Setenv("USER", "tester")
	s, err := zkconn.Dial(context.Background(), zkconn.Config{Servers: []string{scriptServer}, Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	env.Defer(func() { s.Close() })
	env.Values[sessionKey{}] = s
	env.Values[testKey{}] = env.T()
	env.Values[backgroundKey{}] = map[string]*background{}
	env.Values[membersKey{}] = map[string]*scriptMember{}
	env.Values[queueKey{}] = map[string]*zkconn.Session{}
	return nil
}

type sessionKey struct{}
type testKey struct{}

// cmdNeeds ends a script that cannot run here: needs full-device.
func cmdNeeds(ts *testscript.TestScript, neg bool, args []string) {
	t := ts.Value(testKey{}).(testing.TB)
	switch {
	case !neg && slices.Equal(args, []string{"full-device"}):
		needs.FullDevice(t)
	case !neg && slices.Equal(args, []string{"terminal"}):
		user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
		if err != nil {
			needs.Missing(t, "no terminals: %v", err)
		}
		user.Close()
	default:
		ts.Fatalf("usage: needs full-device|terminal")
	}
}

// cmdExits runs a command that must end with a code: exits 7 muster plan --out p.json.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGS]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d\n%s%s", got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
	if args[1] == "muster" {
		ts.Check(checkNextStep(ts.ReadFile("stderr")))
	}
}

// cmdPlain is exits for output without characters that control a terminal or hide text: plain 2 muster drift.
func cmdPlain(ts *testscript.TestScript, neg bool, args []string) {
	cmdExits(ts, neg, args)
	control := regexp.MustCompile(`[\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{202a}-\x{202e}].*`)
	for _, stream := range []string{"stdout", "stderr"} {
		if at := control.FindString(ts.ReadFile(stream)); at != "" {
			ts.Fatalf("%q reached %s", at, stream)
		}
	}
}

// checkNextStep checks that an error names the next command. The last line of a worker is none, and neither is a
// warning.
func checkNextStep(stderr string) error {
	exempt := regexp.MustCompile(`^(exit \d+ is|warning:)|; run: `)
	for _, e := range regexp.MustCompile(`(?m)^muster: (.*)$`).FindAllStringSubmatch(stderr, -1) {
		if !exempt.MatchString(e[1]) && !strings.Contains(stderr, "\n  next: ") {
			return fmt.Errorf("point 18: this error does not name the next command: %s", stderr)
		}
	}
	return nil
}

// inheritedVariables is the part of the environment that background commands get.
var inheritedVariables = []string{
	"PATH", "HOME", "TMPDIR", "USER", "WORK", "ROOT",
	"MUSTER_SERVERS", "MUSTER_ROOT", "MUSTER_VAR_root", "MUSTER_ZK_AUTH", "MUSTER_RACK", "MUSTER_DATACENTER",
	"MUSTER_REDIS_PASSWORD", "MUSTER_REDIS_HOSTS", "MUSTER_VAR_redis", "MUSTER_VAR_servers", "MUSTER_FILE",
}

// cmdStart runs a command in the background, with its output in NAME.out and NAME.err: start w0 muster worker --job a.
// Testscript's own background commands cannot get SIGTERM or check an exit code.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME COMMAND [ARGS]")
	}
	cmd := scriptCommand(ts, args[1:])
	for stream, to := range map[string]*io.Writer{".out": &cmd.Stdout, ".err": &cmd.Stderr} {
		f, err := os.Create(ts.MkAbs(args[0] + stream))
		ts.Check(err)
		ts.Defer(func() { f.Close() })
		*to = f
	}
	ts.Check(cmd.Start())
	b := &background{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(b.ended)
		_ = cmd.Wait() // ends reads the state
	}()
	ts.Value(backgroundKey{}).(map[string]*background)[args[0]] = b
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		<-b.ended
	})
}

// scriptCommand returns a program with the environment of the script.
func scriptCommand(ts *testscript.TestScript, args []string) *exec.Cmd {
	program := args[0]
	if program == "muster" {
		program = filepath.Join(bin, program)
	}
	cmd := exec.Command(program, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range inheritedVariables {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	return cmd
}

// background is a command in the background.
type background struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

type backgroundKey struct{}

func (b *background) signal(ts *testscript.TestScript, name string) {
	sig := map[string]os.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL,
	}[name]
	if sig == nil {
		ts.Fatalf("signal %s is not known", name)
	}
	ts.Check(b.cmd.Process.Signal(sig))
}

func findBackground(ts *testscript.TestScript, name string) *background {
	b := ts.Value(backgroundKey{}).(map[string]*background)[name]
	if b == nil {
		ts.Fatalf("nothing was started as %s", name)
	}
	return b
}

// cmdSignal sends a signal to a command in the background: signal w0 TERM.
func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signal NAME INT|TERM|HUP|KILL")
	}
	findBackground(ts, args[0]).signal(ts, args[1])
}

// cmdEnds waits for a command in the background and checks its code: ends w0 INT 130. A signal, if given, is sent
// first.
func cmdEnds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: ends NAME [SIGNAL] CODE")
	}
	b := findBackground(ts, args[0])
	if len(args) == 3 {
		b.signal(ts, args[1])
	}
	want, err := strconv.Atoi(args[len(args)-1])
	ts.Check(err)
	select {
	case <-b.ended:
	case <-time.After(2 * time.Minute):
		ts.Fatalf("%s does not end", args[0])
	}
	if got := b.cmd.ProcessState.ExitCode(); got != want {
		stdout, stderr := ts.ReadFile(args[0]+".out"), ts.ReadFile(args[0]+".err")
		ts.Fatalf("%s: exit code %d, want %d\n%s%s", args[0], got, want, stdout, stderr)
	}
}

// cmdEventually repeats a command until its output matches: eventually 'forming' muster status.
func cmdEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually REGEXP COMMAND [ARGS]")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var out []byte
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if out, err = scriptCommand(ts, args[1:]).CombinedOutput(); want.Match(out) {
			return
		}
	}
	ts.Fatalf("never saw %s: %v\n%s", args[0], err, out)
}

// cmdZK reads and changes znodes as another program would:
//
//	zk print PATH                      its data
//	zk tree PATH                       the znodes below it
//	zk writes PATH                     the same, each with the last transactions that changed it and its children
//	zk set|create|ephemeral PATH TEXT  TEXT is a Go string without its quotes
//	zk edit PATH OLD NEW               in its data
//	zk delete PATH                     with everything below it
//	zk remove PATH                     a job, as muster deletes it
//	zk lose PATH PART                  of the generation of a job or group, such as gate or id; "" is all of it
//	zk spoil PATH PART TEXT            set a part of the generation, such as gate
//	zk block PATH PART PREFIX          create what the next sequential znode below a part of the generation would be
//	zk forbid PATH                     nobody may read it
//	zk closed PATH                     create an empty one that everybody may only read
//	zk complete PATH IDENTITY          as a worker whose command ended well; its live znode may be gone
func cmdZK(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: zk print|tree|writes|set|create|ephemeral|edit|delete|remove|lose|spoil|block|forbid|closed|" +
			"complete PATH [ARGS]")
	}
	z := znodes{ts, ts.Value(sessionKey{}).(*zkconn.Session)}
	text := ""
	if len(args) > 2 {
		var err error
		text, err = strconv.Unquote(`"` + strings.ReplaceAll(args[2], `"`, `\"`) + `"`)
		ts.Check(err)
	}
	switch path := args[1]; args[0] {
	case "print":
		body, _ := z.read(path)
		fmt.Fprintln(ts.Stdout(), body)
	case "tree":
		fmt.Fprint(ts.Stdout(), z.tree(path, ""))
	case "writes":
		fmt.Fprint(ts.Stdout(), z.writes(path))
	case "set":
		_, err := z.s.Set(context.Background(), path, []byte(text), -1)
		ts.Check(err)
	case "create":
		z.create(path, text, zkconn.Persistent)
	case "ephemeral":
		z.create(path, text, zkconn.Ephemeral)
	case "edit":
		z.edit(path, args[2], args[3])
	case "delete":
		z.delete(path)
	case "remove":
		z.remove(path)
	case "lose":
		z.delete(strings.TrimSuffix(z.part(path, text), "/"))
	case "spoil":
		_, err := z.s.Set(context.Background(), z.part(path, args[2]), []byte(args[3]), -1)
		ts.Check(err)
	case "block":
		stat, _, err := z.s.Exists(context.Background(), z.part(path, args[2]))
		ts.Check(err)
		next := fmt.Sprintf("/%s%010d", args[3], stat.Cversion+1)
		z.create(z.part(path, args[2])+next, "garbage", zkconn.Persistent)
	case "closed":
		z.create(path, "", zkconn.Persistent, zkconn.World(zkconn.PermRead)...)
	case "forbid":
		z.forbid(path)
	case "complete":
		z.complete(path, args[2])
	default:
		ts.Fatalf("zk %s is not known", args[0])
	}
}

// scriptMember is a member of a group in a script, with the duties that it has taken.
type scriptMember struct {
	member *member.Member
	holds  map[string]*member.Hold
	left   chan struct{} // closed when it has left because it was asked to stop
}

type membersKey struct{}

// cmdGroup is a member of a group, in the process of the test:
//
//	group join NAME PATH [DUTY...]    joins as NAME, and takes these duties; it leaves when it is asked to stop
//	group hold NAME PATH VERSION [DUTY...]
//	                                  the same, but it holds those that it is given, and hands them over when asked
//	group save NAME DUTY KEY=VALUE... saves state
//	group begin NAME DUTY OPERATION   leaves an operation open
//	group stopped NAME                waits until it has left because it was asked to
//	group removed NAME                waits until it is no member any more
//	group leave NAME
func cmdGroup(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: group join|hold|save|begin|stopped|removed|leave NAME [ARGS]")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	all := ts.Value(membersKey{}).(map[string]*scriptMember)
	m := all[args[1]]
	switch {
	case args[0] == "join" && len(args) > 2, args[0] == "hold" && len(args) > 3:
		version, duties := "1.0.0", args[3:]
		if args[0] == "hold" {
			version, duties = args[3], args[4:]
		}
		m, err := joinGroup(ctx, args[1], args[2], version, duties)
		ts.Check(err)
		all[args[1]] = m
		ts.Defer(func() { _ = m.member.Leave() })
		for _, duty := range duties {
			if args[0] == "hold" {
				go holdFor(m.member, duty)
				continue
			}
			m.holds[duty], err = m.member.Take(ctx, duty)
			ts.Check(err)
		}
	case m == nil:
		ts.Fatalf("nobody joined as %s", args[1])
	case args[0] == "save" && len(args) > 3:
		for _, pair := range args[3:] {
			key, value, _ := strings.Cut(pair, "=")
			ts.Check(m.holds[args[2]].Put(ctx, key, []byte(value)))
		}
	case args[0] == "begin" && len(args) == 4:
		_, err := m.holds[args[2]].Open(ctx, args[3], "script", false)
		ts.Check(err)
	case args[0] == "stopped":
		select {
		case <-m.left:
		case <-ctx.Done():
			ts.Fatalf("%s was not asked to stop", args[1])
		}
	case args[0] == "removed":
		select {
		case <-m.member.Context().Done():
		case <-ctx.Done():
			ts.Fatalf("%s is still a member", args[1])
		}
	case args[0] == "leave":
		ts.Check(m.member.Leave())
	default:
		ts.Fatalf("group %s is not known", args[0])
	}
}

// joinGroup joins the group at a path, in a session of its own, as a member that can do these duties.
func joinGroup(ctx context.Context, identity, at, version string, duties []string) (*scriptMember, error) {
	s, err := zkconn.Dial(ctx, zkconn.Config{Servers: []string{scriptServer}, Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	m, err := member.Join(ctx, s, member.Config{
		Root: path.Dir(at), Group: path.Base(at), Identity: identity, Version: version, Can: duties,
		Address: "127.0.0.1:7000",
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	joined := &scriptMember{m, map[string]*member.Hold{}, make(chan struct{})}
	go func() {
		if m.StopRequested(m.Context()) == nil {
			_ = m.Leave()
			close(joined.left)
		}
	}()
	return joined, nil
}

// holdFor takes a duty whenever it is given to a member, until its membership ends.
func holdFor(m *member.Member, duty string) {
	for {
		h, err := m.Take(context.Background(), duty)
		if err != nil {
			return
		}
		select {
		case <-h.HandOver():
			h.Release(context.Background())
		case <-h.Context().Done():
		}
	}
}

type queueKey struct{}

// cmdQueue writes what the processes of a queue write into ZooKeeper. There is no Redis.
//
//	queue join ROLE NAME PATH    is live as NAME until it leaves
//	queue leave NAME
//	queue submit PATH ID STATE   an unfinished batch
//	queue end PATH ID
func cmdQueue(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: queue join|leave|submit|end ARGS")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s := ts.Value(sessionKey{}).(*zkconn.Session)
	all := ts.Value(queueKey{}).(map[string]*zkconn.Session)
	switch {
	case args[0] == "join" && len(args) == 4:
		member, err := zkconn.Dial(ctx, zkconn.Config{Servers: []string{scriptServer}, Timeout: 10 * time.Second})
		ts.Check(err)
		all[args[2]] = member
		ts.Defer(func() { member.Close() })
		process, err := znode.Encode(znode.QueueProcess{
			Nonce: args[2], Role: queue.Role(args[1]), Host: "here", Parallel: 4,
		})
		ts.Check(err)
		seat, err := znode.Encode(znode.QueueSeat{
			Identity: args[2], Nonce: args[2], Role: queue.Role(args[1]),
		})
		ts.Check(err)
		root, g := beginQueue(ctx, ts, s, args[3])
		_, err = member.Multi(ctx, zkconn.CheckOp(znode.Gate(root, g), 0),
			zkconn.CreateOp(znode.NewSeat(root, g), seat, zkconn.EphemeralSequential, zkconn.World(zkconn.PermAll)),
			zkconn.CreateOp(resource.Join(args[3], args[2]), process, zkconn.Ephemeral, zkconn.World(zkconn.PermAll)))
		ts.Check(err)
	case args[0] == "leave":
		ts.Check(all[args[1]].Close())
	case args[0] == "submit" && len(args) == 4:
		body, err := znode.Encode(znode.BatchManifest{
			Tasks: 5000, Bytes: 35_000, SHA256: strings.Repeat("0a", 32), Weight: 2, Results: queue.ResultsWatcher,
			By: "ann@desk", Since: time.Unix(1700000000, 0), State: znode.BatchState(args[3]),
		})
		ts.Check(err)
		root, g := beginQueue(ctx, ts, s, args[1])
		_, err = s.Multi(ctx, zkconn.CheckOp(znode.Gate(root, g), 0), zkconn.CreateOp(
			znode.Batch(root, g, args[2]), body, zkconn.Persistent, zkconn.World(zkconn.PermAll)))
		ts.Check(err)
	case args[0] == "end" && len(args) == 3:
		root, g := beginQueue(ctx, ts, s, args[1])
		ts.Check(s.Delete(ctx, znode.Batch(root, g, args[2]), -1))
	default:
		ts.Fatalf("queue %s is not known", args[0])
	}
}

// cmdRedis gives a script the Redis of the tests, as var.redis and with its password in the environment.
func cmdRedis(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: redis")
	}
	t := ts.Value(testKey{}).(testing.TB)
	ts.Setenv("MUSTER_VAR_redis", "redis://"+sharedRedis(t).Addr()+"/0")
	for _, name := range []string{"MUSTER_REDIS_PASSWORD", "MUSTER_REDIS_HOSTS"} {
		ts.Setenv(name, credentials(name))
	}
}

// beginQueue creates the folders of the queue's generation, unless they are there.
func beginQueue(ctx context.Context, ts *testscript.TestScript, s *zkconn.Session, at string) (root, g string) {
	o, err := zkstate.NewReader(s, "", zkstate.Queue()).Look(ctx, at)
	ts.Check(err)
	if o == nil || o.Record == nil {
		ts.Fatalf("there is no queue at %s", at)
	}
	root, g = path.Dir(at), o.Record.Generation
	ops := []zkconn.Op{zkconn.CheckOp(znode.Gate(root, g), 0)}
	for _, folder := range znode.QueueFolders() {
		ops = append(ops, zkconn.CreateOp(
			resource.Join(znode.Run(root, g), folder), nil, zkconn.Persistent, zkconn.World(zkconn.PermAll)))
	}
	if _, there, err := s.Exists(ctx, znode.Batches(root, g)); err != nil || !there {
		ts.Check(err)
		_, err = s.Multi(ctx, ops...)
		ts.Check(err)
	}
	return root, g
}

// embedded runs the scripts without servers: go test ./cli -embedded -run TestScripts. They run on a real one too.
var embedded = flag.Bool("embedded", false, "run TestScripts, and nothing else, on muster dev --embedded")

// scriptServer is the address of the ZooKeeper of the scripts.
var scriptServer string

// startServers starts what the tests run on.
func startServers() (stop func() error, err error) {
	if !*embedded {
		if servers, err = zkserver.Start(context.Background(), zkserver.Options{}); err != nil {
			return nil, err
		}
		scriptServer = servers.Connect()
		return servers.Stop, nil
	}
	if run := flag.Lookup("test.run").Value.String(); !strings.HasPrefix(run, "TestScripts") {
		return nil, fmt.Errorf("with -embedded there is only -run TestScripts, not -run %q", run)
	}
	cmd := exec.Command(filepath.Join(bin, "muster"), "dev", "--embedded", "--quiet")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	stop = func() error {
		err := cmd.Process.Signal(syscall.SIGTERM)
		var exit *exec.ExitError
		if ended := cmd.Wait(); !errors.As(ended, &exit) || exit.ExitCode() != 143 {
			return errors.Join(err, fmt.Errorf("muster dev --embedded: %w", ended))
		}
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	scriptServer = strings.TrimPrefix(strings.TrimSpace(line), "export MUSTER_SERVERS=")
	return stop, nil
}
