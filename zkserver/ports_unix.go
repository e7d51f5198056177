//go:build unix && !linux

package zkserver

import "net"

// A reservation keeps a port from others only until a server is to listen there: that cannot share it.
type reservation struct {
	net.Listener
	port int
}

func reserve(port int, _ bool) (*reservation, error) {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return nil, err
	}
	return &reservation{l, port}, nil
}

// admit lets a server listen at the port.
func (r *reservation) admit() error { return r.Listener.Close() }

// refuse lets connections be refused.
func (r *reservation) refuse() error { return r.Listener.Close() }

// Close may come after either.
func (r *reservation) Close() error {
	_ = r.Listener.Close()
	return nil
}
