package daemon

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// ReservePort reserves a port. If it is 0, it reserves a free one below the ports that systems use for outgoing
// connections (32768 and up on Linux, 49152 and up elsewhere). So even where a reservation does not keep other programs
// out, they hardly take it.
func ReservePort(port int) (r *Reservation, err error) {
	if port != 0 {
		return Reserve(port, false)
	}
	for range 100 {
		if r, err = Reserve(10000+rand.IntN(20000), true); err == nil {
			break
		}
	}
	return r, err
}

// Loopback is the host:port of a port on 127.0.0.1.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
