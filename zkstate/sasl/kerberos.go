package sasl

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"muster/zkstate/zkconn"
)

// kerberos has a ticket for each server, from a KDC. A ticket is kept while it is good: a connection that is lost must
// not need a KDC.
type kerberos struct {
	c Config

	mu      sync.Mutex
	kept    map[string]*ticket // by the server's principal, which may lack its realm
	fetches map[string]*fetch  // under way
}

// ticket proves to one server who we are.
type ticket struct {
	ticket messages.Ticket
	key    types.EncryptionKey
	end    time.Time
	client types.PrincipalName
	realm  string // of the client
}

type fetch struct {
	done   chan struct{} // closed when the others are set
	ticket *ticket
	err    error
}

func (k *kerberos) Begin(ctx context.Context, host, addr string) (zkconn.Login, error) {
	server, err := k.serverName(ctx, host, addr)
	if err != nil {
		return nil, err
	}
	t, fresh, err := k.ticket(ctx, server)
	if err != nil {
		return nil, err
	}
	return &gssLogin{ticket: t, fresh: fresh, forget: func() { k.forget(server, t) }}, nil
}

// serverName is the principal of the server.
func (k *kerberos) serverName(ctx context.Context, host, addr string) (string, error) {
	if k.c.CanonicalizeHostname {
		ip, _, err := net.SplitHostPort(addr)
		if err != nil {
			return "", err
		}
		names, err := net.DefaultResolver.LookupAddr(ctx, ip)
		if err != nil && ctx.Err() != nil {
			return "", errors.New("the name service does not say the name of " + ip)
		}
		if len(names) > 0 {
			host = names[0]
		}
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if k.c.ServerPrincipal != "" {
		return strings.ReplaceAll(k.c.ServerPrincipal, "_HOST", host), nil
	}
	return k.c.Service + "/" + host, nil
}

// ticket returns a ticket for a server, a fresh one if none is kept. Who waits no longer leaves the fetch under way, so
// that the next one may find the ticket.
func (k *kerberos) ticket(ctx context.Context, server string) (t *ticket, fresh bool, err error) {
	k.mu.Lock()
	if t := k.kept[server]; t != nil && time.Now().Before(t.end) {
		k.mu.Unlock()
		return t, false, nil
	}
	f := k.fetches[server]
	if f == nil {
		f = &fetch{done: make(chan struct{})}
		k.fetches[server] = f
		go k.fetch(server, f)
	}
	k.mu.Unlock()
	select {
	case <-f.done:
		return f.ticket, true, f.err
	case <-ctx.Done():
		return nil, false, errors.New("no ticket yet: the KDC is slow, or does not answer")
	}
}

func (k *kerberos) fetch(server string, f *fetch) {
	f.ticket, f.err = k.c.fetch(server)
	k.mu.Lock()
	delete(k.fetches, server)
	if f.err == nil {
		k.kept[server] = f.ticket
	}
	k.mu.Unlock()
	close(f.done)
}

// forget forgets a ticket that the server refuses: the server may have another key now.
func (k *kerberos) forget(server string, t *ticket) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept[server] == t {
		delete(k.kept, server)
	}
}
