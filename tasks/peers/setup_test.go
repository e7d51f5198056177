// Package peers measures queues side by side: muster's, other queue systems on Redis, and the least that any of them has
// to do. It has no code of its own.
//
// All run in turn on one Redis server, with the same tasks and results: each race begins when all tasks are queued and
// all executors are ready; its time is from when the first task was taken until the last result was stored. An
// executor is a process. What it runs at once in that process is what suits each side best.
package peers

import (
	"context"
	"fmt"
	"os"
	"testing"

	"muster/redisserver"
)

// redisAddr is the server that all races run on.
var redisAddr string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Getenv(floorProgram) != "" {
		if err := floorMain(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	server, err := redisserver.Start(context.Background(), redisserver.Options{
		Fsync: "everysec", Extra: []string{"--auto-aof-rewrite-percentage", "0"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	redisAddr = server.Addr()
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}
