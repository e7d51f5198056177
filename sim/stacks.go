package sim

import (
	"bytes"
	"regexp"
	"runtime"
)

// stacks lists where the goroutines of this bubble wait in our code.
func (w *World) stacks() string {
	all := make([]byte, 4<<20)
	all = all[:runtime.Stack(all, true)]
	bubble := regexp.MustCompile(`synctest bubble \d+`)
	own := make([]byte, 4<<10)
	mine := bubble.Find(own[:runtime.Stack(own, false)])
	if mine == nil {
		return ""
	}
	var out [][]byte
	for _, g := range bytes.Split(all, []byte("\n\n")) {
		head, _, _ := bytes.Cut(g, []byte("\n"))
		inOurs := bytes.Contains(g, []byte("\nmuster/")) && !bytes.Contains(g, []byte("sim.(*World).stacks"))
		if inOurs && bytes.Contains(head, append(mine, ']')) {
			out = append(out, g)
		}
	}
	return string(bytes.Join(out, []byte("\n\n")))
}
