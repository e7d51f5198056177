package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/redisserver"
	"muster/resource/queue"
	"muster/sim/rig"
)

// TestConnectRefusesAnAddress: it is read by package queue, and a password in it is not repeated.
func TestConnectRefusesAnAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"redis://:secret@r": queue.EnvPassword,
		"redis://r/zero":    "zero",
		"":                  "redis://",
	} {
		_, err := Connect(t.Context(), Config{URL: text})
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"MUSTER_REDIS_USERNAME": "u", "MUSTER_REDIS_PASSWORD_FILE": file, "MUSTER_SENTINEL_PASSWORD": "s",
		"MUSTER_REDIS_HOSTS": "a, b:1,",
	}
	getenv := func(name string) string { return env[name] }
	want := Config{
		URL: "redis://r", Username: "u", Password: "secret", SentinelPassword: "s", Hosts: []string{"a", "b:1"},
	}
	got, err := FromEnvironment("redis://r", getenv)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	env["MUSTER_REDIS_PASSWORD"] = "x"
	if _, err := FromEnvironment("redis://r", getenv); err == nil || !strings.Contains(err.Error(), "not both") {
		t.Error(err)
	}
}

// TestPasswordsGoOnlyToNamedHosts: a server at a host that is not named sees no connection at all.
func TestPasswordsGoOnlyToNamedHosts(t *testing.T) {
	t.Parallel()
	s := rig.StartRedis(t, redisserver.Options{Password: "secret"})
	c := Config{URL: "redis://" + s.Addr(), Password: "secret"}
	for _, hosts := range [][]string{nil, {"127.0.0.2"}, {"127.0.0.1:1"}} {
		c.Hosts = hosts
		_, err := Connect(t.Context(), c)
		if !errors.Is(err, ErrHost) || !strings.Contains(err.Error(), "MUSTER_REDIS_HOSTS") {
			t.Errorf("hosts %q: %v", hosts, err)
		}
	}
	for _, hosts := range [][]string{{"127.0.0.1"}, {"x", s.Addr()}} {
		c.Hosts = hosts
		client, err := Connect(t.Context(), c)
		if err != nil {
			t.Errorf("hosts %q: %v", hosts, err)
			continue
		}
		client.Close()
	}
	c.URL, c.Hosts = strings.Replace(c.URL, "127.0.0.1", "localhost", 1), []string{"LocalHost"}
	if client, err := Connect(t.Context(), c); err != nil {
		t.Errorf("a host in other letters: %v", err)
	} else {
		client.Close()
	}
	if _, err := Connect(t.Context(), Config{URL: c.URL}); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v", err)
	}
}

// TestAReplicaIsNoPrimary: others that cannot hold a queue are in TestServersThatCannotHoldAQueue of tasks/faults.
func TestAReplicaIsNoPrimary(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(server.Addr())
	replica := rig.StartRedis(t, redisserver.Options{Extra: []string{"--replicaof", "127.0.0.1 " + port}})
	_, err := Connect(t.Context(), Config{URL: "redis://" + replica.Addr()})
	if !errors.Is(err, ErrServer) || !strings.Contains(err.Error(), "replica") {
		t.Error(err)
	}
}

// TestTLS: the server's certificate is checked.
func TestTLS(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(certified.Close)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go forward(in, server.Addr())
		}
	}()
	c := Config{URL: "rediss://" + l.Addr().String()}
	if _, err := Connect(t.Context(), c); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with an unknown certificate: %v", err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(certified.Certificate())
	c.TLS = &tls.Config{RootCAs: trusted}
	client, err := Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
}

func forward(in net.Conn, addr string) {
	defer in.Close()
	out, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		defer out.Close()
		_, _ = io.Copy(out, in)
	}()
	_, _ = io.Copy(in, out)
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// monsters are replies that no Redis gives, and that cost a client much if it takes them.
func monsters() map[string]func() io.Reader {
	text := func(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }
	return map[string]func() io.Reader{
		"a long array": text("*2000000000\r\n"), "a deep array": text(strings.Repeat("*1\r\n", 3_000_000)),
		"a large bulk": func() io.Reader { return io.MultiReader(strings.NewReader("$2000000000\r\n"), zeros{}) },
		"a long line":  func() io.Reader { return io.MultiReader(strings.NewReader("+"), zeros{}) },
		"many arrays":  text("*1000\r\n" + strings.Repeat("*1000000\r\n", 1000)),
		"attributes":   text(strings.Repeat("|0\r\n", 3_000_000)), "a map": text("%1000000000\r\n"),
		"another protocol": text("HTTP/1.1 400 Bad Request\r\n\r\n"), "no number": text("$x\r\n"),
		"a bulk":   text("$1\r\nxyz"),
		"negative": text("*-2\r\n"), "an empty line": text("\r\n"), "no return": text("+OK\n"),
	}
}

