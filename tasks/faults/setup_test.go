// Package faults tests queues with real processes, real ZooKeeper servers and a real Redis: many tasks, while
// executors, watchers, submitters, connections and servers fail at random; and bad input from one end to the other. It
// has no code of its own.
package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/sim/soak"
)

// patience is how long to wait for what must happen. A busy machine may be slow: only a test that fails waits so long.
const patience = 5 * time.Minute

var (
	bin  string // the directory of muster
	self string // this program, which is also the command of executors and watchers: see act
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && acts[os.Args[1]] != nil {
		os.Exit(acts[os.Args[1]](os.Args[2:]))
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	var err error
	if self, err = os.Executable(); err == nil {
		bin, err = os.MkdirTemp("", "muster-faults-")
	}
	if err == nil {
		defer os.RemoveAll(bin)
		err = soak.Build(bin, map[string]string{"muster": "../.."})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func muster() string { return filepath.Join(bin, "muster") }
