package zkserver

import (
	"errors"
	"fmt"

	"muster/dev/daemon"
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
		r, err := daemon.ReservePort(port)
		if err != nil {
			errs = append(errs, fmt.Errorf("zookeeper: %w", err))
			return 0
		}
		held = append(held, r)
		return r.Port
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
		errs = append(errs, r.AllowListen())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, errors.Join(err, held.close())
	}
	return places, held, nil
}

// reservations are the reserved ports of an ensemble.
type reservations []*daemon.Reservation

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
	r, err := daemon.ReservePort(0)
	if err != nil {
		return "", nil, err
	}
	return daemon.Loopback(r.Port), r.Close, r.Refuse()
}
