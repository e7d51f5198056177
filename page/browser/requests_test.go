package browser

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
)

// rawRequest is bytes that a client sends, and the codes that it may get; "-" is a closed connection.
type rawRequest struct{ name, request, want string }

func (c rawRequest) check(t *testing.T, s *server) {
	got, err := s.exchange(c.request)
	code, body, _ := strings.Cut(got, " ")
	if err != nil {
		code = "-"
	}
	if !strings.Contains(c.want, code) {
		t.Errorf("%s: %s (%v) %.200s; want %s", c.name, code, err, body, c.want)
	}
	if strings.Contains(body, "root:") || strings.Contains(body, `"><script>`) {
		t.Errorf("%s: %s", c.name, body)
	}
}

// rawRequests are requests of clients that mean ill.
func rawRequests(host string) []rawRequest {
	get := func(path string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
	}
	with := func(header string) string { return strings.Replace(get("/"), "\r\n\r\n", "\r\n"+header+"\r\n\r\n", 1) }
	method := func(m string) string {
		return m + " / HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	}
	return []rawRequest{
		{"get", get("/"), "200"},
		{"post", method("POST"), "405"},
		{"put", method("PUT"), "405"},
		{"delete", method("DELETE"), "405"},
		{"patch", method("PATCH"), "405"},
		{"options", method("OPTIONS"), "405"},
		{"trace", method("TRACE"), "405"},
		{"a method of its own", method("FROBNICATE"), "405"},
		{"connect", "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n", "403 405 421"},
		{"another host", strings.Replace(get("/"), host, "evil.example", 1), "403 421"},
		{"another host of the API", strings.Replace(get("/api/status"), host, "evil.example", 1), "403 421"},
		{"another host of the stream", strings.Replace(get("/stream?u=/"), host, "evil.example:80", 1), "403 421"},
		{"loopback as part of a name", strings.Replace(get("/"), host, "127.0.0.1.evil.example", 1), "403 421"},
		{"two hosts", with("Host: evil.example"), "400"},
		{"no host", "GET / HTTP/1.1\r\n\r\n", "400"},
		{"a host in the line", get("http://evil.example/"), "403 421"},
		{"path traversal", get("/assets/../../../../etc/passwd"), "301 307 400 403 404"},
		{"escaped path traversal", get("/assets/%2e%2e/%2e%2e/%2e%2e/etc/passwd"), "301 307 400 403 404"},
		{"doubly escaped", get("/assets/%252e%252e%252flimits.go"), "400 403 404"},
		{"backslashes", get(`/assets/..\..\limits.go`), "400 403 404"},
		{"a zero byte", get("/resource/%00"), "200 400 404"},
		{"not UTF-8", get("/resource/%ff%fe"), "200 400 403 404"},
		{"a folder", get("/assets/"), "301 403 404"},
		{"a template", get("/templates/page.html"), "404"},
		{"a long line", get("/?q=" + strings.Repeat("a", 8<<10)), "400 404 414 431"},
		{"a longer line", get("/?q=" + strings.Repeat("a", 256<<10)), "414 431"},
		{"huge headers", with("X: " + strings.Repeat("a", 256<<10)), "431"},
		{"many headers", with(strings.Repeat("X: a\r\n", 1<<15) + "Y: b"), "431"},
		{"two lengths", with("Content-Length: 1\r\nTransfer-Encoding: chunked") + "0\r\n\r\n", "200 400"},
		{"a version of the future", "GET / HTTP/9.9\r\nHost: " + host + "\r\n\r\n", "400 505"},
		{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400 -"},
		{"an unknown page", get("/nothing-here"), "404"},
		{"a sort of no column", get("/?sort=%22%3E%3Cscript%3E&status=x&kind=y"), "200 400 404"},
		{"an API of nothing", get("/api/status/jobs/none"), "404"},
	}
}

// testHostileRequests: each gets the answer that it should, nothing of it comes back unescaped, and the server goes on.
func testHostileRequests(t *testing.T, s *server) {
	var all sync.WaitGroup // some wait until the server has had enough
	for _, c := range rawRequests(s.addr) {
		all.Go(func() { c.check(t, s) })
	}
	all.Wait()
	for i := range 50 { // half a request, and away
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Half: y"[:5+i%30]); err != nil {
			t.Error(err)
		}
		conn.Close()
	}
	if code, _, _ := s.get("/healthz"); code != 200 {
		t.Errorf("/healthz: %d", code)
	}
}
