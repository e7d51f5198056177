package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"muster/member"
	"muster/wrap"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
)

// beChild makes this binary a process of a test, in which FAULTS_DIR names a directory: the command of a duty, or a
// member whose clock can be set.
func beChild() {
	dir := os.Getenv("FAULTS_DIR")
	switch {
	case dir == "":
		return
	case os.Getenv("MUSTER_DUTY") != "":
		doDuty(dir, os.Getenv("MUSTER_DUTY"))
	default:
		beMember()
	}
	os.Exit(0)
}

// doDuty appends a line to a file when it starts and when it ends, and holds a lock that belongs to the duty as long as
// it lives: the kernel releases that at its very end, however it ends.
func doDuty(dir, duty string) {
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

// beMember is "muster member" with a clock that can be set: FAULTS_CLOCK names a file that says by how much it differs
// from this machine's, such as -5m. Without that file it does not differ. Its flags are in the environment.
func beMember() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, command.Signals()...)
	duties, _, err := wrap.ReadDuties(os.Getenv("MUSTER_DUTIES"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	result := wrap.RunMember(context.Background(), wrap.MemberConfig{
		Member: member.Config{
			Root: os.Getenv("MUSTER_ROOT"), Group: os.Getenv("MUSTER_GROUP"), Identity: os.Getenv("MUSTER_IDENTITY"),
			Version: os.Getenv("MUSTER_VERSION"), Clock: clock, Waiting: func(what string) { fmt.Fprintln(os.Stderr, what) },
		},
		Duties: duties, OnLoss: wrap.LossRejoin,
		Life: wrap.Life{
			Environ: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
			Guard:   []string{filepath.Join(filepath.Dir(os.Args[0]), "muster"), "guard-command"},
			Signals: signals, SessionTimeout: 10 * time.Second,
			Connect: func(ctx context.Context, timeout time.Duration) (*zkconn.Session, error) {
				return zkconn.Dial(ctx, zkconn.Config{
					Servers: strings.Split(os.Getenv("MUSTER_SERVERS"), ","), Timeout: timeout,
				})
			},
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		},
	})
	fmt.Fprintln(os.Stderr, result.Text, result.Err)
	code := result.Code
	if result.Err != nil {
		code = cmp.Or(code, 1)
	}
	os.Exit(code)
}

// clock is the time of this machine and what the file says.
func clock() time.Time {
	now := time.Now()
	body, err := os.ReadFile(os.Getenv("FAULTS_CLOCK"))
	if err != nil {
		return now
	}
	by, err := time.ParseDuration(strings.TrimSpace(string(body)))
	if err != nil {
		return now
	}
	return now.Add(by)
}
