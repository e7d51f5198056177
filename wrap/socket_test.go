package wrap

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/znode"
)

// ask is a client of a running worker: its command prints its environment.
func (w *testWorker) client() *Client {
	w.t.Helper()
	return NewClient(w.says(SocketVariable + "="))
}

func TestSelfAndMembers(t *testing.T) {
	f := newTestJob(t, 3)
	w0 := startWorker(f, "w0", "environ obeys:0")
	c := w0.client()
	self, err := c.Self(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Self{
		Job: "j", Root: f.job.Root, Workers: 3, Identity: "w0", Address: "127.0.0.1:7000",
		Generation: f.look().Record.Generation, Stage: StageRunning, Member: true,
	}
	if d := cmp.Diff(want, self); d != "" {
		t.Errorf("self (-want +got):\n%s", d)
	}
	w1 := startWorker(f, "w1", "exits:1")
	w1.ends()
	joined, err := c.Members(t.Context(), false)
	if err != nil || len(joined.Members) != 2 || joined.Members[1].ID != 1 {
		t.Errorf("joined: %+v, %v", joined, err)
	}
	live, err := c.Members(t.Context(), true)
	if err != nil || len(live.Members) != 1 || live.Members[0].Identity != "w0" || live.Members[0].Port != 7000 {
		t.Errorf("live: %+v, %v", live, err)
	}
}

func TestBarriersThroughTheSocket(t *testing.T) {
	f := newTestJob(t, 2)
	c0 := startWorker(f, "w0", "environ obeys:0").client()
	c1 := startWorker(f, "w1", "environ obeys:0").client()
	both := func(b Barrier) [2]error {
		other := make(chan error, 1)
		go func() { other <- c1.Barrier(t.Context(), b) }()
		return [2]error{c0.Barrier(t.Context(), b), <-other}
	}
	for range 3 { // one round after the other
		if errs := both(Barrier{Name: "loaded"}); errs != [2]error{} {
			t.Fatal(errs)
		}
	}
	if errs := both(Barrier{Name: "alive", Live: true}); errs != [2]error{} {
		t.Error(errs)
	}
	five := 5
	for range 2 { // an explicit round may be repeated
		if errs := both(Barrier{Name: "explicit", Round: &five}); errs != [2]error{} {
			t.Error(errs)
		}
	}
	err := c0.Barrier(t.Context(), Barrier{Name: "alone", Timeout: "50ms"})
	var aborted *worker.AbortedError
	if !errors.As(err, &aborted) {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{1}, aborted.Missing); d != "" || aborted.Name != "alone" {
		t.Errorf("missing (-want +got):\n%s%v", d, err)
	}
	if err := c1.Barrier(t.Context(), Barrier{Name: "alone"}); !errors.As(err, &aborted) {
		t.Errorf("the other worker got %v", err)
	}
}

// TestGivingUpARequestStopsWaiting: the arrival counts, and the round is not aborted.
func TestGivingUpARequestStopsWaiting(t *testing.T) {
	f := newTestJob(t, 2)
	c0 := startWorker(f, "w0", "environ obeys:0").client()
	c1 := startWorker(f, "w1", "environ obeys:0").client()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	zero := 0
	b := Barrier{Name: "loaded", Round: &zero}
	asked := make(chan error, 1)
	go func() { asked <- c0.Barrier(ctx, b) }()
	arrival := znode.Arrival(znode.Attempt(f.job.Root, f.look().Record.Generation, b.Name, zero, 1), 0)
	rig.Await(t, "it has arrived", func() bool {
		_, arrived, err := f.s.Exists(t.Context(), arrival)
		return err == nil && arrived
	})
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := c1.Barrier(t.Context(), b); err != nil {
		t.Errorf("the round was not released: %v", err)
	}
	if err := c0.Barrier(t.Context(), b); err != nil {
		t.Errorf("asking again: %v", err)
	}
}

func TestWaitThroughTheSocket(t *testing.T) {
	f := newTestJob(t, 2)
	c0 := startWorker(f, "worker-0", "environ obeys:0").client()
	var absent *worker.AbsentError
	if err := c0.Wait(t.Context(), Wait{Timeout: "50ms"}); !errors.As(err, &absent) {
		t.Fatal(err)
	}
	want := &worker.AbsentError{Workers: 2, Joined: 1, Missing: []string{"worker-1"}}
	if d := cmp.Diff(want, absent); d != "" {
		t.Errorf("who is absent (-want +got):\n%s", d)
	}
	startWorker(f, "worker-1", "obeys:0").says("ready")
	if err := c0.Wait(t.Context(), Wait{}); err != nil {
		t.Error(err)
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	f := newTestJob(t, 1)
	c := startWorker(f, "w0", "environ obeys:0").client()
	for name, err := range map[string]error{
		"unknown_field":    c.tell(t.Context(), http.MethodPost, "/barrier", map[string]any{"nmae": "x"}),
		"timeout":          c.Barrier(t.Context(), Barrier{Name: "x", Timeout: "soon"}),
		"negative_timeout": c.Wait(t.Context(), Wait{Timeout: "-1s"}),
	} {
		if !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	below, above := -1, 1<<31
	for _, b := range []Barrier{
		{Name: ""}, {Name: "a/b"}, {Name: ".start"}, {Name: "x", Round: &below}, {Name: "x", Round: &above},
	} {
		if err := c.Barrier(t.Context(), b); !errors.Is(err, ErrRequest) {
			t.Errorf("barrier %+v: %v", b, err)
		}
	}
	if err := c.tell(t.Context(), "GET", "/nothing", nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Error(err)
	}
	if _, err := NewClient("/no/such/socket").Self(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

// TestTheSocketIsPrivateAndGoesWithTheWorker, and a request that waits is answered.
func TestTheSocketIsPrivateAndGoesWithTheWorker(t *testing.T) {
	f := newTestJob(t, 2)
	w := startWorker(f, "w0", "environ obeys:0")
	path := w.says(SocketVariable + "=")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	dir, _, _ := strings.Cut(path, "/socket")
	if info, err = os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v", info, err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- NewClient(path).Wait(t.Context(), Wait{}) }()
	w.says("ready")
	w.signals <- signalNamed(t, "TERM")
	w.ends()
	if err := <-waiting; !errors.Is(err, ErrUnavailable) {
		t.Errorf("the request that waited got %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

func TestEnvironmentOfTheCommand(t *testing.T) {
	f := newTestJob(t, 2)
	inherited := func(c *Config) {
		c.Environ = append(c.Environ, "MUSTER_ID=77", "MUSTER_ROLL=/old", "RANK=9", "KEPT=yes")
	}
	w0 := startWorker(f, "w0", "environ obeys:0", inherited, starting(StartAll))
	rig.Await(t, "w0 joins", func() bool { return f.look().Live == 1 })
	w1 := startWorker(f, "w1", "environ obeys:0", inherited)
	for _, c := range []struct {
		w    *testWorker
		want map[string]string
	}{
		{w0, map[string]string{"MUSTER_ID": "0", "RANK": "0", "MUSTER_IDENTITY": "w0"}},
		{w1, map[string]string{"MUSTER_ID": "1", "RANK": "1", "MUSTER_IDENTITY": "w1"}},
	} {
		got := c.w.environ()
		for name, value := range map[string]string{
			"MUSTER_JOB": "j", "MUSTER_WORKERS": "2", "WORLD_SIZE": "2", "KEPT": "yes",
			"MUSTER_ADDRESS": "127.0.0.1:7000",
			"MASTER_ADDR":    "127.0.0.1", "MASTER_PORT": "7000", "MUSTER_GENERATION": f.look().Record.Generation,
		} {
			c.want[name] = value
		}
		roll, socket := got["MUSTER_ROLL"], got["MUSTER_SOCKET"]
		delete(got, "MUSTER_ROLL")
		delete(got, "MUSTER_SOCKET")
		if d := cmp.Diff(c.want, got); d != "" || socket == "" {
			t.Errorf("environment (-want +got):\n%s", d)
		}
		if c.w == w1 {
			if roll != "" {
				t.Errorf("a roll without waiting for all: %s", roll)
			}
			continue
		}
		var ws []worker.Worker
		body, err := os.ReadFile(roll)
		if err == nil {
			err = json.Unmarshal(body, &ws)
		}
		if err != nil || len(ws) != 2 || ws[1].ID != 1 || ws[1].Port != 7000 {
			t.Errorf("roll %s: %v", body, err)
		}
	}
}

// environ is the part of its environment that a child of behaviour "environ" prints.
func (w *testWorker) environ() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for {
		line, err := w.out.ReadString('\n')
		if err != nil {
			w.t.Fatal(err)
		}
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			return all
		}
		all[name] = value
	}
}

// TestRequestIsOneObject: nothing may follow it, and a large one is told so.
func TestRequestIsOneObject(t *testing.T) {
	for body, says := range map[string]string{
		"":                              "",
		` {"name": "a"} ` + "\n":        "",
		`{"name": "a"}{"name": "b"}`:    "something follows the object",
		`{"name": "a"} x`:               "something follows the object",
		strings.Repeat(" ", 64<<10+1):   "it has more than 65536 bytes",
		`{"name": "a", "rounds": 1}`:    "rounds",
		`{"name": "a", "timeout": "1s"`: "unexpected EOF",
	} {
		err := decode(httptest.NewRequest(http.MethodPost, "/barrier", strings.NewReader(body)), maxRequest, &Barrier{})
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, want %q", body, err, says)
		}
	}
}

// TestDataThroughTheSocket: what one command publishes, another gets, also one that asked before.
func TestDataThroughTheSocket(t *testing.T) {
	f := newTestJob(t, 2)
	c0 := startWorker(f, "w0", "environ obeys:0").client()
	c1 := startWorker(f, "w1", "environ obeys:0").client()
	zero := 0
	early := make(chan error, 1)
	go func() {
		got, err := c1.Get(t.Context(), Get{Key: "port", From: &zero})
		if err == nil && (len(got.Values) != 1 || string(got.Values[0].Value) != "7000\n") {
			err = errors.New(string(got.Values[0].Value))
		}
		early <- err
	}()
	if err := c0.Publish(t.Context(), Publish{"port", []byte("7000\n")}); err != nil {
		t.Fatal(err)
	}
	if err := <-early; err != nil {
		t.Error(err)
	}
	var missing *worker.UnpublishedError
	_, err := c0.Get(t.Context(), Get{Key: "port", Timeout: "50ms"})
	if !errors.As(err, &missing) {
		t.Fatal(err)
	}
	if d := cmp.Diff(&worker.UnpublishedError{Key: "port", Missing: []int{1}}, missing); d != "" {
		t.Errorf("missing (-want +got):\n%s", d)
	}
	large := Publish{"port", []byte(strings.Repeat("x", 64<<10))}
	if err := c1.Publish(t.Context(), large); err != nil {
		t.Error(err)
	}
	got, err := c0.Get(t.Context(), Get{Key: "port"})
	if err != nil || len(got.Values) != 2 || len(got.Values[1].Value) != 64<<10 || got.Values[1].Life != 1 {
		t.Errorf("%d values, %v", len(got.Values), err)
	}
	large.Value = append(large.Value, 'x')
	if err := c1.Publish(t.Context(), large); !errors.Is(err, worker.ErrDataFull) {
		t.Errorf("more than 64 KiB: %v", err)
	}
}

// TestAnAddressThroughTheSocket: a name, which the worker itself and the others see, and commands that start later.
func TestAnAddressThroughTheSocket(t *testing.T) {
	f := newTestJob(t, 2)
	c0 := startWorker(f, "w0", "environ obeys:0").client()
	if err := c0.Advertise(t.Context(), Advertise{"trainer-0.trainer:29500"}); err != nil {
		t.Fatal(err)
	}
	if self, err := c0.Self(t.Context()); err != nil || self.Address != "trainer-0.trainer:29500" {
		t.Errorf("self: %+v, %v", self, err)
	}
	w1 := startWorker(f, "w1", "environ obeys:0")
	environ := w1.environ()
	if environ["MASTER_ADDR"] != "trainer-0.trainer" || environ["MASTER_PORT"] != "29500" {
		t.Errorf("the next worker is told %v", environ)
	}
	live, err := c0.Members(t.Context(), true)
	if err != nil || live.Members[0].Address() != "trainer-0.trainer:29500" {
		t.Errorf("live: %+v, %v", live, err)
	}
}

func TestDataRequestsThatMakeNoSense(t *testing.T) {
	f := newTestJob(t, 1)
	c := startWorker(f, "w0", "environ obeys:0").client()
	one := 1
	_, errFrom := c.Get(t.Context(), Get{Key: "k", From: &one})
	_, errKey := c.Get(t.Context(), Get{Key: "a/b"})
	for name, err := range map[string]error{
		"from": errFrom, "key": errKey, "publish": c.Publish(t.Context(), Publish{Key: ".."}),
		"no port": c.Advertise(t.Context(), Advertise{"host"}), "port 0": c.Advertise(t.Context(), Advertise{"host:0"}),
		"no host": c.Advertise(t.Context(), Advertise{":7000"}), "two": c.Advertise(t.Context(), Advertise{"a,b:1"}),
	} {
		if !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"10.0.0.1:7000": true, "[fe80::1]:7000": true, "host:1": true, "a-b.c_d.example:65535": true,
		"host": false, ":7": false, "host:0": false, "host:65536": false, "-h:1": false, "a b:1": false, "h;o:1": false,
		strings.Repeat("h", 254) + ":1": false, "[::1]": false, "hé:1": false,
	} {
		if _, _, err := ParseAddress(address); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}
