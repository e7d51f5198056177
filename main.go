// Command muster keeps distributed jobs in ZooKeeper: declare, plan, apply, join.
//
// This file passes arguments, environment and standard streams to package cli, and handles signals and the exit code.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"muster/cli"
)

func main() {
	// Memory that runs out, and a panic, end a Go program with 2, which means differences. Now they abort it: 134.
	debug.SetTraceback("crash")
	ctx, stop := context.WithCancelCause(context.Background())
	go cancelOnSignal(stopSignals(), stop) // stopSignals first: "muster worker" replaces its handlers
	os.Exit(cli.Run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// stopSignals delivers the signals that stop a command.
func stopSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup stays in force
		signal.Notify(signals, syscall.SIGHUP)
	}
	// With SIGPIPE caught, writing to a closed pipe is an error. It would otherwise kill an apply half-way.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signals
}

// cancelOnSignal cancels the context at the first signal, so that a command finishes what it has begun. At the second
// it prints that and ends the process, unless the second is the first one repeated.
func cancelOnSignal(signals <-chan os.Signal, stop context.CancelCauseFunc) {
	first := cli.Stopped{Signal: (<-signals).(syscall.Signal)}
	at := time.Now()
	stop(first)
	second := cli.Stopped{Signal: (<-signals).(syscall.Signal)}
	for second == first && time.Since(at) < cli.RepeatWindow {
		second.Signal = (<-signals).(syscall.Signal)
	}
	fmt.Fprintf(os.Stderr, "muster: stopped at once by a second signal: %s; reports may be missing\n", second.Signal)
	fmt.Fprintln(os.Stderr, "  next: muster plan shows what is left, if this was an apply")
	os.Exit(second.ExitCode())
}
