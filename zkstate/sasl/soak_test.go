package sasl_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/sim/rig"
	"muster/zkstate/sasl"
	"muster/zkstate/zkconn"
)

// TestSoakLogins: sessions that lose their connections again and again, and servers that are killed, stay who they are.
// Every write that is answered is there at the end.
func TestSoakLogins(t *testing.T) {
	t.Parallel()
	long := 8 * time.Second
	if rig.Long() {
		long = 5 * time.Minute
	}
	k := rig.StartKDC(t, server, deployer)
	for name, c := range map[string]sasl.Config{"digest": ann, "kerberos": deploy(k)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			login, id := rig.DigestLogin("ann", "hunter2"), "ann"
			if c.Mechanism == sasl.GSSAPI {
				login, id = k.Login(), deployer+"@"+rig.Realm
			}
			e := start(t, zkserver.Options{Servers: 3, Logins: all(login),
				Java: []string{demand, "-Djava.security.krb5.conf=" + k.Conf}})
			soak(t, e, config(t, c), id, long)
		})
	}
}

func soak(t *testing.T, e *zkserver.Ensemble, c zkconn.Config, id string, long time.Duration) {
	var proxies []*fault.Proxy
	for _, addr := range e.Addrs() {
		p := rig.Proxy(t, addr)
		proxies, c.Servers = append(proxies, p), append(c.Servers, byName(p.Addr())...)
	}
	c.Timeout = time.Minute
	const sessions = 4
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var running sync.WaitGroup
	for i := range sessions {
		s := dial(t, c)
		running.Go(func() {
			first, acl := s.ID(), []zkconn.ACL{{Perms: zkconn.PermAll, Scheme: "sasl", ID: id}}
			path := fmt.Sprintf("/soak-%d", i)
			if _, err := s.Create(t.Context(), path, nil, zkconn.Persistent, acl); err != nil {
				t.Error(err)
				return
			}
			written := 0
			for n := 1; ctx.Err() == nil; n++ {
				_, err := s.Set(t.Context(), path, fmt.Append(nil, n), -1)
				if err == nil {
					written = n
				} else if !errors.Is(err, zkconn.ErrUnknown) {
					t.Errorf("write %d: %v", n, err)
					return
				}
			}
			var last int
			body, _, err := s.Get(t.Context(), path)
			if _, scan := fmt.Sscan(string(body), &last); scan != nil || err != nil || last < written || s.ID() != first {
				t.Errorf("%q after %d writes, %v; session %#x, at first %#x", body, written, err, s.ID(), first)
			}
			t.Logf("%d writes over %d connections", written, s.Connections())
			if s.Connections() < 3 {
				t.Error("no connection was lost")
			}
		})
	}
	random := rand.New(rand.NewPCG(rig.Seed(t), 0))
	for ctx.Err() == nil {
		zkconn.Pause(ctx, rig.Between(random, 20*time.Millisecond, 300*time.Millisecond))
		at := random.IntN(len(proxies))
		if random.IntN(40) > 0 {
			proxies[at].Cut()
			proxies[(at+1)%len(proxies)].Cut()
			continue
		}
		if err := e.Server(at).Kill(); err != nil {
			t.Error(err)
		}
		if err := e.Server(at).Restart(t.Context()); err != nil {
			t.Error(err)
		}
	}
	running.Wait()
}
