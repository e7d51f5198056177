package redisserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
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

func client(t *testing.T, s *Server) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAKilledServerKeepsItsDataAndAddress(t *testing.T) {
	s := start(t, Options{})
	addr := s.Addr()
	if err := client(t, s).Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("a killed server accepts connections")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := client(t, s).Get(t.Context(), "key").Result()
	if err != nil || got != "value" || s.Addr() != addr {
		t.Errorf("after a restart at %s (before: %s): %q, %v", s.Addr(), addr, got, err)
	}
}

// TestAServerServesWhenItHasReadItsData: Restart waits for that.
func TestAServerServesWhenItHasReadItsData(t *testing.T) {
	s := start(t, Options{Extra: []string{"--key-load-delay", "100", "--loading-process-events-interval-bytes", "1024"}})
	pipe := client(t, s).Pipeline()
	for i := range 5000 {
		pipe.Set(t.Context(), fmt.Sprint("key-", i), "value", 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := client(t, s).DBSize(t.Context()).Result(); n != 5000 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
}

func TestAPausedServerDoesNotAnswer(t *testing.T) {
	s := start(t, Options{})
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.info(ctx, "server"); err == nil {
		t.Error("a paused server answers")
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.info(t.Context(), "server"); err != nil {
		t.Error(err)
	}
}

// TestNotInstalled: no Redis, or an old one, or something else of its name.
func TestNotInstalled(t *testing.T) {
	for _, script := range []string{
		"", "echo Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=6d95e1af3a2c082a", "echo hello",
	} {
		dir := t.TempDir()
		if script != "" {
			script = "#!/bin/sh\n" + script + "\n"
			if err := os.WriteFile(filepath.Join(dir, "redis-server"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", dir)
		_, err := Start(t.Context(), Options{})
		if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "redis-server 7 or newer") {
			t.Errorf("%q: %v", script, err)
		}
	}
}

func TestTheServersOwnWordsWhenItEnds(t *testing.T) {
	_, err := Start(t.Context(), Options{Extra: []string{"--maxmemory-policy", "nonsense"}})
	if err == nil || !strings.Contains(err.Error(), "maxmemory-policy") {
		t.Error(err)
	}
}
