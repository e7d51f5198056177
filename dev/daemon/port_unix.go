//go:build unix && !linux

package daemon

import "net"

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
