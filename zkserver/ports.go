package zkserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// place holds the ports of one server.
type place struct {
	client           int
	quorum, election int // only for three servers
}

// choosePlaces reserves the ports that o names, and free ones.
func choosePlaces(o Options) ([]place, reservations, error) {
	var held reservations
	var errs []error
	take := func(port int) int {
		r, err := reservePort(port)
		if err != nil {
			errs = append(errs, fmt.Errorf("zookeeper: %w", err))
			return 0
		}
		held = append(held, r)
		return r.port
	}
	places := make([]place, o.Servers)
	for i := range places {
		port := 0
		if len(o.Ports) > 0 {
			port = o.Ports[i]
		}
		places[i].client = take(port)
	}
	for i := range places {
		if o.Servers > 1 {
			places[i].quorum, places[i].election = take(0), take(0)
		}
	}
	for _, r := range held { // after all are reserved, so that they differ
		errs = append(errs, r.allowListen())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, errors.Join(err, held.close())
	}
	return places, held, nil
}

// reservePort reserves a port. If it is 0, it reserves a free one below the ports that systems use for outgoing
// connections (32768 and up on Linux, 49152 and up elsewhere). So even where a reservation does not keep other programs
// out, they hardly take it.
func reservePort(port int) (r *reservation, err error) {
	if port != 0 {
		return reserve(port, false)
	}
	for range 100 {
		if r, err = reserve(10000+rand.IntN(20000), true); err == nil {
			break
		}
	}
	return r, err
}

// reservations are the reserved ports of an ensemble.
type reservations []*reservation

func (all reservations) close() error {
	var errs []error
	for _, r := range all {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// Refusing returns an address at which every connection is refused. On Linux no other program gets the port before free
// is called.
func Refusing() (addr string, free func() error, err error) {
	r, err := reservePort(0)
	if err != nil {
		return "", nil, err
	}
	return loopback(r.port), r.Close, r.refuse()
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
