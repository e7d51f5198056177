// Command member is "muster member" with a clock that can be set: FAULTS_CLOCK names a file that says by how much it
// differs from this machine's, such as -5m. Without that file it does not differ. Its flags are in the environment.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"muster/member"
	"muster/wrap"
	"muster/zkstate/zkconn"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, wrap.Signals()...)
	duties, _, err := wrap.ReadDuties(os.Getenv("MUSTER_DUTIES"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	self, _ := os.Executable()
	result := wrap.RunMember(context.Background(), wrap.MemberConfig{
		Member: member.Config{
			Root: os.Getenv("MUSTER_ROOT"), Group: os.Getenv("MUSTER_GROUP"), Identity: os.Getenv("MUSTER_IDENTITY"),
			Version: os.Getenv("MUSTER_VERSION"), Clock: clock, Waiting: func(what string) { fmt.Fprintln(os.Stderr, what) },
		},
		Duties: duties, OnLoss: wrap.LossRejoin,
		Life: wrap.Life{
			Environ: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
			Guard:   []string{filepath.Join(filepath.Dir(self), "muster"), "guard-command"},
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
