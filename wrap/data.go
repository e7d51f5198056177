package wrap

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"muster/worker"
)

// The socket of a worker also serves what workers leave to each other:
//
//	POST /publish    {key, value}              a value for the others; see worker.Publish
//	POST /get        {key, from, timeout}      waits for the values of a key: of this id, or without from of all N
//	POST /advertise  {address}                 another address of this worker
//
// Values are in base64.

// Publish asks to publish a value.
type Publish struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Get asks for what workers have published under a key.
type Get struct {
	Key     string `json:"key"`
	From    *int   `json:"from,omitempty"`    // an id; nil: all N
	Timeout string `json:"timeout,omitempty"` // empty: the job's barrier timeout
}

// Values are what workers have published under a key, in the order of their ids.
type Values struct {
	Values []worker.Published `json:"values"`
}

// Advertise asks to tell the others an address.
type Advertise struct {
	Address string `json:"address"` // HOST:PORT
}

// maxPublish bounds the body of a Publish.
const maxPublish = 1 << 20

// dataRoutes adds these requests to those of a worker.
func dataRoutes(mux *http.ServeMux, ms *membership) {
	mux.HandleFunc("POST /publish", answer(func(ctx context.Context, q *http.Request) (any, error) {
		return struct{}{}, publish(ctx, ms, q)
	}))
	mux.HandleFunc("POST /get", answer(func(ctx context.Context, q *http.Request) (any, error) {
		return get(ctx, ms, q)
	}))
	mux.HandleFunc("POST /advertise", answer(func(ctx context.Context, q *http.Request) (any, error) {
		return struct{}{}, advertise(ctx, ms, q)
	}))
}

func publish(ctx context.Context, ms *membership, q *http.Request) error {
	var p Publish
	if err := decodeUpTo(q, maxPublish, &p); err != nil {
		return err
	}
	if err := worker.CheckValue(p.Key, 0); err != nil {
		return badRequest("%w", err)
	}
	return ms.within(ctx, 0, func(ctx context.Context, m *worker.Member) error {
		return m.Publish(ctx, p.Key, p.Value)
	}, "whether "+p.Key+" is published")
}

func get(ctx context.Context, ms *membership, q *http.Request) (any, error) {
	var g Get
	if err := decode(q, &g); err != nil {
		return nil, err
	}
	limit, err := parseTimeout(g.Timeout)
	if err != nil {
		return nil, err
	}
	if err := worker.CheckValue(g.Key, 0); err != nil {
		return nil, badRequest("%w", err)
	}
	m, _, _ := ms.now()
	var ids []int
	if g.From != nil {
		if ids = []int{*g.From}; *g.From < 0 || *g.From >= m.Job.Workers {
			return nil, badRequest("there is no worker %d: the job has %d", *g.From, m.Job.Workers)
		}
	}
	found, err := ms.values(ctx, g.Key, ids, limit)
	return Values{found}, err
}

// values waits for values, for at most limit or, if that is 0, the job's barrier timeout: as at a barrier, it is other
// workers that have to come so far.
func (ms *membership) values(
	ctx context.Context, key string, ids []int, limit time.Duration,
) (found []worker.Published, err error) {
	m, _, _ := ms.now()
	begun := time.Now()
	defer ms.whileWaiting(ctx, "workers to publish "+key, valueNotice(key, ids))()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(limit, time.Duration(m.Job.Timeouts.Barrier)))
	defer cancel()
	err = ms.do(ctx, func(ctx context.Context, m *worker.Member) (err error) {
		found, err = m.Values(ctx, key, ids)
		return err
	})
	return found, explainLate(ctx, err, func() string {
		return fmt.Sprintf("waited %s, and it is not known who has published %s: ZooKeeper does not answer this worker",
			since(begun), key)
	})
}

func advertise(ctx context.Context, ms *membership, q *http.Request) error {
	var a Advertise
	if err := decode(q, &a); err != nil {
		return err
	}
	host, port, err := ParseAddress(a.Address)
	if err != nil {
		return badRequest("%w", err)
	}
	return ms.within(ctx, 0, func(ctx context.Context, m *worker.Member) error {
		return m.Advertise(ctx, host, port)
	}, "whether the others see "+a.Address)
}

// maxHost is how long a host name may be.
const maxHost = 253

// ParseAddress reads HOST:PORT, an address that other machines can reach: HOST is an IP or a name.
func ParseAddress(address string) (host string, port int, err error) {
	host, digits, err := net.SplitHostPort(address)
	n, portErr := strconv.ParseUint(digits, 10, 16)
	if err != nil || portErr != nil || n == 0 || !isHost(host) {
		return "", 0, fmt.Errorf("%q is not HOST:PORT", address)
	}
	return host, int(n), nil
}

// isHost reports whether s is an IP, or may be a host name: letters, digits, hyphens, underscores and dots.
func isHost(s string) bool {
	if net.ParseIP(s) != nil {
		return true
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
		default:
			return false
		}
	}
	return s != "" && len(s) <= maxHost && s[0] != '-' && s[0] != '.'
}

// Publish publishes a value for the other workers.
func (c *Client) Publish(ctx context.Context, p Publish) error {
	return c.ask(ctx, http.MethodPost, "/publish", p, &struct{}{})
}

// Get waits for values; the end of ctx ends it.
func (c *Client) Get(ctx context.Context, g Get) (Values, error) {
	var v Values
	return v, c.ask(ctx, http.MethodPost, "/get", g, &v)
}

// Advertise tells the other workers an address of this one.
func (c *Client) Advertise(ctx context.Context, a Advertise) error {
	return c.ask(ctx, http.MethodPost, "/advertise", a, &struct{}{})
}
