package zkserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// A place is the ports of one server.
type place struct {
	client           int
	quorum, election int // used by three servers
}

// choosePlaces reserves free ports, and those that o names.
func choosePlaces(o Options) ([]place, reservations, error) {
	var held reservations
	var errs []error
	draw := func(port int) int {
		r, err := draw(port)
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
		places[i].client = draw(port)
	}
	for i := range places {
		if o.Servers > 1 {
			places[i].quorum, places[i].election = draw(0), draw(0)
		}
	}
	for _, r := range held { // not before all are drawn, so that they differ
		errs = append(errs, r.admit())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, errors.Join(err, held.free())
	}
	return places, held, nil
}

// draw reserves a port; if it is 0, a free one below those that systems use for outgoing connections (32768 and up on Linux, 49152
// elsewhere). Where a reservation does not keep others out, such a port stays free unless another program draws the same one.
func draw(port int) (r *reservation, err error) {
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

type reservations []*reservation

func (all reservations) free() error {
	var errs []error
	for _, r := range all {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// Refusing is an address where every connection is refused. On Linux nobody else gets it before it is freed.
func Refusing() (addr string, free func() error, err error) {
	r, err := draw(0)
	if err != nil {
		return "", nil, err
	}
	return loopback(r.port), r.Close, r.refuse()
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
