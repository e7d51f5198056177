package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster/dev/daemon"
	"muster/dev/redisserver"
	"muster/dev/zkmodel"
	"muster/dev/zkserver"
)

type devOptions struct {
	servers   int
	embedded  bool
	port      int
	redis     bool
	redisPort int
}

func newDevCmd(p *process) *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a throw-away ZooKeeper, and a Redis, on this machine",
		Long: `Runs a ZooKeeper on loopback until it is interrupted: on a free port, unless
--port names one. It prints the line to paste where other commands are to find
it; at port 2181 they do without. Nothing of it is left behind.

It is a real ZooKeeper if one, 3.5 or newer, is installed on this machine, with
Java. Otherwise, or with --embedded, it is a small one that is part of muster:
one server, in memory, for trying things out, never for production.

With --redis it also runs a real Redis, 7 or newer, with the settings that a
queue needs, and prints a line with its address. A configuration whose variable
"redis" is that address gets it by: export MUSTER_VAR_redis=$REDIS_URL`,
		Example: `  muster dev                               one server on a free port
  muster dev --port 2181                   one where the others look for it
  muster dev --servers 3 --port 2181       an ensemble on 2181, 2182 and 2183
  muster dev --embedded                    one in memory, without Java
  muster dev --redis                       also a Redis, for queues`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return runDev(cmd.Context(), p, o) },
	}
	cmd.Flags().IntVar(&o.servers, "servers", 1, "run `N` servers: 1 or 3")
	completeWith(cmd, "servers", "1", "3")
	cmd.Flags().BoolVar(&o.embedded, "embedded", false, "run the one that is part of muster, in memory")
	cmd.Flags().IntVar(&o.port, "port", 0, "first client `PORT`; 0 takes free ones")
	cmd.Flags().BoolVar(&o.redis, "redis", false, "run a Redis too")
	cmd.Flags().IntVar(&o.redisPort, "redis-port", 0, "`PORT` of the Redis; 0 takes a free one")
	return cmd
}

func (o devOptions) check() error {
	switch {
	case o.servers != 1 && o.servers != 3:
		return usagef("muster dev --servers 3", "an ensemble has 1 or 3 servers here, not %d", o.servers)
	case o.embedded && o.servers != 1:
		return usagef("muster dev --embedded", "the embedded ZooKeeper is one server, not %d", o.servers)
	case o.port < 0 || o.port+o.servers > 1<<16:
		return usagef("muster dev --port 2181", "%d is not a port", o.port)
	case o.redisPort < 0 || o.redisPort >= 1<<16:
		return usagef("muster dev --redis --redis-port 6379", "%d is not a port", o.redisPort)
	case o.redisPort != 0 && !o.redis:
		return usagef(fmt.Sprintf("muster dev --redis --redis-port %d", o.redisPort), "--redis-port needs --redis")
	}
	return nil
}

func runDev(ctx context.Context, p *process, o devOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	start := time.Now()
	what, their, lines := "", "It is gone, with all its data,", ""
	if o.redis {
		var r *redisserver.Server
		if r, err = redisserver.Start(ctx, redisserver.Options{Port: o.redisPort}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Stop()) }()
		what, their = fmt.Sprintf(" and Redis at %s", r.Addr()), "They are gone, with all their data,"
		lines = fmt.Sprintf("export REDIS_URL=redis://%s/0\n", r.Addr())
	}
	z, err := o.startZooKeeper(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, z.stop()) }()
	if !p.flags.quiet {
		fmt.Fprintf(p.out, "ZooKeeper serves at %s%s after %d ms.\n", z.connect, what, time.Since(start).Milliseconds())
		fmt.Fprintf(p.out, "%s%s when this command ends.\n\n", z.about, their)
	}
	fmt.Fprintf(p.out, "export MUSTER_SERVERS=%s\n%s", z.connect, lines)
	select {
	case <-ctx.Done():
		return nil
	case err := <-z.failed:
		return err
	}
}

// devZooKeeper is what "muster dev" runs: real servers, or the embedded one.
type devZooKeeper struct {
	connect string
	about   string       // lines for the user
	failed  <-chan error // gets an error if it ends by itself; nil if that is not known
	stop    func() error
}

// startZooKeeper starts real servers if this machine can, else the embedded one.
func (o devOptions) startZooKeeper(ctx context.Context) (devZooKeeper, error) {
	if o.embedded {
		return o.startEmbedded()
	}
	e, err := zkserver.Start(ctx, zkserver.Options{Servers: o.servers, Port: o.port})
	missing := errors.Is(err, zkserver.ErrNotInstalled)
	switch {
	case err == nil:
		return devZooKeeper{connect: e.Connect(), stop: e.Stop}, nil
	case missing && o.servers == 1:
		z, startErr := o.startEmbedded()
		z.about += fmt.Sprintf("There is no real one here: %v\n", err)
		return z, startErr
	case missing:
		return devZooKeeper{}, &problem{nil, err, "one server, in memory, needs nothing: muster dev --embedded"}
	case isAny(err, context.Canceled, syscall.EADDRINUSE, new(*net.OpError)): // another ZooKeeper helps nothing
		return devZooKeeper{}, portError(err)
	}
	return devZooKeeper{}, &problem{nil, err, "one in memory needs no Java: muster dev --embedded"}
}

// startEmbedded starts the embedded server. It grants the session timeouts that real servers grant here.
func (o devOptions) startEmbedded() (devZooKeeper, error) {
	l, err := net.Listen("tcp", daemon.Loopback(o.port))
	if err != nil {
		return devZooKeeper{}, portError(fmt.Errorf("zookeeper: %w", err))
	}
	m := zkmodel.New(zkmodel.Options{
		MinTimeout: zkserver.MinSessionTimeout, MaxTimeout: zkserver.MaxSessionTimeout,
	})
	failed, served := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(served)
		if err := m.Serve(l); !errors.Is(err, zkmodel.ErrClosed) {
			failed <- fmt.Errorf("zookeeper: %w", err)
		}
	}()
	return devZooKeeper{
		connect: l.Addr().String(),
		about:   "It is embedded in this command: in memory, for trying things out, never for production.\n",
		failed:  failed,
		stop: func() error {
			err := m.Close()
			<-served
			return err
		},
	}, nil
}

// portError says which ports need no permission, if only root may use the one that was asked for.
func portError(err error) error {
	if errors.As(err, new(*net.OpError)) && errors.Is(err, syscall.EACCES) {
		return &problem{nil, err, "a port from 1024 on: muster dev --port 2181"}
	}
	return err
}
