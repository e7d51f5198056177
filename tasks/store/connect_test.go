package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/redisserver"
	"muster/resource/queue"
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

func startRedis(t *testing.T, o redisserver.Options) *redisserver.Server {
	t.Helper()
	s, err := redisserver.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestPasswordsGoOnlyToNamedHosts: a server at a host that is not named sees no connection at all.
func TestPasswordsGoOnlyToNamedHosts(t *testing.T) {
	t.Parallel()
	s := startRedis(t, redisserver.Options{Password: "secret"})
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

func TestServersThatCannotHoldAQueue(t *testing.T) {
	t.Parallel()
	evicting := startRedis(t, redisserver.Options{Policy: "allkeys-lru"})
	_, err := Connect(t.Context(), Config{URL: "redis://" + evicting.Addr()})
	if !errors.Is(err, ErrServer) || !strings.Contains(err.Error(), "noeviction") {
		t.Error(err)
	}
	_, port, _ := net.SplitHostPort(server.Addr())
	replica := startRedis(t, redisserver.Options{Extra: []string{"--replicaof", "127.0.0.1 " + port}})
	_, err = Connect(t.Context(), Config{URL: "redis://" + replica.Addr()})
	if !errors.Is(err, ErrServer) || !strings.Contains(err.Error(), "replica") {
		t.Error(err)
	}
	err = suits(map[string]string{"redis_version": "6.2.7"})
	if !errors.Is(err, ErrServer) || !strings.Contains(err.Error(), "6.2.7") {
		t.Error(err)
	}
	if _, err = Connect(t.Context(), Config{URL: "redis://" + server.Addr() + "/99"}); err == nil {
		t.Error("a database that does not exist")
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

// TestFailOver: a seat syncs until the replica is the primary, and goes on with what it holds.
func TestFailOver(t *testing.T) {
	t.Parallel()
	w, err := redisserver.StartWatched(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	url := "redis+sentinel://" + strings.Join(w.SentinelAddrs(), ",") + "/" + w.Name
	client, err := Connect(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	q := &testQueue{Queue: New(client, "generation", "q"), t: t}
	q.submit("b", 1, 3, payloads(3)...)
	e := q.seat("e", Executor, 1)
	e.turn(Turn{Idle: 1})
	if n, err := client.Do(t.Context(), "WAIT", 1, 0).Int(); err != nil || n != 1 {
		t.Fatalf("the replica has not got it: %d, %v", n, err)
	}
	if err := w.Servers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	deadline, tick := time.After(60*time.Second), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for seq := e.seq + 1; ; seq++ {
		kept, _, err := q.Sync(t.Context(), "e", seq, e.hand)
		if err == nil {
			if e.seq = seq; len(kept) != 1 {
				t.Errorf("kept %+v", kept)
			}
			break
		}
		select {
		case <-deadline:
			t.Fatal(err)
		case <-tick.C:
		}
	}
	for len(e.hand) > 0 {
		e.turn(Turn{Idle: 1, Results: e.finish(Done, time.Millisecond)})
	}
	if b := must(q.Batches(t.Context(), 0, 1))(t)[0]; b.Done != 3 {
		t.Errorf("%+v", b)
	}
}