// TestMonstersAtConnect: each of them ends the attempt with an error that says what the server is.
func TestMonstersAtConnect(t *testing.T) {
	t.Parallel()
	for name, reply := range monsters() {
		for _, command := range []string{"hello", "info"} {
			t.Run(name+" to "+command, func(t *testing.T) {
				at := rig.Liar(t, server.Addr(), func(request []string) io.Reader {
					if strings.EqualFold(request[0], command) {
						return reply()
					}
					return nil
				})
				client, err := Connect(t.Context(), Config{URL: "redis://" + at})
				if err == nil {
					client.Close()
				}
				if !errors.Is(err, ErrReply) || !strings.Contains(err.Error(), at+": "+ErrReply.Error()+": ") {
					t.Errorf("%.300v", err)
				}
			})
		}
	}
}

// TestMonstersInACall: the call ends with that error, and at the next one the server may answer well.
func TestMonstersInACall(t *testing.T) {
	t.Parallel()
	for name, reply := range monsters() {
		for _, command := range []string{"evalsha", "hkeys", "zrange"} {
			var lies atomic.Bool
			lies.Store(true)
			at := rig.Liar(t, server.Addr(), func(request []string) io.Reader {
				if lies.Load() && strings.EqualFold(request[0], command) {
					return reply()
				}
				return nil
			})
			client, err := Connect(t.Context(), Config{URL: "redis://" + at})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			q := New(client, "generation", "q")
			call := calls()[map[string]string{"evalsha": "books", "hkeys": "hands", "zrange": "dead batches"}[command]]
			if err := call(t.Context(), q); !errors.Is(err, ErrReply) || !strings.Contains(err.Error(), at) {
				t.Errorf("%s to %s: %.300v", name, command, err)
			}
			lies.Store(false)
			if err := call(t.Context(), q); err != nil {
				t.Errorf("after %s to %s: %v", name, command, err)
			}
		}
	}
}

// calls are all that is asked of a queue.
func calls() map[string]func(ctx context.Context, q *Queue) error {
	return map[string]func(ctx context.Context, q *Queue) error{
		"hello": func(ctx context.Context, q *Queue) error { _, err := q.Hello(ctx, "s", queue.Executor, 1); return err },
		"evict": func(ctx context.Context, q *Queue) error { _, _, err := q.Evict(ctx, Left, "s"); return err },
		"append": func(ctx context.Context, q *Queue) error {
			_, err := q.Append(ctx, "b", "l", 0, nil)
			return err
		},
		"turn": func(ctx context.Context, q *Queue) error {
			_, err := q.Turn(ctx, "s", 1, Turn{Results: make([]Result, 2)})
			return err
		},
		"sync": func(ctx context.Context, q *Queue) error { _, _, err := q.Sync(ctx, "s", 1, nil); return err },
		"claim": func(ctx context.Context, q *Queue) error {
			_, _, err := q.Claim(ctx, "s", 1)
			return err
		},
		"books":   func(ctx context.Context, q *Queue) error { _, err := q.Books(ctx); return err },
		"batch":   func(ctx context.Context, q *Queue) error { _, err := q.Batch(ctx, "b"); return err },
		"batches": func(ctx context.Context, q *Queue) error { _, err := q.ByID(ctx); return err },
		"results": func(ctx context.Context, q *Queue) error { _, err := q.Results(ctx, "b", 0); return err },
		"dead":    func(ctx context.Context, q *Queue) error { _, err := q.DeadTasks(ctx, "b", 0); return err },
		"hands":   func(ctx context.Context, q *Queue) error { _, err := q.Hands(ctx, []string{"s", "t"}); return err },
		"dead batches": func(ctx context.Context, q *Queue) error {
			_, err := q.DeadBatches(ctx, time.Now(), 10)
			return err
		},
	}
}

