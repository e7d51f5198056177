package redisserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"muster/dev/daemon"
)

// Watched is a primary with a replica, watched by three sentinels: they make the replica the primary when they miss the
// primary for a second.
type Watched struct {
	Name      string    // what the sentinels call them
	Servers   []*Server // the first primary, its first replica
	Sentinels []*Server
}

// StartWatched starts the servers, and returns when the replica follows the primary and every sentinel knows both and
// the other sentinels.
func StartWatched(ctx context.Context) (*Watched, error) {
	w := &Watched{Name: "muster"}
	if err := w.start(ctx); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

func (w *Watched) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()
	primary, err := Start(ctx, Options{})
	if err != nil {
		return err
	}
	w.Servers = append(w.Servers, primary)
	replica, err := Start(ctx, Options{Extra: []string{"--replicaof", "127.0.0.1 " + strconv.Itoa(primary.port.Port)}})
	if err != nil {
		return err
	}
	w.Servers = append(w.Servers, replica)
	if err := replica.awaitInfo(ctx, "replication", "master_link_status", "up"); err != nil {
		return err
	}
	for range 3 {
		s, err := w.startSentinel(ctx)
		if err != nil {
			return err
		}
		w.Sentinels = append(w.Sentinels, s)
	}
	known := fmt.Sprintf("name=%s,status=ok,address=%s,slaves=1,sentinels=3", w.Name, primary.Addr())
	for _, s := range w.Sentinels {
		if err := s.awaitInfo(ctx, "sentinel", "master0", known); err != nil {
			return err
		}
	}
	return nil
}

func (w *Watched) startSentinel(ctx context.Context) (*Server, error) {
	program, err := locate(ctx, "redis-sentinel")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redisserver-")
	if err != nil {
		return nil, err
	}
	s := &Server{program: program, dir: dir, temporary: true, sentinel: true}
	if s.port, err = daemon.ReservePort(0); err == nil {
		err = s.port.AllowListen()
	}
	if err == nil {
		conf := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %d 2\n"+
			"sentinel down-after-milliseconds %[3]s 1000\nsentinel failover-timeout %[3]s 5000\n",
			s.port.Port, dir, w.Name, w.Servers[0].port.Port)
		err = os.WriteFile(filepath.Join(dir, "sentinel.conf"), []byte(conf), 0o600)
	}
	if err == nil {
		err = s.Restart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// awaitInfo waits until a line of the server's INFO has this value.
func (s *Server) awaitInfo(ctx context.Context, section, name, value string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		info, err := s.info(ctx, section)
		if err == nil && info[name] == value {
			return nil
		}
		select {
		case <-ctx.Done():
			err := errors.Join(context.Cause(ctx), err)
			return fmt.Errorf("redis at %s: %s is %q, want %q: %w", s.Addr(), name, info[name], value, err)
		case <-tick.C:
		}
	}
}

// SentinelAddrs are the host:port of the sentinels.
func (w *Watched) SentinelAddrs() []string {
	var addrs []string
	for _, s := range w.Sentinels {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Stop stops all of them. A second Stop does nothing.
func (w *Watched) Stop() error {
	var errs []error
	for _, s := range append(w.Sentinels, w.Servers...) {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}
