// Command muster keeps distributed jobs in ZooKeeper: declare, plan, apply, join.
//
// This file is the process: arguments, environment, standard streams, signals and the exit code. Everything else is
// package cli.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"muster/cli"
)

func main() {
	ctx, stop := context.WithCancelCause(context.Background())
	go drainThenStop(caught(), stop) // caught at once: "muster worker" takes signals over
	os.Exit(cli.Run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// caught are the signals that stop a command.
func caught() <-chan os.Signal {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup stays in force
		signal.Notify(signals, syscall.SIGHUP)
	}
	// Asked for and never read: a closed pipe is then an error of Write, not the death of an apply half-way.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signals
}

// drainThenStop ends the context at the first signal, so that a command finishes what it has begun, and the process at
// the second, unless that is the first one's echo. It says so because nothing else will.
func drainThenStop(signals <-chan os.Signal, stop context.CancelCauseFunc) {
	first := cli.Stopped{Signal: (<-signals).(syscall.Signal)}
	at := time.Now()
	stop(first)
	second := cli.Stopped{Signal: (<-signals).(syscall.Signal)}
	for second == first && time.Since(at) < cli.Echo {
		second.Signal = (<-signals).(syscall.Signal)
	}
	fmt.Fprintf(os.Stderr, "muster: stopped at once by a second signal: %s; reports may be missing\n  next: muster plan shows what is left, if this was an apply\n", second.Signal)
	os.Exit(second.ExitCode())
}
