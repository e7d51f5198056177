package browser

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/dev/daemon"
	"muster/sim/rig"
)

// server is a running muster serve.
type server struct {
	t    *testing.T
	run  *daemon.Process
	url  string // "http://127.0.0.1:8090"
	addr string // "127.0.0.1:8090"
}

// serve starts muster serve on a free port.
func (w *world) serve(args ...string) *server {
	w.t.Helper()
	return w.launch(w.command(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...))
}

// serveThrough is serve with ZooKeeper at another address.
func (w *world) serveThrough(servers string, args ...string) *server {
	w.t.Helper()
	cmd := w.command(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(cmd.Env, "MUSTER_SERVERS="+servers)
	return w.launch(cmd)
}

func (w *world) launch(cmd *exec.Cmd) *server {
	w.t.Helper()
	p, err := daemon.Start(cmd)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { endProcess(p) })
	s := &server{t: w.t, run: p}
	said := regexp.MustCompile(`http://([\w.:\[\]]+)`)
	rig.Until(w.t, patience, "muster serve", func() string {
		out := p.Out.String()
		if p.Ended() {
			w.t.Fatalf("muster serve ended with %d:\n%s", p.Code(), out)
		}
		if m := said.FindStringSubmatch(out); m != nil {
			s.url, s.addr = m[0], m[1]
			return ""
		}
		return "it does not say where: " + out
	})
	return s
}

// get is the answer to a GET.
func (s *server) get(path string) (code int, header http.Header, body string) {
	s.t.Helper()
	code, header, body, err := s.tryGet(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return code, header, body
}

func (s *server) tryGet(path string) (code int, header http.Header, body string, err error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(s.url + path)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(b), err
}

// memory is a number of bytes in /proc/PID/status: VmRSS is what it has now, VmHWM the most that it has had.
func (s *server) memory(field string) int {
	s.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.run.OS.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_, after, found := strings.Cut(string(status), field+":")
	var kib int
	if _, err := fmt.Sscan(after, &kib); err != nil || !found {
		s.t.Fatalf("%s: %v in %s", field, err, status)
	}
	return kib << 10
}

// files is how many files and sockets it has open.
func (s *server) files() int {
	s.t.Helper()
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.run.OS.Pid))
	if err != nil || len(all) == 0 {
		s.t.Fatal(errors.Join(err, errors.New("no files")))
	}
	return len(all)
}

// processorTime is what it has used so far.
func (s *server) processorTime() time.Duration {
	s.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.run.OS.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	var user, system int64
	if _, err := fmt.Sscan(fields[11], &user); err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Sscan(fields[12], &system); err != nil {
		s.t.Fatal(err)
	}
	const hertz = 100 // USER_HZ, on every Linux
	return time.Duration(user+system) * time.Second / hertz
}
