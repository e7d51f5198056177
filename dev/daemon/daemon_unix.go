//go:build unix && !linux

package daemon

import (
	"net"
	"syscall"
)

// Reservation is a listener. It keeps other programs out only until AllowListen, since a server cannot share the port.
type Reservation struct {
	net.Listener
	Port int
}

func Reserve(port int, _ bool) (*Reservation, error) {
	l, err := net.Listen("tcp", Loopback(port))
	if err != nil {
		return nil, err
	}
	return &Reservation{l, port}, nil
}

// AllowListen permits a server to listen at the port.
func (r *Reservation) AllowListen() error { return r.Listener.Close() }

// Refuse makes connections be refused.
func (r *Reservation) Refuse() error { return r.Listener.Close() }

// Close may be called after AllowListen or Refuse.
func (r *Reservation) Close() error {
	_ = r.Listener.Close()
	return nil
}

// attributes give a server its own process group, so that Ctrl-C in a terminal reaches only the parent.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// waitStopped does nothing: the kernel is expected to stop a process when it delivers the signal.
func waitStopped(int) error { return nil }
