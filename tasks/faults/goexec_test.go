package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster/resource/queue"
	"muster/sim/soak"
	"muster/tasks"
	"muster/zkstate/zkconn"
)

// actGo is an executor in Go. Its arguments are the directory and how many executors it is, each with a session of its
// own; with a third one tasks take no time. It ends at SIGTERM.
func actGo(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n, err := strconv.Atoi(args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			name := os.Getenv("MUSTER_IDENTITY")
			if n > 1 {
				name = fmt.Sprint(name, "-", i)
			}
			for ctx.Err() == nil {
				if err := execute(ctx, args[0], name, len(args) > 2); err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, name, err)
					soak.Pause(ctx, 100*time.Millisecond) // as a supervisor would
				}
			}
		})
	}
	all.Wait()
	return 0
}

// execute executes tasks until the membership ends.
func execute(ctx context.Context, dir, name string, quick bool) error {
	timeout, err := time.ParseDuration(os.Getenv("FAULTS_SESSION"))
	if err != nil {
		return err
	}
	s, err := zkconn.Dial(ctx, zkconn.Config{
		Servers: strings.Split(os.Getenv("MUSTER_SERVERS"), ","), Timeout: timeout,
	})
	if err != nil {
		return err
	}
	defer s.Close()
	joining, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, err := tasks.Join(joining, s, tasks.Config{
		Root: os.Getenv("MUSTER_ROOT"), Queue: os.Getenv("FAULTS_QUEUE"), Identity: name, Role: queue.Executor,
		Parallel: 4, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	c := tasks.ExecutorConfig{Parallel: 4}
	err = tasks.Execute(ctx, p, c, func(ctx context.Context, t *tasks.Task) ([]byte, error) {
		if quick {
			return t.Payload, nil
		}
		result, err := perform(ctx, dir, string(t.Payload))
		if errors.Is(err, errNever) {
			err = fmt.Errorf("%w: %w", tasks.ErrNever, err)
		}
		return []byte(result), err
	})
	return errors.Join(err, p.Leave())
}
