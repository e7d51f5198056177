// Package faults tests groups with real processes and real ZooKeeper servers: a rolling upgrade, and members, commands,
// connections, servers and clocks that fail at random. It has no code of its own.
package faults

import (
	"fmt"
	"os"
	"testing"

	"muster/sim/soak"
)

// bin is the directory of what the tests run: muster, clockmember (a member whose clock can be set), duty.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "muster-faults-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	if err := soak.Build(bin, map[string]string{
		"muster": "../..", "clockmember": "./testdata/member", "duty": "./testdata/duty",
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
