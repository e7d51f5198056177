package sasl_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/resource"
	"muster/sim/rig"
	"muster/zkstate/sasl"
	"muster/zkstate/zkconn"
)

const (
	// demand makes a server refuse all who have not logged in.
	demand   = "-Dzookeeper.sessionRequireClientSASLAuth=true"
	deployer = "muster/deploy"
	server   = "zookeeper/localhost"
)

func start(t *testing.T, o zkserver.Options) *zkserver.Ensemble {
	t.Helper()
	e, err := zkserver.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop() })
	return e
}

// startDigest starts servers that know ann.
func startDigest(t *testing.T, servers int, java ...string) *zkserver.Ensemble {
	t.Helper()
	return start(t, zkserver.Options{Servers: servers, Java: java, Logins: all(rig.DigestLogin("ann", "hunter2"))})
}

func all(login string) []string { return []string{login, login, login} }

// startKerberos starts a KDC that knows the deployer, and servers that demand a login there.
func startKerberos(t *testing.T, servers int, principals ...string) (*rig.KDC, *zkserver.Ensemble) {
	t.Helper()
	k := rig.StartKDC(t, append(principals, server, deployer)...)
	return k, start(t, zkserver.Options{Servers: servers, Logins: all(k.Login()),
		Java: []string{demand, "-Djava.security.krb5.conf=" + k.Conf}})
}

// byName are addresses with the name that the servers' principal has.
func byName(addrs ...string) []string {
	return strings.Split(strings.ReplaceAll(strings.Join(addrs, ","), "127.0.0.1", "localhost"), ",")
}

var ann = user("ann", "hunter2")

func user(name, password string) sasl.Config {
	return sasl.Config{SASL: resource.SASL{Mechanism: resource.SASLDigest, Username: name}, Password: password}
}

// deploy logs the deployer in, from a keytab.
func deploy(k *rig.KDC) sasl.Config {
	return sasl.Config{SASL: resource.SASL{
		Mechanism: resource.SASLKerberos, Krb5Conf: k.Conf, Principal: deployer + "@" + rig.Realm,
		KeytabFile: k.Keytab(deployer),
	}}
}

func config(t *testing.T, c sasl.Config, servers ...string) zkconn.Config {
	t.Helper()
	s, err := sasl.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return zkconn.Config{Servers: servers, SASL: s, Timeout: 30 * time.Second}
}

func dial(t *testing.T, c zkconn.Config) *zkconn.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	s, err := zkconn.Dial(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// owns creates a znode for who has logged in, and checks who that is.
func owns(t *testing.T, s *zkconn.Session, name string) {
	t.Helper()
	acl := []zkconn.ACL{{Perms: zkconn.PermAll, Scheme: "auth"}}
	path, err := s.Create(t.Context(), "/mine-", []byte("x"), zkconn.PersistentSequential, acl)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := s.ACL(t.Context(), path)
	if err != nil || len(got) != 1 || got[0].Scheme != "sasl" || got[0].ID != name {
		t.Errorf("ACL %v, %v; want sasl:%s", got, err, name)
	}
	if data, _, err := s.Get(t.Context(), path); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestDigestMD5(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 3} {
		owns(t, dial(t, config(t, ann, startDigest(t, servers, demand).Addrs()...)), "ann")
	}
	for _, password := range []string{`qu"o\te`, "schlüssel", "пароль"} {
		e := start(t, zkserver.Options{Logins: all(rig.DigestLogin("ann", password)), Java: []string{demand}})
		owns(t, dial(t, config(t, user("ann", password), e.Addrs()...)), "ann")
	}
}

// TestLoginOverTLS: who has logged in is that, whatever the certificate says.
func TestLoginOverTLS(t *testing.T) {
	t.Parallel()
	e := start(t, zkserver.Options{TLS: true, Logins: all(rig.DigestLogin("ann", "hunter2")), Java: []string{demand}})
	c := config(t, ann, e.Addrs()...)
	var err error
	if c.TLS, err = e.Certs().Config(); err != nil {
		t.Fatal(err)
	}
	owns(t, dial(t, c), "ann")
}

func TestGSSAPI(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 3} {
		k, e := startKerberos(t, servers)
		id, cache := deployer+"@"+rig.Realm, "FILE:"+filepath.Join(t.TempDir(), "cache")
		k.Run(t, "kinit", "-c", cache, "-k", "-t", k.Keytab(deployer), deployer)
		for name, change := range map[string]func(*sasl.Config){
			"keytab":           func(*sasl.Config) {},
			"cache":            func(c *sasl.Config) { c.KeytabFile, c.CacheFile = "", cache },
			"anybody's cache":  func(c *sasl.Config) { c.KeytabFile, c.CacheFile, c.Principal = "", cache, "" },
			"server principal": func(c *sasl.Config) { c.ServerPrincipal = "zookeeper/_HOST@" + rig.Realm },
			"one principal":    func(c *sasl.Config) { c.ServerPrincipal = server + "@" + rig.Realm },
			"canonical":        func(c *sasl.Config) { c.CanonicalizeHostname = true },
		} {
			t.Run(name, func(t *testing.T) {
				c, addrs := deploy(k), byName(e.Addrs()...)
				if change(&c); name == "canonical" || name == "one principal" {
					addrs = e.Addrs()
				}
				owns(t, dial(t, config(t, c, addrs...)), id)
			})
		}
	}
}

