package sim

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/dev/zkmodel"
	"muster/zkstate/zkconn"
)

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
		"none": {before: created, made: 1},
		"lose": {before: dialled, faults: []string{"lose a.0 create /e"}, create: zkconn.ErrUnknown, made: 1},
		"cut":  {before: dialled, faults: []string{"cut a.0"}, create: zkconn.ErrUnknown},
		"cut-late": {
			before: dialled, faults: []string{"cut-late a.0", "apply a.0 create /e"}, create: zkconn.ErrUnknown, made: 1,
		},
		"drop":   {before: dialled, faults: []string{"cut-late a.0", "drop a.0 create /e"}, create: zkconn.ErrUnknown},
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
