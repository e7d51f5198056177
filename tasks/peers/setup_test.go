// Package peers measures queues side by side: muster's, other queue systems on Redis, and the least that any of them
// has to do. It has no code of its own.
//
// All run in turn on one Redis server, with the same tasks and results: each race begins when all tasks are queued and
// all executors are ready; its time is from when the first task was taken until the last result was stored. An
// executor is a process. What it runs at once in that process is what suits each side best.
package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/sim/rig"
)

// The servers that all races run on.
var (
	rediss  *redisserver.Server
	servers *zkserver.Ensemble
	built   string // the directory of what is built for all of them
)

func TestMain(m *testing.M) {
	if program := os.Getenv(selfProgram); program != "" {
		if err := selfMain(program); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(rig.Main(m, makeBuilt, rig.ZooKeeper(&servers, zkserver.Options{}), rig.Redis(&rediss, redisserver.Options{
		Fsync: "everysec", Extra: []string{"--auto-aof-rewrite-percentage", "0"}, // a rewrite would slow some race down
	})))
}

// makeBuilt makes the directory of what is built.
func makeBuilt(context.Context) (remove func() error, err error) {
	built, err = os.MkdirTemp("", "muster-peers-")
	return func() error { return os.RemoveAll(built) }, err
}

// selfProgram, in the environment, says which program this binary is.
const selfProgram = "PEERS_PROGRAM"

// self is this binary as a program.
func self(program string) []string { return []string{"env", selfProgram + "=" + program, os.Args[0]} }

func selfMain(program string) error {
	switch program {
	case "floor":
		return floorMain(os.Args[1:])
	case "go":
		return goMain(context.Background())
	case "lines":
		return linesMain()
	case "mixed-plain", "mixed-json":
		return mixedMain(strings.TrimPrefix(program, "mixed-"))
	}
	return errors.New("no such program")
}
