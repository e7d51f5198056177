package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muster/dev/zkmodel"
	"muster/zkstate/zkconn"
)

var open = zkconn.World(zkconn.PermAll)

// everything may happen.
var everything = Faults{Crashes: 2, Cuts: 2, Expiries: 2, LostReplies: 2, Pauses: 2, Outages: 1}

// planted has a bug: two processes look whether a znode exists before they create another.
func planted(w *World) {
	made := 0
	for _, name := range []string{"a", "b"} {
		w.Process(name, 0, InSession(10*time.Second, func(p *Process, s *zkconn.Session) error {
			if _, there, err := s.Exists(p.Context(), "/made"); there || err != nil {
				return err
			}
			_, err := s.Create(p.Context(), "/made", nil, zkconn.Persistent, open)
			if err == nil {
				p.Saw(func() { made++ })
			} else if errors.Is(err, zkconn.ErrNodeExists) {
				return errors.New("both have made it")
			}
			return err
		}))
	}
}

func TestPlantedBugIsFoundReplayedAndShortened(t *testing.T) {
	o := Options{Faults: everything, End: 5 * time.Minute}.complete(t)
	o.Seeds = 500
	f, _ := exploreSeeds(t, o, planted, 0)
	if f == nil {
		t.Fatal("not found in 500 schedules")
	}
	long := len(f.trace)
	for range 5 {
		if out := replayed(t, o, planted, f.trace); out.err == nil || out.err.Error() != f.err.Error() {
			t.Errorf("the trace leads to %v, not to %v", out.err, f.err)
		}
	}
	short := shrink(t, o, planted, *f)
	if short.err == nil || len(short.trace) > 12 || len(short.trace) > long {
		t.Errorf("%d lines became %d: %v\n%s", long, len(short.trace), short.err, numbered(short.trace))
	}
	for i := range short.trace {
		less := slices.Delete(slices.Clone(short.trace), i, i+1)
		if out := replayed(t, o, planted, less); out.err != nil {
			t.Errorf("the trace fails without line %d, %q", i+1, short.trace[i])
		}
	}
}

