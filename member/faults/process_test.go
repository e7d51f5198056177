// Package faults tests groups with real processes and real ZooKeeper servers: a rolling upgrade, and members, commands,
// connections, servers and clocks that fail at random. It has no code of its own.
package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/dev/daemon"
	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/needs"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// process is a member as a process. It can be started again and again. One goroutine uses it at a time.
type process struct {
	w                 *world
	identity, version string
	program           string
	args              []string
	servers           []string
	proxies           []*fault.Proxy // one for each server; nil if it is not relayed
	clock             string         // file

	run    *daemon.Process
	frozen bool
}

// start starts it.
func (p *process) start() error {
	out, err := os.OpenFile(filepath.Join(p.w.dir, p.identity+".out"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(p.program, p.args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = p.w.environ(p), p.w.dir, out, out
	p.run, err = daemon.Start(cmd)
	return err
}

// kill kills it and returns when it has ended.
func (p *process) kill() {
	_ = p.run.Kill() // it returns when it has ended
	p.frozen = false
}

// freeze stops it, but not its guards and their commands.
func (p *process) freeze() error {
	p.frozen = true
	return p.run.OS.Signal(syscall.SIGSTOP)
}

func (p *process) thaw() error {
	p.frozen = false
	return p.run.OS.Signal(syscall.SIGCONT)
}

// leave asks it to end, and waits for that.
func (p *process) leave(limit time.Duration) error {
	if err := p.run.OS.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.run.Done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s has not left within %s", p.identity, limit)
	}
}

// shift sets its clock: by so much it is ahead of this machine's.
func (p *process) shift(by time.Duration) error {
	if by == 0 {
		return os.Remove(p.clock)
	}
	temp := p.clock + ".new"
	if err := os.WriteFile(temp, []byte(by.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, p.clock)
}

// cutOff makes the servers unreachable.
func (p *process) cutOff() error {
	for _, proxy := range p.proxies {
		proxy.Refuse(true)
		proxy.Cut()
	}
	return nil
}

// reachable ends cutOff.
func (p *process) reachable() error {
	for _, proxy := range p.proxies {
		proxy.Refuse(false)
	}
	return nil
}

// holdBack keeps all bytes back between the member and the servers.
func (p *process) holdBack() error {
	for _, proxy := range p.proxies {
		proxy.Hang(true)
	}
	return nil
}

// letGo ends holdBack.
func (p *process) letGo() error {
	for _, proxy := range p.proxies {
		proxy.Hang(false)
	}
	return nil
}

// bin is the directory of what the tests run: muster, and clockmember, a member whose clock can be set. That and the
// commands of duties are this binary, self: see beChild.
var bin, self string

func TestMain(m *testing.M) {
	beChild()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "muster-faults-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	err = rig.Build(bin, map[string]string{"muster": "../.."})
	if err == nil {
		self, err = os.Executable()
	}
	if err == nil {
		err = os.Symlink(self, filepath.Join(bin, "clockmember"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// world is a group on servers of its own, and its members.
type world struct {
	t          *testing.T
	dir        string // runs, locks, duties and the output of members
	ensemble   *zkserver.Ensemble
	group      group.Group
	generation string
	longest    time.Duration // of a run of a cron
	stubborn   bool          // commands ignore SIGTERM
	members    map[string]*process

	s *zkconn.Session // see session
}

// newWorld starts servers and creates a group. edit adds its duties.
func newWorld(t *testing.T, o zkserver.Options, edit func(*group.Group)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), members: map[string]*process{}, longest: 100 * time.Millisecond}
	for _, dir := range []string{"locks", "duties"} {
		if err := os.Mkdir(filepath.Join(w.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.ensemble, err = zkserver.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.ensemble.Stop() })
	t.Cleanup(w.show)
	t.Cleanup(func() { // before the servers end
		for _, p := range w.members {
			p.kill()
		}
	})
	w.group = group.Default()
	w.group.Root, w.group.Name = "/faults", "shop"
	edit(&w.group)
	w.create()
	return w
}

// create commits the group, and makes the commands of its duties.
func (w *world) create() {
	w.t.Helper()
	store := w.store()
	rig.Create(w.t, store, w.group)
	w.generation = rig.Look(w.t, store, w.group.Path()).Record.Generation
	for _, d := range w.group.Duties {
		if err := os.Symlink(self, filepath.Join(w.dir, "duties", d.Name)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// session is the test's own session. It is another one after the last one was lost.
func (w *world) session() *zkconn.Session {
	w.t.Helper()
	if w.s != nil && w.s.Context().Err() == nil {
		return w.s
	}
	if w.s != nil {
		_ = w.s.Close()
	}
	s, err := zkconn.Dial(w.t.Context(), zkconn.Config{Servers: w.ensemble.Addrs(), Timeout: 30 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	w.s = s
	return s
}

func (w *world) store() *zkstate.Store {
	w.t.Helper()
	return rig.Store(w.t, w.session(), w.group.Root, zkstate.Group())
}

// look is what status would see; nil while ZooKeeper does not answer.
func (w *world) look() *resource.Observed {
	w.t.Helper()
	o, err := w.store().Look(w.t.Context(), w.group.Path())
	if err != nil {
		return nil
	}
	return o
}

// allHeld says which duties nobody holds, for await.
func (w *world) allHeld() string {
	o := w.look()
	if o == nil {
		return "ZooKeeper does not answer"
	}
	if o.Status() == group.Running {
		return ""
	}
	var missing []string
	for _, d := range w.group.Duties {
		if _, ok := w.holder(d.Name); !ok {
			missing = append(missing, d.Name)
		}
	}
	return fmt.Sprintf("the group is %s with %d live; nobody holds %v", o.Status(), o.Live, missing)
}

// holder is who holds a duty.
func (w *world) holder(duty string) (znode.Holder, bool) {
	body, _, err := w.session().Get(w.t.Context(), znode.Held(w.group.Root, w.generation, duty))
	if err != nil {
		return znode.Holder{}, false
	}
	h, err := znode.Decode[znode.Holder](body)
	return h, err == nil
}

// loads counts the duties that each member holds.
func (w *world) loads() map[string]int {
	n := map[string]int{}
	for _, d := range w.group.Duties {
		if h, ok := w.holder(d.Name); ok {
			n[h.Identity]++
		}
	}
	return n
}

// add starts a member for the first time. clock says that its clock can be set.
func (w *world) add(identity, version string, clock, relayed bool) *process {
	w.t.Helper()
	p := &process{
		w: w, identity: identity, version: version, program: filepath.Join(bin, "muster"),
		clock: filepath.Join(w.dir, identity+".clock"), servers: w.ensemble.Addrs(),
	}
	p.args = []string{"member"}
	if clock {
		p.program, p.args = filepath.Join(bin, "clockmember"), nil
	}
	return w.launch(p, relayed)
}

// addPython starts a member of examples/python, which is written from docs/protocol/groups.md alone. It leads, and does
// not decide.
func (w *world) addPython(identity, version string) *process {
	w.t.Helper()
	program, err := filepath.Abs("../../examples/python/member.py")
	if err != nil {
		w.t.Fatal(err)
	}
	return w.launch(&process{
		w: w, identity: identity, version: version, program: needs.Program(w.t, "python3", "python3"),
		args: []string{program, w.group.Path(), identity, filepath.Join(w.dir, "duties")}, servers: w.ensemble.Addrs(),
	}, true)
}

func (w *world) launch(p *process, relayed bool) *process {
	w.t.Helper()
	if relayed {
		p.servers = nil
		for _, addr := range w.ensemble.Addrs() {
			proxy := rig.Proxy(w.t, addr)
			p.proxies, p.servers = append(p.proxies, proxy), append(p.servers, proxy.Addr())
		}
	}
	w.members[p.identity] = p
	if err := p.start(); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// environ is the environment of a member.
func (w *world) environ(p *process) []string {
	return []string{
		fmt.Sprintf("FAULTS_STUBBORN=%t", w.stubborn),
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + w.dir,
		"MUSTER_SERVERS=" + strings.Join(p.servers, ","), "MUSTER_ROOT=" + w.group.Root, "MUSTER_GROUP=" + w.group.Name,
		"MUSTER_IDENTITY=" + p.identity, "MUSTER_VERSION=" + p.version, "MUSTER_DUTIES=" + filepath.Join(w.dir, "duties"),
		"PYTHONDONTWRITEBYTECODE=1", "FAULTS_DIR=" + w.dir, "FAULTS_RUN=" + w.longest.String(), "FAULTS_CLOCK=" + p.clock,
	}
}

// show prints what the members wrote last, if the test has failed.
func (w *world) show() {
	if !w.t.Failed() {
		return
	}
	for identity := range w.members {
		body, _ := os.ReadFile(filepath.Join(w.dir, identity+".out"))
		const most = 1500
		w.t.Logf("%s wrote:\n%s", identity, body[max(0, len(body)-most):])
	}
}

// commandsOf are the processes of duties that a member has started and that live, by their process id.
func (w *world) commandsOf(identity string) map[int]string {
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil || exe != self {
			continue
		}
		body, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			continue
		}
		vars := map[string]string{}
		for v := range strings.SplitSeq(string(body), "\x00") {
			name, value, _ := strings.Cut(v, "=")
			vars[name] = value
		}
		var pid int
		_, err = fmt.Sscan(filepath.Base(dir), &pid)
		if err != nil || vars["FAULTS_DIR"] != w.dir || vars["MUSTER_DUTY"] == "" {
			continue
		}
		if identity == "" || vars["MUSTER_IDENTITY"] == identity {
			found[pid] = vars["MUSTER_DUTY"]
		}
	}
	return found
}

// withLimit is a context that ends after d, or with the test.
func (w *world) withLimit(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.t.Context(), d)
}
