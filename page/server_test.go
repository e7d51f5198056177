package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"muster/zkstate"
)

// testServer is a server whose board the test makes: there is no ZooKeeper.
type testServer struct {
	*server
	t   *testing.T
	url string
}

func startServer(t *testing.T, cfg Config) *testServer {
	t.Helper()
	cfg.Log, cfg.Kinds = slog.New(slog.DiscardHandler), []zkstate.Kind{zkstate.Job(), zkstate.Group(), zkstate.Queue()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	k := newKeeper(ctx, cfg)
	k.board.put(sample())
	s := newServer(ctx, k, l)
	ended := make(chan error, 1)
	go func() { ended <- s.serveUntil(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return &testServer{s, t, "http://" + l.Addr().String()}
}

// get answers a GET.
func (s *testServer) get(path string, header ...string) (code int, body string, h http.Header) {
	s.t.Helper()
	return s.do(http.MethodGet, path, header...)
}

func (s *testServer) do(method, path string, header ...string) (code int, body string, h http.Header) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(text), answer.Header
}

func TestEveryAnswerIsSafe(t *testing.T) {
	s := startServer(t, Config{})
	for _, path := range []string{
		"/", "/history", "/nothing/here", "/assets/page.js", "/api/status", "/metrics", "/healthz",
	} {
		_, _, h := s.get(path)
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cache-Control": "no-store",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
		if code, _, h := s.do(method, "/"); code != http.StatusMethodNotAllowed || h.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, Allow %q", method, code, h.Get("Allow"))
		}
	}
	if code, body, _ := s.do(http.MethodHead, "/"); code != http.StatusOK || body != "" {
		t.Errorf("HEAD: %d %q", code, body)
	}
}

// TestOnlyItsOwnNamesAreAnswered: the page of a site whose name was made to lead here sends that name.
func TestOnlyItsOwnNamesAreAnswered(t *testing.T) {
	s := startServer(t, Config{Hosts: []string{"muster.example"}})
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:8090": 200, "localhost.": 200, "127.0.0.1:1": 200, "[::1]:8090": 200, "10.1.2.3": 200,
		"muster.example": 200, "MUSTER.example:443": 200,
		"evil.example": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example:8090": 421, "muster.example.evil": 421,
	} {
		if code, _, _ := s.get("/assets/icon.svg", "Host", host); code != want {
			t.Errorf("Host %q: %d, want %d", host, code, want)
		}
	}
}

func TestAToken(t *testing.T) {
	const token = "0123456789abcdef"
	s := startServer(t, Config{Token: token})
	basic := func(password string) string {
		r, _ := http.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth("anybody", password)
		return r.Header.Get("Authorization")
	}
	for given, want := range map[string]int{
		"": 401, "Bearer " + token: 200, "bearer " + token: 200, "Bearer x": 401, "Bearer " + token + "0": 401,
		basic(token): 200, basic("x"): 401, token: 401, "Digest " + token: 401, "Bearer": 401,
	} {
		for _, path := range []string{"/", "/api/status", "/metrics", "/stream?u=/nothing", "/assets/page.css"} {
			if path == "/stream?u=/nothing" && want == 200 {
				continue
			}
			code, _, h := s.get(path, "Authorization", given)
			if code != want || code == 401 && !strings.Contains(h.Get("WWW-Authenticate"), "Basic") {
				t.Errorf("%s with %q: %d, want %d", path, given, code, want)
			}
		}
	}
	if code, _, _ := s.get("/healthz"); code != 200 {
		t.Errorf("/healthz needs a token: %d", code)
	}
}

