package page

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"muster/text"
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
	code, body, _ := s.get("/resource/jobs/prod/etl-a") // nobody has looked at it before
	for _, want := range []string{"data-disconnected", "8 of 8 joined", "not everything could be read", "Declaration ("} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("the page of a job: %d, without %q:\n%s", code, want, body)
		}
	}
	for _, path := range []string{"/healthz", "/api/status", "/api/status/jobs/prod/etl-a", "/api/history"} {
		if code, body, _ := s.get(path); code != 503 || !strings.Contains(body, "ZooKeeper does not answer; it last did at") {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	_, body, _ = s.get("/metrics")
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
		`muster_cron_last_result{duty="nightly-report",path="/jobs/prod/api",stack="etl-prod"} 0`,
		`muster_cron_last_success_timestamp_seconds{duty="nightly-report",path="/jobs/prod/api",stack="etl-prod"} `,
		`muster_cron_runs_total{duty="nightly-report",path="/jobs/prod/api",stack="etl-prod",state="failed"} 3`,
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
	k := newKeeper(t.Context(), Config{Version: "0.1.0"})
	k.board.put(b)
	registry.MustRegister(collector{newServer(t.Context(), k, nil)})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// TestScrapesThatNobodyReads: a scrape has its place until it is sent, so that few whole documents are in memory.
func TestScrapesThatNobodyReads(t *testing.T) {
	s := startServer(t, Config{})
	s.show(1000, 100) // far more than the buffers below, and made at once also by a busy machine
	var open []net.Conn
	for range maxScrapes {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
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

// connect opens a connection from an address of loopback, and sends a request on it, if there is one.
func (s *testServer) connect(from, request string) net.Conn {
	s.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // instead of for ever
		s.t.Fatal(err)
	}
	_, _ = io.WriteString(c, request) // it may be closed already
	return c
}

// requestLine is a request to a path, with more headers.
func requestLine(path string, headers ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + strings.Join(append(headers, "\r\n"), "\r\n")
}

// statusLine reads the first line of an answer; "" if there is none.
func statusLine(c net.Conn) string {
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line)
}

// TestOthersHoldWhatTheyCan: beside connections without the token, whatever these ask, a reader with it gets the page.
func TestOthersHoldWhatTheyCan(t *testing.T) {
	const token, held = "0123456789abcdef", MaxConnections + 200
	request := requestLine("/", "Authorization: Bearer "+token)
	for name, others := range map[string]struct {
		ask  string
		from func(i int) string
	}{
		"healthz":            {requestLine("/healthz"), func(int) string { return "127.0.0.1" }},
		"the page":           {requestLine("/"), func(int) string { return "127.0.0.1" }},
		"nothing":            {"", func(int) string { return "127.0.0.1" }},
		"half a request":     {"GET / HTTP/1.1\r\nHost: x", func(int) string { return "127.0.0.1" }},
		"from many":          {"", func(i int) string { return fmt.Sprintf("127.0.1.%d", 1+i%200) }},
		"healthz, from many": {requestLine("/healthz"), func(i int) string { return fmt.Sprintf("127.0.1.%d", 1+i%200) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, Config{Token: token})
			for i := range held {
				c := s.connect(others.from(i), others.ask)
				if strings.HasSuffix(others.ask, "\r\n\r\n") { // it has its answer, and asks nothing more
					statusLine(c)
				}
			}
			for range 5 {
				if got := statusLine(s.connect("127.0.0.1", request)); got != "HTTP/1.1 200 OK" {
					t.Errorf("the reader with the token gets %q", got)
				}
			}
			if n := s.connections.count(); n > MaxConnections {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// TestWithoutTheTokenNoConnectionStays: not even for who asks whether the server is well.
func TestWithoutTheTokenNoConnectionStays(t *testing.T) {
	s := startServer(t, Config{Token: "0123456789abcdef"})
	for _, path := range []string{"/", "/healthz", "/stream?u=/", "/nothing"} {
		answer, err := io.ReadAll(s.connect("127.0.0.1", requestLine(path))) // until the server closes it
		if err != nil || !strings.Contains(string(answer), "\r\nConnection: close\r\n") {
			t.Errorf("%s: %q, %v", path, answer, err)
		}
	}
	if _, _, h := s.get("/healthz", "Authorization", "Bearer 0123456789abcdef"); h.Get("Connection") == "close" {
		t.Error("with the token")
	}
}

// TestTooManyConnections: one more than an address, or all, may have closes one that waits; of those that are being
// answered none is closed, and it is told so.
func TestTooManyConnections(t *testing.T) {
	b := bound(nil)
	open := func(from string, answered bool) *boundedConn {
		c := b.add(idle{from: from})
		if c != nil && answered {
			b.state(c, http.StateActive)
		}
		return c
	}
	first := open("127.0.0.1:1", false)
	elsewhere := func(c *boundedConn) bool { return c.from != first.from }
	here := func() int { return len(slices.DeleteFunc(slices.Collect(maps.Keys(b.open)), elsewhere)) }
	for i := range MaxFromAddress - 1 {
		open("127.0.0.1:1", i%2 == 0)
	}
	other := open("[2001:db8::1]:1", true)
	if more := open("127.0.0.1:2", false); more == nil || b.open[first] || !b.open[other] || here() != MaxFromAddress {
		t.Errorf("one more of an address: %v, %d", more, here())
	}
	for range MaxFromAddress {
		open("127.0.0.1:2", true)
	}
	if more := open("127.0.0.1:2", false); more != nil {
		t.Error("it has room while all of the address are being answered")
	}
	for range MaxFromAddress - 1 {
		open("[2001:db8::2]:1", true) // of the same network
	}
	if more := open("127.0.0.2:1", false); more != nil || b.count() != MaxConnections {
		t.Errorf("%d connections, all being answered, and one more", b.count())
	}
	b.state(other, http.StateIdle)
	if more := open("127.0.0.2:1", false); more == nil || b.open[other] {
		t.Error("one waits, and keeps its place")
	}
	for c := range b.open {
		_ = c.Close()
		_ = c.Close() // counts once
	}
	if b.count() != 0 {
		t.Errorf("%d connections are left", b.count())
	}
}

// idle is a connection from an address.
type idle struct {
	net.Conn
	from string
}

func (i idle) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(i.from)) }
func (idle) Close() error           { return nil }

// TestStreamsOfOneAddress: one reader cannot have all.
func TestStreamsOfOneAddress(t *testing.T) {
	s := startServer(t, Config{})
	for i := range MaxStreamsFromAddress + 1 {
		want := "HTTP/1.1 200 OK"
		if i == MaxStreamsFromAddress {
			want = "HTTP/1.1 503 Service Unavailable"
		}
		if got := statusLine(s.connect("127.0.0.2", requestLine("/stream?u=/&v=1"))); got != want {
			t.Fatalf("stream %d: %q", i, got)
		}
	}
	if got := statusLine(s.connect("127.0.0.3", requestLine("/stream?u=/&v=1"))); got != "HTTP/1.1 200 OK" {
		t.Errorf("of another address: %q", got)
	}
}

// TestAConnectionIsOneRequestAtATime: the limits count connections, so that none may have many requests, as in HTTP/2.
func TestAConnectionIsOneRequestAtATime(t *testing.T) {
	other := httptest.NewTLSServer(nil) // it has a certificate
	defer other.Close()
	s := startServer(t, Config{TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: other.TLS.Certificates}})
	client := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}} //nolint:gosec // on loopback
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "http://"), client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("the protocol is %q", got)
	}
	answers(t, c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK\r\n")
}

