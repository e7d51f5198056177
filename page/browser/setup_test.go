// Package browser tests muster serve from outside: in a real headless Chromium, with real ZooKeeper servers, a real
// Redis and real processes; and with clients that mean ill. It has no code of its own.
package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/sim/soak"
)

// patience is how long to wait for what must happen. A busy machine may be slow: only a test that fails waits so long.
const patience = 2 * time.Minute

// bin is the directory of muster.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "muster-browser-"); err == nil {
		defer os.RemoveAll(bin)
		err = soak.Build(bin, map[string]string{"muster": "../.."})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	chromium.parent = ctx
	defer stopChromium()
	return m.Run()
}

func muster() string { return filepath.Join(bin, "muster") }