func TestAFailureIsRunAgainFromAnyFolder(t *testing.T) {
	if got, want := again("TestWorlds/late"), "go test muster/sim -run '^TestWorlds$/^late$'"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// counting is correct.
func counting(w *World) {
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		_, err := s.Create(ctx, "/n", nil, zkconn.Persistent, open)
		return err
	})
	w.Foreign(Foreign{
		Name: "echo", Frame: func(b []byte) int { return len(b) }, Label: func(b []byte) string { return "say" },
		Open: func(out func([]byte)) (func([]byte), func()) { return out, func() {} },
	})
	for _, name := range []string{"a", "b", "c"} {
		w.Process(name, 1, InSession(10*time.Second, func(p *Process, s *zkconn.Session) error {
			if c, err := p.Conn("echo"); err == nil {
				c.Write([]byte("x"))
				c.Read(make([]byte, 1))
				c.Close()
			}
			for range 3 {
				if _, err := s.Create(p.Context(), "/n/x-", nil, zkconn.PersistentSequential, open); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func TestEverythingHappens(t *testing.T) {
	o := Options{Faults: everything}.complete(t)
	seen := map[verb]int{}
	for seed := range uint64(150) {
		out := inBubble(t, o, counting, newExplorer(o, seed))
		if out.err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, out.err, numbered(out.trace))
		}
		for _, line := range out.trace {
			name, _, _ := strings.Cut(line, " ")
			seen[verb(name)]++
		}
	}
	for _, v := range []verb{
		start, apply, deliver, loseRequest, resume, wait, loseReply, cut, cutLate, expire, crash, crashLate, down, up, pause,
	} {
		if seen[v] == 0 {
			t.Errorf("%s never happens", v)
		}
	}
}

func TestSeedsAndTracesRepeat(t *testing.T) {
	o := Options{Faults: everything}.complete(t)
	const n = 40
	again, replays := 0, 0
	for seed := range uint64(n) {
		first := inBubble(t, o, counting, newExplorer(o, seed)).trace
		if slices.Equal(first, inBubble(t, o, counting, newExplorer(o, seed)).trace) {
			again++
		}
		if slices.Equal(first, replayed(t, o, counting, slices.Clone(first)).trace) {
			replays++
		}
	}
	if again < n*8/10 || replays < n*8/10 {
		t.Errorf("of %d schedules, %d were the same again, and %d traces replayed", n, again, replays)
	}
}

// one runs a world once, without faults or with those of a trace, and returns how it failed.
func one(t *testing.T, world func(*World), trace ...string) outcome {
	t.Helper()
	return replayed(t, Options{End: time.Minute}.complete(t), world, trace)
}

func TestHangIsNamed(t *testing.T) {
	out := one(t, func(w *World) {
		w.Process("sleeper", 0, func(p *Process) error {
			sleepFor(p.Context())
			return nil
		})
	})
	for _, part := range []string{"sleeper.0 does not end within 1m0s", "sleepFor (explore_test.go:"} {
		if out.err == nil || !strings.Contains(out.err.Error(), part) {
			t.Errorf("%v\ndoes not say %q", out.err, part)
		}
	}
}

func sleepFor(ctx context.Context) { <-ctx.Done() }

func TestBusyProcessIsNamed(t *testing.T) {
	out := one(t, func(w *World) {
		w.Process("spinner", 0, func(p *Process) error {
			s, err := p.Dial(time.Minute)
			for err == nil {
				_, _, err = s.Exists(p.Context(), "/x")
			}
			return err
		})
	})
	if out.err == nil || !strings.Contains(out.err.Error(), "always busy") {
		t.Error(out.err)
	}
}

func TestPanicAndLeakAreFailures(t *testing.T) {
	out := one(t, func(w *World) {
		w.Process("a", 0, func(*Process) error { panic("so") })
	})
	if out.err == nil || !strings.Contains(out.err.Error(), "panic: so") {
		t.Error(out.err)
	}
	out = one(t, func(w *World) {
		w.Process("a", 0, func(*Process) error {
			go func() { <-make(chan int) }()
			return nil
		})
	})
	if out.err == nil || !strings.Contains(out.err.Error(), "goroutines remain") {
		t.Error(out.err)
	}
}

// TestCrashedProcessDoesNothing: after a crash a process's requests are lost, or arrive late, and nothing new happens.
func TestCrashedProcessDoesNothing(t *testing.T) {
	for _, c := range []struct {
		verb verb
		made int
	}{{crash, 0}, {crashLate, 1}} {
		made, saw := 0, 0
		out := one(t, func(w *World) {
			w.OnTxn(func(x *zkmodel.Txn) error {
				if x.Ops[0].Type != zkmodel.OpClose {
					made++
				}
				return nil
			})
			w.Process("a", 1, func(p *Process) error {
				if p.Life() > 0 {
					return nil
				}
				s, err := p.Dial(time.Minute)
				if err != nil {
					return err
				}
				_, err = s.Create(p.Context(), "/x", nil, zkconn.Persistent, open)
				p.Saw(func() { saw++ })
				s.Create(context.Background(), "/y", nil, zkconn.Persistent, open)
				return err
			})
		}, "start a.0", "apply a.0 connect", "deliver a.0 connect", string(c.verb)+" a.0")
		if out.err != nil || len(out.trace) != 4 || made != c.made || saw != 0 {
			t.Errorf("%s: %v, %d were made, %d seen\n%s", c.verb, out.err, made, saw, numbered(out.trace))
		}
	}
}

func TestConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &World{activity: make(chan struct{}, 1)}
		c := newConn(w, &Process{proc: &process{}}, "", &foreign{Foreign: Foreign{
			Frame: func(b []byte) int { return len(b) / 2 * 2 }, Label: func([]byte) string { return "" },
		}})
		c.SetReadDeadline(time.Now().Add(time.Second))
		begun := time.Now()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		c.SetReadDeadline(time.Time{})
		go c.deliver([]byte("abc"))
		b := make([]byte, 2)
		if n, err := c.Read(b); n != 2 || err != nil || string(b) != "ab" {
			t.Errorf("read %q: %v", b[:n], err)
		}
		fmt.Fprint(c, "x")
		if _, ok := c.request(); ok {
			t.Error("half a message is sent")
		}
		fmt.Fprint(c, "y")
		if m, ok := c.takeRequest(); !ok || string(m.bytes) != "xy" {
			t.Errorf("sent %q", m.bytes)
		}
		c.sever()
		if n, err := c.Read(b); n != 1 || err != nil {
			t.Errorf("what was delivered before the end is lost: %v", err)
		}
		if _, err := c.Read(b); err == nil {
			t.Error("the connection is cut, and a read waits")
		}
		if _, err := c.Write(b); err == nil {
			t.Error("the connection is cut, and takes a message")
		}
		c.Close()
		if _, err := c.Write(b); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestFaults: what each fault does to a process that creates an ephemeral znode and then reads.
func TestFaults(t *testing.T) {
	dialled := []string{"start a.0", "apply a.0 connect", "deliver a.0 connect"}
	created := append(dialled[:3:3], "apply a.0 create /e", "deliver a.0 create /e")
	for name, c := range map[string]struct {
		before       []string
		faults       []string
		create, read error // as the process sees them
		made, gone   int   // times that /e was created, and deleted before the process ends
	}{
		"none":       {before: created, made: 1},
		"lose-reply": {before: dialled, faults: []string{"lose-reply a.0 create /e"}, create: zkconn.ErrUnknown, made: 1},
		"cut":        {before: dialled, faults: []string{"cut a.0"}, create: zkconn.ErrUnknown},
		"cut-late": {
			before: dialled, faults: []string{"cut-late a.0", "apply a.0 create /e"}, create: zkconn.ErrUnknown, made: 1,
		},
		"lose-request": {
			before: dialled, faults: []string{"cut-late a.0", "lose-request a.0 create /e"}, create: zkconn.ErrUnknown,
		},
		"expire": {before: created, faults: []string{"expire a.0"}, read: zkconn.ErrSessionLost, made: 1, gone: 1},
		"pause": {
			before: created, faults: []string{"pause a.0", "wait - 1m0s"}, read: zkconn.ErrSessionLost, made: 1, gone: 1,
		},
		"wait": {before: created, faults: []string{"wait - 1s"}, made: 1},
	} {
		t.Run(name, func(t *testing.T) {
			made, gone := 0, 0
			var create, read error
			ends := false
			out := one(t, func(w *World) {
				w.OnTxn(func(x *zkmodel.Txn) error {
					for _, op := range x.Ops {
						switch {
						case op.Path != "/e" || ends:
						case op.Type == zkmodel.OpDelete:
							gone++
						default:
							made++
						}
					}
					return nil
				})
				w.Process("a", 0, InSession(10*time.Second, func(p *Process, s *zkconn.Session) error {
					_, create = s.Create(p.Context(), "/e", nil, zkconn.Ephemeral, open)
					if create == nil {
						_, _, read = s.Exists(p.Context(), "/e")
					}
					<-time.After(50 * time.Second)
					ends = true
					return nil
				}))
			}, append(c.before[:len(c.before):len(c.before)], c.faults...)...)
			if out.err != nil || !errors.Is(create, c.create) || !errors.Is(read, c.read) || made != c.made || gone != c.gone {
				t.Errorf("%v: create: %v, read: %v; made %d times, gone %d times\n%s",
					out.err, create, read, made, gone, numbered(out.trace))
			}
		})
	}
}

// TestSilentSessionEnds: the session of a process that has crashed for good ends after its timeout.
func TestSilentSessionEnds(t *testing.T) {
	early, late := false, true
	there := func(w *World) bool {
		_, _, ok := w.Server().Get("/e")
		return ok
	}
	out := one(t, func(w *World) {
		w.Process("a", -1, func(p *Process) error {
			s, err := p.Dial(10 * time.Second)
			if err == nil {
				_, err = s.Create(p.Context(), "/e", nil, zkconn.Ephemeral, open)
			}
			if err == nil {
				<-p.Context().Done()
			}
			return err
		})
		w.Process("b", 0, func(p *Process) error {
			<-time.After(5 * time.Second)
			early = there(w)
			<-time.After(10 * time.Second)
			late = there(w)
			return nil
		})
	}, "start a.0", "apply a.0 connect", "deliver a.0 connect", "apply a.0 create /e", "crash a.0")
	if out.err != nil || !early || late {
		t.Errorf("%v; after 5 s it is there: %t, after 15 s: %t", out.err, early, late)
	}
}

// TestChecksFail: an invariant that does not hold fails the schedule, and the first failure counts.
func TestChecksFail(t *testing.T) {
	broken := errors.New("broken")
	idle := func(p *Process) error { return nil }
	busy := func(p *Process) error {
		s, err := p.Dial(time.Minute)
		if err != nil {
			return err
		}
		_, err = s.Create(p.Context(), "/x", nil, zkconn.Persistent, open)
		return errors.Join(err, s.Close())
	}
	for name, world := range map[string]func(*World){
		"check": func(w *World) { w.Process("a", 0, idle); w.Check(func() error { return broken }) },
		"end":   func(w *World) { w.Process("a", 0, idle); w.AtEnd(func() error { return broken }) },
		"txn": func(w *World) {
			w.Process("a", 0, busy)
			w.OnTxn(func(x *zkmodel.Txn) error {
				if x.Ops[0].Path == "/x" {
					return broken
				}
				return nil
			})
		},
		"body":  func(w *World) { w.Process("a", 0, func(*Process) error { return broken }) },
		"fail":  func(w *World) { w.Process("a", 0, func(p *Process) error { p.Fail(broken); return nil }) },
		"setup": func(w *World) { w.Setup(func(context.Context, *zkconn.Session) error { return broken }) },
	} {
		if out := one(t, world); !errors.Is(out.err, broken) || strings.Contains(out.err.Error(), "does not end") {
			t.Errorf("%s: %v", name, out.err)
		}
	}
	if out := one(t, func(w *World) { w.Process("a", 0, busy) }); out.err != nil {
		t.Error(out.err)
	}
}

// TestServiceEndsLast: a service runs until the processes are done, and is told to end then.
func TestServiceEndsLast(t *testing.T) {
	served, done := false, false
	out := one(t, func(w *World) {
		w.Service("s", 0, func(p *Process) error {
			<-p.Context().Done()
			served = done
			return p.Context().Err()
		})
		w.Process("a", 0, func(p *Process) error {
			<-time.After(30 * time.Second)
			done = true
			return nil
		})
	})
	if out.err != nil || !served {
		t.Errorf("%v; it ended after the process: %t", out.err, served)
	}
}

func TestReadable(t *testing.T) {
	for path, want := range map[string]string{
		"/jobs/j":                                   "/jobs/j",
		"/jobs/j/n/n-0000000001":                    "/jobs/j/n/n-0000000001",
		"/a/0123456789abcdef":                       "/a/<id>",
		"/a/x-0123456789abcdef0.2":                  "/a/x-<id>.2",
		"/a/0123456789abcde":                        "/a/0123456789abcde",
		"/a/aaaaaaaa-bbbb-cccc-dddd-eeeeffff0000/b": "/a/<id>/b",
		"/a/aaaaaaaa-bbbb-cccc-dddd-eeeeffff000":    "/a/aaaaaaaa-bbbb-cccc-dddd-eeeeffff000",
		"":                                          "",
	} {
		if got := readable(path); got != want {
			t.Errorf("%q becomes %q, not %q", path, got, want)
		}
	}
}
