package sim_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/sim"
	"muster/zkstate/zkconn"
)

// TestCounter: two processes count in one znode, by version.
func TestCounter(t *testing.T) {
	sim.Test(t, worlds()...)
}

func TestMutants(t *testing.T) {
	sim.Mutants(t, "testdata/guards.txt", worlds()...)
}

func worlds() []sim.Named {
	faults := sim.Faults{Crashes: 2, Cuts: 2, Expiries: 1, LostReplies: 2, Pauses: 1}
	return []sim.Named{
		{"counter", sim.Options{Seeds: 50, Faults: faults}, func(w *sim.World) { counter(w, false) }},
	}
}

func counter(w *sim.World, careless bool) {
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		_, err := s.Create(ctx, "/n", []byte("0"), zkconn.Persistent, zkconn.World(zkconn.PermAll))
		return err
	})
	sure := 0
	for _, name := range []string{"a", "b"} {
		w.Process(name, 1, sim.InSession(10*time.Second, func(p *sim.Process, s *zkconn.Session) error {
			for {
				data, stat, err := s.Get(p.Context(), "/n")
				if err != nil {
					return err
				}
				var n int
				fmt.Sscan(string(data), &n)
				version := stat.Version
				if careless {
					version = -1
				}
				_, err = s.Set(p.Context(), "/n", fmt.Append(nil, n+1), version)
				if errors.Is(err, zkconn.ErrBadVersion) {
					continue
				}
				if err == nil {
					p.Saw(func() { sure++ })
				}
				return err
			}
		}))
	}
	w.AtEnd(func() error {
		data, _, _ := w.Server().Get("/n")
		var n int
		fmt.Sscan(string(data), &n)
		if n < sure {
			return fmt.Errorf("%d, but %d processes have counted", n, sure)
		}
		return nil
	})
}

// pause waits a moment of virtual time.
func pause(p *sim.Process) {
	select {
	case <-time.After(time.Second):
	case <-p.Context().Done():
	}
}

// adder is a server of lines: it adds each to what it has, and answers with their number.
func adder(lines *[]string) sim.Foreign {
	return sim.Foreign{
		Name:  "adder",
		Frame: func(b []byte) int { return bytes.IndexByte(b, '\n') + 1 },
		Open: func(out func([]byte)) (func([]byte), func()) {
			return func(line []byte) {
				*lines = append(*lines, strings.TrimSpace(string(line)))
				out(fmt.Appendf(nil, "%d\n", len(*lines)))
			}, func() {}
		},
		Label: func(line []byte) string { return strings.TrimSpace(string(line)) },
	}
}

// TestForeign: a process that sends again what was not answered has sent at least once, and at most once if nothing
// breaks.
func TestForeign(t *testing.T) {
	faulty := sim.Faults{Crashes: 1, Cuts: 2, LostReplies: 2, Outages: 1}
	for name, faults := range map[string]sim.Faults{"calm": {}, "faulty": faulty} {
		t.Run(name, func(t *testing.T) {
			sim.Run(t, sim.Options{Seeds: 50, Faults: faults}, func(w *sim.World) {
				var lines []string
				w.Foreign(adder(&lines))
				for _, name := range []string{"a", "b"} {
					w.Process(name, 1, func(p *sim.Process) error {
						for p.Alive() && !sendLine(p, name) {
						}
						return nil
					})
				}
				w.AtEnd(func() error {
					for _, name := range []string{"a", "b"} {
						n := strings.Count(strings.Join(lines, ""), name)
						if n == 0 || n > 1 && faults == (sim.Faults{}) {
							return fmt.Errorf("%s was added %d times", name, n)
						}
					}
					return nil
				})
			})
		})
	}
}

func sendLine(p *sim.Process, line string) bool {
	c, err := p.Conn("adder")
	if err != nil {
		pause(p)
		return false
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, line); err != nil {
		return false
	}
	_, err = bufio.NewReader(c).ReadString('\n')
	return err == nil
}

// BenchmarkSchedules runs schedules of the counter with faults on one core.
func BenchmarkSchedules(b *testing.B) {
	sim.Bench(b, worlds()[0])
}
