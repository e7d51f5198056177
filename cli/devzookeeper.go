package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"muster/dev/daemon"
	"muster/dev/zkmodel"
	"muster/dev/zkserver"
)

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
	e, err := zkserver.Start(ctx, zkserver.Options{Servers: o.servers, Ports: o.ports()})
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
	case errors.Is(err, context.Canceled), errors.Is(err, syscall.EADDRINUSE):
		return devZooKeeper{}, err
	case portDenied(err):
		return devZooKeeper{}, errPortDenied(err)
	}
	return devZooKeeper{}, &problem{nil, err, "one in memory needs no Java: muster dev --embedded"}
}

// startEmbedded starts the embedded server. It grants the session timeouts that real servers grant here.
func (o devOptions) startEmbedded() (devZooKeeper, error) {
	l, err := net.Listen("tcp", daemon.Loopback(o.port))
	if err != nil {
		err = fmt.Errorf("zookeeper: %w", err)
		if portDenied(err) {
			err = errPortDenied(err)
		}
		return devZooKeeper{}, err
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

// ports are the ports of the servers; nil means free ones.
func (o devOptions) ports() []int {
	if o.port == 0 {
		return nil
	}
	ports := make([]int, o.servers)
	for i := range ports {
		ports[i] = o.port + i
	}
	return ports
}

// portDenied reports whether only root may use the port.
func portDenied(err error) bool {
	return errors.As(err, new(*net.OpError)) && errors.Is(err, syscall.EACCES)
}

func errPortDenied(err error) error {
	return &problem{nil, err, "a port from 1024 on: muster dev --port 2181"}
}
