package tasks

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks/store"
	"muster/tasks/store/lua"
)

// liar is a Redis that lies to some requests while the test wants it.
type liar struct {
	addr     string
	lie      atomic.Pointer[func(request []string) io.Reader]
	requests atomic.Int64
}

func newLiar(t testing.TB) *liar {
	t.Helper()
	l := &liar{}
	l.addr = rig.Liar(t, rediss.Addr(), func(request []string) io.Reader {
		l.requests.Add(1)
		if lie := l.lie.Load(); lie != nil {
			return (*lie)(request)
		}
		return nil
	})
	return l
}

// to answers commands, or scripts of these names, with a reply.
func (l *liar) to(commands, reply string) {
	lied := map[string]bool{}
	for name := range strings.FieldsSeq(commands) {
		lied[name], lied[redis.NewScript(lua.Scripts(lua.Clock())[name]).Hash()] = true, true
	}
	lie := func(request []string) io.Reader {
		if lied["all"] || lied[strings.ToLower(request[0])] || len(request) > 1 && lied[request[1]] {
			return strings.NewReader(reply)
		}
		return nil
	}
	l.lie.Store(&lie)
}

func (l *liar) honest() { l.lie.Store(nil) }

// calm checks that the processes ask little of a Redis that gets them nowhere.
func (l *liar) calm(t *testing.T, what string) {
	t.Helper()
	takeTime(2 * time.Second) // the first waits are short
	before := l.requests.Load()
	takeTime(2 * time.Second)
	if n := l.requests.Load() - before; n > 400 {
		t.Errorf("%s: %d requests in two seconds", what, n)
	}
}

// lies are replies that end a client that believes them, or make it ask at once again.
func lies() map[string][2]string {
	return map[string][2]string{
		"a long array":       {"all", "*2000000000\r\n"},
		"deep arrays":        {"all", strings.Repeat("*1\r\n", 3_000_000)},
		"another protocol":   {"all", "HTTP/1.1 400 Bad Request\r\n\r\n"},
		"empty turns":        {"turn", "*0\r\n"},
		"turns of nothing":   {"turn", "*4\r\n:0\r\n*1\r\n*0\r\n*1\r\n*0\r\n:0\r\n"},
		"results unsent":     {"turn", "*4\r\n:0\r\n*1\r\n*2\r\n:7000\r\n$4\r\nheld\r\n*0\r\n:0\r\n"},
		"empty claims":       {"claim", "*0\r\n"},
		"half a claim":       {"claim", "*2\r\n:0\r\n$1\r\nb\r\n"},
		"empty syncs":        {"turn sync", "*0\r\n"},
		"waits that are not": {"blpop", "*2000000000\r\n"},
	}
}

// TestProcessesOutliveAHostileRedis: an executor and a watcher wait while their Redis answers what no Redis does, say
// why, and go on when it is one again.
func TestProcessesOutliveAHostileRedis(t *testing.T) {
	t.Parallel()
	for name, lie := range lies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLiar(t)
			f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + l.addr })
			var notes notebook
			noted := func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&notes, nil)) }
			crew := f.crew()
			crew.add(f.join("e", queue.Executor, noted), milliSquare)
			watched := make(chan string, 1)
			f.watching(f.join("w", queue.Watcher, noted), func(_ context.Context, b *Completed) error {
				watched <- b.ID
				return nil
			})
			direct := redis.NewClient(&redis.Options{Addr: rediss.Addr(), Protocol: 2})
			defer direct.Close()
			l.to(lie[0], lie[1])
			for _, list := range []string{WakeExecutor, WakeWatcher} { // or else they would ask nothing for a while
				if err := direct.RPush(t.Context(), store.Prefix(f.generation())+list, "1").Err(); err != nil {
					t.Fatal(err)
				}
			}
			l.calm(t, name)
			l.honest()
			f.submit("b", numbered(20))
			rig.Receive(t, watched, "the batch after "+name)
			if lie[0] != "blpop" && !strings.Contains(notes.String(), store.ErrReply.Error()) {
				t.Errorf("the processes do not say why they wait:\n%s", notes.String())
			}
			crew.drain()
		})
	}
}

// notebook keeps what is written.
type notebook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *notebook) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(b)
}

func (n *notebook) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// TestTheKeeperSaysThatItsRedisIsNone: "muster status" reads it in ZooKeeper.
func TestTheKeeperSaysThatItsRedisIsNone(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + l.addr })
	f.joinKeeper("k", quick())
	l.to("count", "*0\r\n")
	rig.Await(t, "the note", func() bool {
		s, err := f.admin.QueueState(t.Context(), f.look())
		return err == nil && strings.Contains(s.Refused, store.ErrReply.Error())
	})
	l.honest()
	rig.Await(t, "its end", func() bool {
		s, err := f.admin.QueueState(t.Context(), f.look())
		return err == nil && s.Refused == ""
	})
}

// TestSubmitWaitsForARedis: the submitter says what it waits for, and goes on.
func TestSubmitWaitsForARedis(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + l.addr })
	for _, lie := range [][2]string{
		{"all", "*2000000000\r\n"}, {"all", strings.Repeat("*1\r\n", 3_000_000)}, {"begin", "*0\r\n"},
		{"append", "$1\r\nx\r\n"}, {"open", ":-1\r\n"},
	} {
		l.to(lie[0], lie[1])
		c := f.submitConfig("b-" + lie[0] + lie[1][1:2])
		c.Waiting = func(what string) {
			if !strings.Contains(what, store.ErrReply.Error()) {
				t.Errorf("%.20q to %s: it waits for %s", lie[1], lie[0], what)
			}
			l.honest()
		}
		if _, err := Submit(t.Context(), f.s, c, numbered(20)); err != nil {
			t.Fatal(err)
		}
		if b := f.inRedis(c.ID); b.Tasks != 20 {
			t.Errorf("%+v", b)
		}
	}
}

// TestResultsWithoutEnd: who reads them stops when there are more than tasks.
func TestResultsWithoutEnd(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + l.addr })
	f.submit("b", numbered(3))
	st := f.store()
	l.to("count", "*2\r\n$9\r\n0:1:5:abc\r\n$10\r\n77:1:5:abc\r\n")
	var err error
	for _, err = range InOrder(Records(t.Context(), st, "b", nil), 3) {
		if err != nil {
			break
		}
	}
	if !errors.Is(err, store.ErrReply) {
		t.Error(err)
	}
	if _, err := st.Results(t.Context(), "b", queue.MaxTasks+1); !errors.Is(err, store.ErrReply) {
		t.Error(err)
	}
}
