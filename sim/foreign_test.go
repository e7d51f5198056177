package sim_test

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"muster/sim"
)

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
