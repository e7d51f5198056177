package wrap

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/sim/rig"
)

// serving makes a worker serve its health, which the second result reads: "200 live".
func serving(t *testing.T) (func(*Config), func(path string) string) {
	t.Helper()
	var addr atomic.Value
	serve := func(c *Config) {
		c.HTTP, c.Serving = "127.0.0.1:0", func(a net.Addr) { addr.Store(a.String()) }
	}
	return serve, func(path string) string {
		address, ok := addr.Load().(string)
		if !ok {
			return "nothing is served yet"
		}
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Error(err)
		}
		return fmt.Sprint(answer.StatusCode, " ", strings.TrimSpace(string(body)))
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	serve, get := serving(t)
	f := newTestJob(t, 2)
	w := startWorker(f, "w0", "environ obeys:0", starting(StartAll), serve)
	rig.Await(t, "it waits", func() bool { return get("/ready") == "503 waiting" })
	if got := get("/live"); got != "200 live" {
		t.Errorf("/live: %s", got)
	}
	w1 := startWorker(f, "w1", "environ obeys:0")
	c0, c1 := w.client(), w1.client()
	w.says("ready")
	if got := get("/ready"); got != "200 running" {
		t.Errorf("/ready: %s", got)
	}
	other := make(chan error, 1)
	go func() { other <- c1.Barrier(t.Context(), Barrier{Name: "b"}) }()
	if err := c0.Barrier(t.Context(), Barrier{Name: "b"}); err != nil {
		t.Error(err)
	}
	<-other
	if err := c0.Barrier(t.Context(), Barrier{Name: "alone", Timeout: "1ms"}); err == nil {
		t.Error("passed alone")
	}
	page := get("/metrics")
	for _, line := range []string{
		`muster_worker_stage{stage="running"} 1`, `muster_worker_stage{stage="waiting"} 0`,
		`muster_worker_member 1`, `muster_worker_connected 1`, `muster_worker_rejoins_total 0`,
		`muster_worker_barrier_seconds_count{outcome="released"} 1`,
		`muster_worker_barrier_seconds_count{outcome="aborted"} 1`,
		fmt.Sprintf(`muster_worker_info{generation="%s",id="0",identity="w0",job="j",root="%s",workers="2"} 1`,
			f.look().Record.Generation, f.job.Root),
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("/metrics does not say %s", line)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
	w.signals <- signalNamed(t, "TERM")
	w.ends()
	if got := get("/metrics"); strings.Contains(got, f.job.Root) { // somebody else may have the port now
		t.Errorf("after the end: %s", got)
	}
}

func TestAnAddressThatCannotBeServed(t *testing.T) {
	f := newTestJob(t, 1)
	w := startWorker(f, "w0", "obeys:0", func(c *Config) { c.HTTP = "127.0.0.1:http-no-port" })
	if e := w.ends(); e.Err == nil || f.claim("w0") != "" {
		t.Errorf("%+v", e)
	}
}

// TestHealthWithoutAServer: a worker that reaches no server is not ready, and lives.
func TestHealthWithoutAServer(t *testing.T) {
	for name, c := range map[string]struct {
		session time.Duration
		ready   string
		member  int
	}{
		"while_the_session_may_return": {time.Minute, "503 degraded: no connection to ZooKeeper", 1},
		"after_it_is_lost":             {2 * time.Second, "503 degraded: the session is lost", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serve, get := serving(t)
			f, p := newTestJob(t, 1), rig.Proxy(t, servers.Addrs()[0])
			f.session = c.session
			w := startWorkerAt(f, "w0", "obeys:0", p.Addr(), serve)
			w.says("ready")
			rig.Await(t, "it is ready", func() bool { return get("/ready") == "200 running" })
			cutOff(p)
			rig.Await(t, c.ready, func() bool { return get("/ready") == c.ready })
			if got := get("/live"); got != "200 live" {
				t.Errorf("/live: %s", got)
			}
			page := get("/metrics")
			member := fmt.Sprintf("muster_worker_member %d\n", c.member)
			if !strings.Contains(page, "muster_worker_connected 0\n") || !strings.Contains(page, member) {
				t.Errorf("/metrics does not say both of connected 0 and %s%s", member, page)
			}
			p.Refuse(false)
			rig.Await(t, "it is ready again", func() bool { return get("/ready") == "200 running" })
		})
	}
}
