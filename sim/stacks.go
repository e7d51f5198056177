package sim

import (
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
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
	var out []string
	for _, g := range strings.Split(string(all), "\n\n") {
		head, frames, _ := strings.Cut(g, "\n")
		if strings.Contains(head, string(mine)+"]") && !strings.Contains(frames, "go-zookeeper/zk.") &&
			!strings.Contains(frames, "synctest.Run(") {
			out = append(out, ours(frames)...)
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), "\n")
}

// ours is where a goroutine waits in code of the worlds and the recipes, innermost first, in one line.
func ours(frames string) []string {
	var calls []string
	lines := strings.Split(frames, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		name, _, _ := strings.Cut(strings.TrimPrefix(lines[i], "created by "), " in goroutine")
		if strings.HasSuffix(name, ")") {
			name = name[:strings.LastIndex(name, "(")]
		}
		if !strings.HasPrefix(name, "muster/") || strings.HasPrefix(name, "muster/sim.(*") ||
			strings.HasPrefix(name, "muster/sim.inBubble") {
			continue
		}
		file, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " ")
		calls = append(calls, fmt.Sprintf("%s (%s)", strings.TrimPrefix(name, "muster/"), filepath.Base(file)))
	}
	if len(calls) == 0 {
		return nil
	}
	return []string{"    waits in " + strings.Join(calls, " < ")}
}