// TestRepliesOfNoRedis: a reply of another shape than the call's is an error that says so.
func TestRepliesOfNoRedis(t *testing.T) {
	t.Parallel()
	wrong := map[string]string{
		"an empty array": "*0\r\n", "no array": "*-1\r\n", "nothing": "$-1\r\n", "a text": "$1\r\nx\r\n",
		"negative": ":-5\r\n", "an array of one": "*1\r\n$1\r\nx\r\n", "arrays": "*4\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
		"texts":         "*4\r\n$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n",
		"empty in turn": "*4\r\n:0\r\n*1\r\n*0\r\n*1\r\n*0\r\n:0\r\n",
		"grants":        "*4\r\n:0\r\n*0\r\n*1\r\n*4\r\n$1\r\nb\r\n:-1\r\n:1\r\n*0\r\n:0\r\n",
		"refused":       "*4\r\n:0\r\n*1\r\n*2\r\n:7\r\n$4\r\nheld\r\n*0\r\n:0\r\n", "an error within": "*1\r\n-ERR x\r\n",
		"a huge number": ":99999999999999999999\r\n", "a claim": "*6\r\n:0\r\n$4\r\n../x\r\n$1\r\nl\r\n:0\r\n:0\r\n:1\r\n",
	}
	for what, reply := range wrong {
		at := rig.Liar(t, server.Addr(), func(request []string) io.Reader {
			if strings.EqualFold(request[0], "evalsha") || strings.EqualFold(request[0], "hkeys") ||
				strings.EqualFold(request[0], "zrange") {
				return strings.NewReader(reply)
			}
			return nil
		})
		client, err := Connect(t.Context(), Config{URL: "redis://" + at})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		q := New(client, "generation", "q")
		for call, f := range calls() {
			if fits[call] == nil || !strings.Contains(fmt.Sprint(fits[call]), what) {
				if err := f(t.Context(), q); !errors.Is(err, ErrReply) || !strings.Contains(err.Error(), at) {
					t.Errorf("%s: %s: %v", what, call, err)
				}
			}
		}
	}
}

// fits are replies of TestRepliesOfNoRedis that are sound for a call.
var fits = map[string][]string{
	"batches": {"an empty array"}, "results": {"an empty array"}, "dead": {"an empty array"},
	"hands":        {"an empty array", "an array of one", "texts"},
	"dead batches": {"an empty array", "an array of one", "texts"},
}

// TestSentinelsThatAreNone: what they say ends the attempt with an error, and nothing else. One that is sound is
// enough.
func TestSentinelsThatAreNone(t *testing.T) {
	t.Parallel()
	sentinel := func(reply string) string {
		return rig.Liar(t, server.Addr(), func(request []string) io.Reader {
			switch {
			case len(request) > 1 && request[1] == "get-master-addr-by-name":
				return strings.NewReader(reply)
			case len(request) > 1 && request[1] == "sentinels":
				return strings.NewReader("*0\r\n")
			case strings.EqualFold(request[0], "subscribe"):
				return strings.NewReader("*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$6\r\nmaster\r\n*0\r\n")
			}
			return strings.NewReader("-ERR unknown\r\n")
		})
	}
	host, port, _ := net.SplitHostPort(server.Addr())
	sound := sentinel(fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port))
	var bad []string
	for _, reply := range []string{
		"*0\r\n", "*1\r\n$1\r\na\r\n", "*3\r\n:1\r\n:1\r\n:1\r\n", "*2\r\n*0\r\n*0\r\n", "$-1\r\n", ":1\r\n",
		"HTTP/1.1 400\r\n",
		strings.Repeat("*1\r\n", 3_000_000),
	} {
		at := sentinel(reply)
		bad = append(bad, at)
		client, err := Connect(t.Context(), Config{URL: "redis+sentinel://" + at + "/master"})
		if err == nil {
			client.Close()
		}
		if reply != "$-1\r\n" && !errors.Is(err, ErrReply) || !strings.Contains(err.Error(), at) {
			t.Errorf("%.40q: %v", reply, err)
		}
	}
	for _, hosts := range []string{sound, strings.Join(append(bad, sound), ",")} {
		client, err := Connect(t.Context(), Config{URL: "redis+sentinel://" + hosts + "/master"})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		for range 20 {
			if err := client.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