// refused dials, and expects that each server refuses the login, for good.
func refused(t *testing.T, c zkconn.Config, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	s, err := zkconn.Dial(ctx, c)
	if err == nil {
		_ = s.Close()
	}
	if !errors.Is(err, zkconn.ErrAuthFailed) || !strings.Contains(err.Error(), want) || ctx.Err() != nil {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestADigestThatIsRefused(t *testing.T) {
	t.Parallel()
	wrong, nobody := user("ann", "hunter3"), user("bob", "other")
	for _, java := range []string{demand, "-Dnothing"} {
		e := startDigest(t, 1, java)
		refused(t, config(t, wrong, e.Addrs()...), "the server refuses the login")
		refused(t, config(t, nobody, e.Addrs()...), "the server refuses the login")
	}
	e := startDigest(t, 1, "-Dzookeeper.allowSaslFailedClients=true")
	refused(t, config(t, wrong, e.Addrs()...), "lets in who fails")
	owns(t, dial(t, config(t, ann, e.Addrs()...)), "ann")
	refused(t, config(t, ann, start(t, zkserver.Options{}).Addrs()...), "does not log in by SASL")
	refused(t, config(t, wrong, startDigest(t, 3, demand).Addrs()...), "the server refuses the login")
}

// TestNobodyIsTold: a session without SASL is told that the server demands it.
func TestNobodyIsTold(t *testing.T) {
	t.Parallel()
	s := dial(t, zkconn.Config{Servers: startDigest(t, 1, demand).Addrs()})
	_, _, err := s.Get(t.Context(), "/")
	if !errors.Is(err, zkconn.ErrAuthFailed) || !strings.Contains(err.Error(), "demands a login by SASL") {
		t.Error(err)
	}
}

func TestAnotherMechanism(t *testing.T) {
	t.Parallel()
	k, e := startKerberos(t, 1)
	refused(t, config(t, ann, byName(e.Addrs()...)...), "the server refuses the login")
	refused(t, config(t, deploy(k), byName(startDigest(t, 1, demand).Addrs()...)...), "not one of Kerberos")
}

// TestOneServerWithoutSASL: a session never stays where it would be nobody.
func TestOneServerWithoutSASL(t *testing.T) {
	t.Parallel()
	logins := []string{rig.DigestLogin("ann", "hunter2"), rig.DigestLogin("ann", "hunter2"), ""}
	e := start(t, zkserver.Options{Servers: 3, Logins: logins})
	var proxies []*fault.Proxy
	var addrs []string
	for _, addr := range e.Addrs() {
		p := rig.Proxy(t, addr)
		proxies, addrs = append(proxies, p), append(addrs, p.Addr())
	}
	s := dial(t, config(t, ann, addrs...))
	id := s.ID()
	for i := range 12 {
		before := s.Connections()
		proxies[i%3].Cut()
		proxies[(i+1)%3].Cut()
		proxies[(i+2)%3].Cut()
		rig.Await(t, "another connection", func() bool { return s.Connections() > before })
		owns(t, s, "ann")
	}
	if s.ID() != id || s.Context().Err() != nil {
		t.Error("the session has ended:", context.Cause(s.Context()))
	}
}

// TestCloseLostLogsIn: a server that demands a login closes no session without one.
func TestCloseLostLogsIn(t *testing.T) {
	t.Parallel()
	e := startDigest(t, 1, demand)
	p := rig.Proxy(t, e.Addrs()[0])
	c := config(t, ann, p.Addr())
	c.Timeout = 5 * time.Minute
	lost, s := dial(t, c), dial(t, config(t, ann, e.Addrs()...))
	acl := []zkconn.ACL{{Perms: zkconn.PermAll, Scheme: "auth"}}
	if _, err := lost.Create(t.Context(), "/live", nil, zkconn.Ephemeral, acl); err != nil {
		t.Fatal(err)
	}
	p.Refuse(true)
	p.Cut()
	if err := lost.Close(); err == nil {
		t.Fatal("a server has confirmed the end")
	}
	if err := s.CloseLost(t.Context(), lost); err != nil {
		t.Error(err)
	}
	if _, found, err := s.Exists(t.Context(), "/live"); found || err != nil {
		t.Error("the ephemeral znode is still there:", err)
	}
}
