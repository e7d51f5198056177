package wrap

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/worker"
)

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
