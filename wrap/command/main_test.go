package command

import (
	"os"
	"testing"

	"muster/dev/zkserver"
	"muster/sim/rig"
)

// servers is the one ensemble of this test binary.
var servers *zkserver.Ensemble

func TestMain(m *testing.M) {
	if os.Getenv(guardCommandVariable) != "" {
		_ = os.Unsetenv(guardCommandVariable)
		os.Exit(Guard(os.Args[1], os.Args[2:], os.Environ(), []*os.File{os.Stdin, os.Stdout, os.Stderr}, nil))
	}
	if behaviour, ok := os.LookupEnv(childVariable); ok {
		child(behaviour)
		return
	}
	if os.Getenv(guardVariable) != "" {
		GuardGroups(os.Stdin, nil)
		return
	}
	if os.Getenv(parallelVariable) != "" {
		asParallelInit()
	}
	if script, ok := os.LookupEnv(initVariable); ok {
		asInit(script)
	}
	os.Exit(rig.Main(m, rig.ZooKeeper(&servers, zkserver.Options{})))
}
