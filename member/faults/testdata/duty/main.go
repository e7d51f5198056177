// Command duty is what members run as each of their duties in the tests of faults. It is called as the duty. It appends
// a line to a file when it starts and when it ends, and holds a lock that belongs to the duty as long as it lives: the
// kernel releases that at its very end, however it ends.
package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	dir := os.Getenv("FAULTS_DIR")
	log, err := os.OpenFile(dir+"/runs", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM)
	if os.Getenv("FAULTS_STUBBORN") == "true" {
		asked = nil
	}
	duty := os.Getenv("MUSTER_DUTY")
	lock, err := os.OpenFile(dir+"/locks/"+duty, os.O_RDWR|os.O_CREATE, 0o644)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		write(log, "overlap")
		os.Exit(3)
	}
	write(log, "start")
	tick, cron := os.LookupEnv("MUSTER_TICK")
	var done <-chan time.Time
	if cron && tick != "" {
		longest, _ := time.ParseDuration(os.Getenv("FAULTS_RUN"))
		done = time.After(rand.N(max(longest, time.Millisecond)))
	}
	select {
	case <-done:
		write(log, "end")
	case <-asked:
		write(log, "stopped")
		if cron {
			os.Exit(143)
		}
	}
	_ = lock.Close()
}

// write appends a line in one write: what happened, when by the clock that all processes of this machine share, who.
func write(log *os.File, what string) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	words := []string{what, fmt.Sprint(now.Nano()), fmt.Sprint(os.Getpid())}
	for _, name := range []string{
		"MUSTER_DUTY", "MUSTER_IDENTITY", "MUSTER_VERSION", "MUSTER_EPOCH", "MUSTER_TICK", "MUSTER_ATTEMPT",
	} {
		value := os.Getenv(name)
		if value == "" {
			value = "-"
		}
		words = append(words, value)
	}
	_, werr := log.WriteString(strings.Join(words, " ") + "\n")
	if err := errors.Join(err, werr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}
