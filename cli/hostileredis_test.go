package cli_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"muster/dev/redisserver"
	"muster/tasks"
)

// TestAHostileRedisHarmsOnlyItsQueue: the page, the API and the commands say what it is, and other queues are shown as
// before. When it is a Redis again, all goes on; an executor and a submitter have waited.
func TestAHostileRedisHarmsOnlyItsQueue(t *testing.T) {
	t.Parallel()
	const says = "this Redis does not answer as a Redis does"
	var reply atomic.Pointer[string] // to every request; nil: what Redis says
	liar, err := redisserver.NewLiar(sharedRedis(t).Addr(), func(request []string) io.Reader {
		lie := reply.Load()
		if lie == nil || strings.EqualFold(request[0], "hello") && strings.HasPrefix(*lie, "*1\r\n*0") {
			return nil
		}
		return strings.NewReader(*lie)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { liar.Close() })
	_, port, _ := net.SplitHostPort(liar.Addr())
	root := "/hostile-" + port
	f := newQueueFixture(t, fmt.Sprintf("}\nqueue \"hostile\" {\n  root = %q\n  redis = \"redis://%s/0\"\n", root,
		liar.Addr()))
	f.completed("good", []byte("one"))
	config := tasks.SubmitConfig{Root: root, Queue: "hostile", ID: "b", By: "t", Redis: tasks.Access{Getenv: credentials}}
	if _, err := tasks.Submit(t.Context(), f.s, config, tasks.Payloads([]byte("a"))); err != nil {
		t.Fatal(err)
	}
	with := func(args ...string) outcome {
		cmd := f.command(servers.Connect(), args...)
		cmd.Env = append(cmd.Env, redisEnviron()...)
		return result(cmd)
	}
	serve := f.command(servers.Connect(), "serve", "--listen", "127.0.0.1:0")
	serve.Env = append(serve.Env, redisEnviron()...)
	s := startServe(t, serve)
	path := root + "/hostile"
	for _, lie := range []string{
		"*2000000000\r\n", strings.Repeat("*1\r\n", 3_000_000), "$2000000000\r\nx", "%2000000000\r\n", "*1\r\n*0\r\n",
		"HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		reply.Store(&lie)
		s.says("/resource"+path, says)
		s.says("/api/batches"+path, says)
		if code, body := s.get("/api/batches" + path); code != http.StatusBadGateway {
			t.Errorf("the API: %d %s", code, body)
		}
		if code, body := s.get("/api/batches" + f.root + "/primes"); code != 200 || !strings.Contains(body, "good") {
			t.Errorf("the other queue: %d %s", code, body)
		}
		all := with("batches", path)
		for range 20 { // on a busy machine so long a reply is not read within the limit
			if strings.Contains(all.stdout+all.stderr, says) {
				break
			}
			all = with("batches", path)
		}
		expect(t, all, 3, says)
		expect(t, with("batch", path+"/b", "--timeout", "1s"), 8, says, "next: look what answers there")
		if strings.HasPrefix(lie, "HTTP") {
			break
		}
		reply.Store(nil)
		s.says("/api/batches"+path, `"waiting": 1`)
	}
	start := func(args ...string) *screen {
		cmd := f.command(servers.Connect(), append([]string{args[0], "--root", root}, args[1:]...)...)
		cmd.Env = append(cmd.Env, redisEnviron()...)
		cmd.Stdin = strings.NewReader("two\n")
		seen := startOnScreen(t, cmd)
		seen.await(t, says)
		return seen
	}
	executor := start("executor", "hostile", "--identity", "e", "--parallel", "1", "--", "/bin/true")
	submit := start("submit", "hostile", "--id", "c")
	reply.Store(nil)
	executor.await(t, "joined "+path+" as e")
	submit.await(t, "c\n")
	s.says("/api/batches"+path, `"done": 1`)
}
