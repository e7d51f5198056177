package wrap

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	f := newField(t, 2)
	w := wear(f, "w0", "environ obeys:0", starting(StartAll), func(c *Config) { c.HTTP = address })
	get := func(path string) string {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(answer.StatusCode, " ", strings.TrimSpace(string(body)))
	}
	await(t, "it waits", func() bool { return get("/ready") == "503 waiting" })
	if got := get("/live"); got != "200 live" {
		t.Errorf("/live: %s", got)
	}
	w1 := wear(f, "w1", "environ obeys:0")
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
		`muster_worker_stage{stage="running"} 1`, `muster_worker_stage{stage="waiting"} 0`, `muster_worker_member 1`, `muster_worker_rejoins_total 0`,
		`muster_worker_barrier_seconds_count{outcome="released"} 1`, `muster_worker_barrier_seconds_count{outcome="aborted"} 1`,
		fmt.Sprintf(`muster_worker_info{generation="%s",id="0",identity="w0",job="j",root="%s",workers="2"} 1`, f.look().Record.Generation, f.job.Root),
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("/metrics does not say %s", line)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
	w.signals <- named(t, "TERM")
	w.ends()
	if got := get("/live"); !strings.Contains(got, "refused") {
		t.Errorf("after the end: %s", got)
	}
}

func TestAnAddressThatCannotBeServed(t *testing.T) {
	f := newField(t, 1)
	w := wear(f, "w0", "obeys:0", func(c *Config) { c.HTTP = "127.0.0.1:http-no-port" })
	if e := w.ends(); e.Err == nil || f.claim("w0") != "" {
		t.Errorf("%+v", e)
	}
}