// TestOptionsOfTheServer: not only those of a page are refused.
func TestOptionsOfTheServer(t *testing.T) {
	s := startServer(t, Config{Token: "a token of some length"})
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers(t, c, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 405 ")
}

// answers sends a request that ends the connection, and says how the answer must begin.
func answers(t *testing.T, c net.Conn, request, begin string) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), begin) {
		t.Errorf("%q: %q, %v", request, got, err)
	}
}

// TestServeIsDocumented: docs/serve.md explains each metric, and no other; and it states the limits.
func TestServeIsDocumented(t *testing.T) {
	read := func(file string) string {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	doc := read("../docs/serve.md")
	name := regexp.MustCompile(`\bmuster_[a-z_]+[a-z]\b`)
	shown := name.FindAllString(doc, -1)
	made := name.FindAllString(read("metrics.go"), -1) // those of the server, and some of the board
	board, restarts := sample(), 1
	for i := range board.Resources {
		board.Resources[i].Restarts = &restarts
	}
	for _, family := range gathered(t, board) {
		made = append(made, family.GetName())
	}
	if len(made) < 30 {
		t.Errorf("only these metrics were found: %q", made)
	}
	for _, metric := range made {
		if !slices.Contains(shown, metric) {
			t.Errorf("docs/serve.md does not explain %s", metric)
		}
	}
	for _, metric := range shown {
		if !slices.Contains(made, metric) {
			t.Errorf("docs/serve.md has %s, which is no metric", metric)
		}
	}
	for _, row := range []string{
		fmt.Sprintf("connections | %s;", text.Thousands(MaxConnections)),
		fmt.Sprintf("%d connections; %d pages that are open |", MaxFromAddress, MaxStreamsFromAddress),
		fmt.Sprintf("(streams) | %d |", MaxStreams),
		fmt.Sprintf("different pages | %d;", MaxViews),
		fmt.Sprintf("looked at | %d |", MaxDetails), fmt.Sprintf("hour is kept | %d,", MaxSampled),
		fmt.Sprintf("slow reader | %.0f s for %d KiB;", writeTimeout.Seconds(), writeChunk>>10),
		fmt.Sprintf("lags behind | %d changes, %d MiB;", maxBehind, maxBehindBytes>>20),
		fmt.Sprintf("scrapes | %d; %d |", maxAnswers, maxScrapes),
		fmt.Sprintf("with its query | %d KiB; %d KiB |", maxHeader>>10, maxURL>>10),
		fmt.Sprintf("is drawn | %d times a second |", time.Second/renderEvery),
		fmt.Sprintf("more than %s |", text.Thousands(maxSeries)),
	} {
		if !strings.Contains(doc, row) {
			t.Errorf("docs/serve.md does not say %q", row)
		}
	}
}
