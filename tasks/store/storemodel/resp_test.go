package storemodel

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// request is words as a client sends them.
func request(words ...string) []byte {
	items := make([]any, len(words))
	for i, w := range words {
		items[i] = w
	}
	return encode(nil, items)
}

func TestRequest(t *testing.T) {
	words := []string{"EVAL", "", "a\r\nb", strings.Repeat("x", 100)}
	all := request(words...)
	for n := range all {
		if _, got, err := Request(all[:n]); got != 0 || err != nil {
			t.Fatalf("%d of %d bytes: %d, %v", n, len(all), got, err)
		}
	}
	got, n, err := Request(slices.Concat(all, all))
	if n != len(all) || err != nil {
		t.Errorf("two requests: %d, %v, want %d", n, err, len(all))
	}
	if d := cmp.Diff(words, got); d != "" {
		t.Errorf("words (-want +got):\n%s", d)
	}
	for _, bad := range []string{"PING\r\n", "*x\r\n", "*1\r\n+a\r\n", "*1\r\n$-1\r\n"} {
		if _, _, err := Request([]byte(bad)); err == nil {
			t.Errorf("%q is a request", bad)
		}
	}
}

// client is a connection that keeps its replies.
type client struct {
	*Client
	replies []string
}

func open(s *Server) *client {
	c := &client{}
	c.Client = s.Open(func(reply []byte) { c.replies = append(c.replies, string(reply)) })
	return c
}

func (c *client) send(words ...string) string {
	before := len(c.replies)
	c.Handle(words)
	return strings.Join(c.replies[before:], "")
}

// TestUnknownCommandsAreRefused: the server makes nothing up.
func TestUnknownCommandsAreRefused(t *testing.T) {
	c := open(NewServer(Options{}))
	for _, words := range [][]string{
		{"PING"}, {"HELLO", "3"}, {"GET", "x"}, {"CLIENT", "KILL"}, {"CLIENT", "UNBLOCK", "x"},
		{"EVAL", "return 1", "1", "muster:{g}:q"}, {"EVAL", "return 1", "0"}, {"SCAN", "0"},
		{"BLPOP", "muster:{g}:wake:x", "1"}, {"BLPOP", "muster:{g}:wake:e", "0"}, {"BLPOP", "a", "b", "1"},
		{"ZRANGE", "muster:{g}:run", "-inf", "(1", "byscore", "limit", "0", "1"},
		{"ZRANGE", "muster:{g}:dead", "-inf", "(x", "byscore", "limit", "0", "1"},
		{"ZRANGE", "muster:{g}:dead", "-inf", "5", "byscore", "limit", "0", "1"},
	} {
		if got := c.send(words...); !strings.HasPrefix(got, "-ERR the model does not know") {
			t.Errorf("%q: %q", words, got)
		}
	}
}

// TestDue: a block ends when its time is over.
func TestDue(t *testing.T) {
	now := time.Unix(1, 0)
	s := NewServer(Options{Now: func() time.Time { return now }})
	a, b := open(s), open(s)
	a.send("BLPOP", "muster:{g}:wake:e", "2")
	b.send("BLPOP", "muster:{g}:wake:e", "1")
	if next := s.Due(now); !next.Equal(now.Add(time.Second)) {
		t.Errorf("next is %s", next)
	}
	if next := s.Due(now.Add(time.Second)); !next.Equal(now.Add(2 * time.Second)) {
		t.Errorf("next is %s", next)
	}
	if len(a.replies) != 0 || len(b.replies) != 1 || b.replies[0] != "*-1\r\n" {
		t.Errorf("answers: %q, %q", a.replies, b.replies)
	}
	if next := s.Due(now.Add(time.Minute)); !next.IsZero() || len(a.replies) != 1 {
		t.Errorf("next is %s, answers: %q", next, a.replies)
	}
}

// TestRestart: who is connected gets nothing any more, and the keys are those that were saved.
func TestRestart(t *testing.T) {
	s := NewServer(Options{})
	s.Look("g", func(q *Queue) { q.Call("hello", []string{"a", "queue-1", "e", "1"}) })
	saved := s.Save()
	s.Look("g", func(q *Queue) {
		q.Call("hello", []string{"b", "queue-1", "e", "1"})
		q.Call("begin", []string{"batch", "queue-1", "life", "1", "1", "watcher", "0", "100"})
		q.Call("append", []string{"batch", "life", "0", "x"})
	})
	waits, other := open(s), open(s)
	if got := waits.send("BLPOP", "muster:{g}:wake:e", "100"); got != "" {
		t.Errorf("blocked: %q", got)
	}
	s.Restart(saved)
	s.Look("g", func(q *Queue) {
		if len(q.Seats) != 1 || q.Seats["a"] == nil || len(q.Batches) != 0 {
			t.Errorf("after the restart: %v", q.Keys())
		}
		q.wakeE = true
	})
	if got := other.send("CLIENT", "ID"); got != "" || len(waits.replies) != 0 {
		t.Errorf("a lost connection is answered: %q", got)
	}
	again := open(s)
	if got := again.send("EVALSHA", "a", "1", "muster:{g}:q"); !strings.HasPrefix(got, "-NOSCRIPT") {
		t.Errorf("a script outlived the restart: %q", got)
	}
	if got := again.send("BLPOP", "muster:{g}:wake:e", "1"); !strings.Contains(got, "wake:e") {
		t.Errorf("the token: %q", got)
	}
}
