package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
		if err := os.Symlink(filepath.Join(bin, "duty"), filepath.Join(w.dir, "duties", d.Name)); err != nil {
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
	if relayed {
		p.servers = nil
		for _, addr := range w.ensemble.Addrs() {
			proxy := rig.Proxy(w.t, addr)
			p.proxies, p.servers = append(p.proxies, proxy), append(p.servers, proxy.Addr())
		}
	}
	w.members[identity] = p
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
		"FAULTS_DIR=" + w.dir, "FAULTS_RUN=" + w.longest.String(), "FAULTS_CLOCK=" + p.clock,
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
		if err != nil || exe != filepath.Join(bin, "duty") {
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
		if _, err := fmt.Sscan(filepath.Base(dir), &pid); err != nil || vars["FAULTS_DIR"] != w.dir {
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