// TestWithoutZooKeeper: the page shows what was known; programs get nothing.
func TestWithoutZooKeeper(t *testing.T) {
	s := startServer(t, Config{})
	if code, body, _ := s.get("/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	s.keeper.disconnected()
	if code, body, _ := s.get("/"); code != 200 || !strings.Contains(body, "etl-a") {
		t.Errorf("the page does not show what was known: %d", code)
	}
	for _, path := range []string{"/healthz", "/api/status", "/api/status/jobs/prod/etl-a", "/api/history"} {
		if code, body, _ := s.get(path); code != 503 || !strings.Contains(body, "ZooKeeper does not answer; it last did at") {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	_, body, _ := s.get("/metrics")
	if !strings.Contains(body, "muster_serve_connected 0") || strings.Contains(body, "etl-a") {
		t.Errorf("/metrics has series of what is not known:\n%s", body)
	}
}

// TestMetricsAreWellFormed: Prometheus' own linter has nothing to say.
func TestMetricsAreWellFormed(t *testing.T) {
	s := startServer(t, Config{Version: "1.2.3"})
	_, body, _ := s.get("/metrics")
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, want := range []string{
		`muster_build_info{version="1.2.3"} 1`, `muster_serve_connected 1`, `muster_serve_left_out 0`,
		`muster_job_status{path="/jobs/prod/etl-a",stack="etl-prod",status="running"} 1`,
		`muster_job_live{path="/jobs/prod/etl-a",stack="etl-prod"} 8`, `muster_group_held{path=`,
		`muster_queue_batches{path=`,
		`go_goroutines `, `process_resident_memory_bytes `,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
}

// TestSeriesAreBounded: what has none is counted.
func TestSeriesAreBounded(t *testing.T) {
	b := &Board{Connected: true}
	one := sample().Resources[0]
	for i := range maxSeries + 3 {
		one.Path = fmt.Sprint("/jobs/prod/", i)
		b.Resources = append(b.Resources, one)
	}
	for _, f := range gathered(t, b) {
		switch f.GetName() {
		case "muster_job_status":
			if len(f.Metric) != maxSeries {
				t.Errorf("%d series, not %d", len(f.Metric), maxSeries)
			}
		case "muster_serve_left_out":
			if n := f.Metric[0].GetGauge().GetValue(); n != 3 {
				t.Errorf("%v are said to be left out, not 3", n)
			}
		}
	}
}

// gathered is what a scrape says of a board.
func gathered(t *testing.T, b *Board) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(boardMetrics{func() *Board { return b }, "0.1.0"})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// TestScrapesThatNobodyReads: a scrape has its place until it is sent, so that few whole documents are in memory.
func TestScrapesThatNobodyReads(t *testing.T) {
	s := startServer(t, Config{})
	s.show(maxSeries, 100)
	var open []net.Conn
	for range maxScrapes {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil { // it is being sent
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if code, _, _ := s.get("/metrics"); code != http.StatusServiceUnavailable {
		t.Errorf("one more than %d: %d", maxScrapes, code)
	}
	for _, c := range open {
		_ = c.Close()
	}
	for code := 0; code != http.StatusOK; code, _, _ = s.get("/metrics") {
		if t.Context().Err() != nil {
			t.Fatal("there is no room again")
		}
	}
}

// TestSlowButSteady: who takes each chunk in time still has to take all of them in time.
func TestSlowButSteady(t *testing.T) {
	ended := make(chan error, 1)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := patient(w)
		p.by = time.Now().Add(500 * time.Millisecond)
		_, err := p.Write(make([]byte, 64<<20))
		ended <- err
	}))
	defer web.Close()
	answer, err := http.Get(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for part := make([]byte, writeChunk); ; { // 64 MiB would take 40 s
		select {
		case err := <-ended:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("it ended with %v", err)
			}
			return
		case <-tick.C:
			_, _ = answer.Body.Read(part)
		}
	}
}

// TestABodyThatNeverComes: a request that announces a body and does not send it neither gets a place nor keeps its
// connection.
func TestABodyThatNeverComes(t *testing.T) {
	s := startServer(t, Config{Token: "a token of some length"})
	for _, request := range []string{
		"GET /api/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // instead of for ever
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 40") {
			t.Errorf("%q: %q, %v", request, answer, err)
		}
	}
}

// TestLabelsDiffer: names that look alike in a terminal have series of their own, and no label acts on a terminal.
func TestLabelsDiffer(t *testing.T) {
	s := startServer(t, Config{})
	b := *sample()
	b.Resources = nil
	for _, name := range []string{
		"a\u00a0", `a\xa0`, `a\\xa0`, "<\u202e", `<\u202e`, "<\u2066", "\ufeffb", "b", "b\xff", "b\xfe", "b\ufffd",
	} {
		b.Resources = append(b.Resources, aJob(name, 1, 0, 0, 0))
	}
	s.keeper.board.put(&b)
	code, body, _ := s.get("/metrics")
	if n := strings.Count(body, "\nmuster_job_live{"); code != http.StatusOK || n != len(b.Resources) {
		t.Errorf("%d, %d series:\n%s", code, n, body)
	}
	if i := strings.IndexFunc(body, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%q is in a label", body[i:i+10])
	}
}

func TestHeadline(t *testing.T) {
	for _, c := range []struct {
		all       int
		connected bool
		want      string
	}{
		{0, true, "Nothing is here yet"}, {1, true, "It is fine"}, {10_000, true, "All 10,000 are fine"},
		{2, false, "All 2 were fine"},
	} {
		p := painter{board: &Board{Connected: c.connected}}
		if got := p.fine(c.all); got != c.want {
			t.Errorf("%d: %q, want %q", c.all, got, c.want)
		}
	}
}
