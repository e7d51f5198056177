//go:build unix && !linux

package zkserver

import "net"

// reservation is a listener. It keeps other programs out only until allowListen, since a server cannot share the port.
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

// allowListen permits a server to listen at the port.
func (r *reservation) allowListen() error { return r.Listener.Close() }

// refuse makes connections be refused.
func (r *reservation) refuse() error { return r.Listener.Close() }

// Close may be called after allowListen or refuse.
func (r *reservation) Close() error {
	_ = r.Listener.Close()
	return nil
}
