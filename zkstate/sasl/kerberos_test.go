package sasl_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/sim/needs"
	"muster/sim/rig"
	"muster/zkstate/sasl"
	"muster/zkstate/zkconn"
)

// TestNoTicket: what is wrong with the files or with what the KDC knows is said, and not tried again.
func TestNoTicket(t *testing.T) {
	t.Parallel()
	k, e := startKerberos(t, 1, "old", "other")
	const kadmin = "kadmin.local"
	k.Run(t, kadmin, "-r", rig.Realm, "-q", "cpw -randkey old") // the keytab has the key of before
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cache := filepath.Join(dir, "cache")
	k.Run(t, "kinit", "-c", cache, "-k", "-t", k.Keytab("other"), "other")
	garbage := file("garbage", "\x05\x04\x00\x0cneither this nor that")
	for name, test := range map[string]struct {
		change func(*sasl.Config)
		want   string
	}{
		"wrong key": {func(c *sasl.Config) {
			c.Principal, c.KeytabFile = "old@"+rig.Realm, k.Keytab("old")
		}, "does not hold the key"},
		"unknown":          {func(c *sasl.Config) { c.Principal = "nobody@" + rig.Realm }, "the KDC does not know nobody@"},
		"another's keytab": {func(c *sasl.Config) { c.Principal = "other@" + rig.Realm }, "key"},
		"no keytab":        {func(c *sasl.Config) { c.KeytabFile = filepath.Join(dir, "none") }, "no such file"},
		"no keytab at all": {func(c *sasl.Config) { c.KeytabFile = garbage }, "is no keytab"},
		"no cache": {func(c *sasl.Config) { c.KeytabFile, c.CacheFile = "", filepath.Join(dir, "none") },
			"run kinit, or name a keytab"},
		"garbage for a cache": {func(c *sasl.Config) { c.KeytabFile, c.CacheFile = "", garbage }, "sound Kerberos"},
		"another's cache":     {func(c *sasl.Config) { c.KeytabFile, c.CacheFile = "", cache }, "are for \"other@"},
		"no krb5.conf":        {func(c *sasl.Config) { c.Krb5Conf = filepath.Join(dir, "none") }, "no such file"},
		"a realm without KDC": {func(c *sasl.Config) { c.Krb5Conf = file("empty.conf", "[libdefaults]\n") },
			"names no kdc of"},
		"a service that nobody has": {func(c *sasl.Config) { c.Service = "kafka" },
			"the KDC does not know the server as kafka/localhost"},
	} {
		t.Run(name, func(t *testing.T) {
			c := deploy(k)
			test.change(&c)
			refused(t, config(t, c, byName(e.Addrs()...)...), test.want)
		})
	}
	t.Run("by address", func(t *testing.T) {
		refused(t, config(t, deploy(k), e.Addrs()...), "as zookeeper/127.0.0.1:")
	})
}

func TestSkew(t *testing.T) {
	t.Parallel()
	k, e := startKerberos(t, 1)
	libs, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(libs) == 0 {
		needs.Missing(t, "no libfaketime (apt-get install faketime)")
	}
	k.Restart(t, "LD_PRELOAD="+libs[0], "FAKETIME=+1h")
	refused(t, config(t, deploy(k), byName(e.Addrs()...)...), "the clocks")
}

// TestRC4: there are no tokens of before AES.
func TestRC4(t *testing.T) {
	t.Parallel()
	k := rig.StartKDC(t, server, deployer)
	conf, err := os.ReadFile(k.Conf)
	if err != nil {
		t.Fatal(err)
	}
	weak := filepath.Join(t.TempDir(), "krb5.conf")
	text := strings.Replace(string(conf), "]\n", "]\nallow_weak_crypto = true\ndefault_tgs_enctypes = arcfour-hmac\n", 1)
	if err := os.WriteFile(weak, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	k.Run(t, "kadmin.local", "-r", rig.Realm, "-q", "cpw -randkey -e arcfour-hmac:normal "+server)
	k.Run(t, "kadmin.local", "-r", rig.Realm, "-q", "ktadd -norandkey -k "+k.Keytab(server)+" "+server)
	e := start(t, zkserver.Options{Logins: all(k.Login()), Java: []string{"-Djava.security.krb5.conf=" + weak}})
	c := deploy(k)
	c.Krb5Conf = weak
	refused(t, config(t, c, byName(e.Addrs()...)...), "has no key of AES")
}

// TestATicketThatHasEnded: a cache is read again, and a keytab logs in again.
func TestATicketThatHasEnded(t *testing.T) {
	t.Parallel()
	k, e := startKerberos(t, 1)
	cache := filepath.Join(t.TempDir(), "cache")
	kinit := func(life string) {
		k.Run(t, "kinit", "-l", life, "-c", cache, "-k", "-t", k.Keytab(deployer), deployer)
	}
	kinit("2s")
	c := deploy(k)
	c.KeytabFile, c.CacheFile = "", cache
	login := config(t, c, byName(e.Addrs()...)...)
	owns(t, dial(t, login), deployer+"@"+rig.Realm)
	rig.Await(t, "the end of the ticket", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
		defer cancel()
		s, err := zkconn.Dial(ctx, login)
		if err == nil {
			return s.Close() != nil // not yet
		}
		return errors.Is(err, zkconn.ErrAuthFailed) && strings.Contains(err.Error(), "has ended: run kinit")
	})
	kinit("1h")
	owns(t, dial(t, login), deployer+"@"+rig.Realm)
}

// TestTheKDCIsDown: a session reconnects with the tickets that it has. Without one it goes on trying while it lives.
func TestTheKDCIsDown(t *testing.T) {
	t.Parallel()
	k, e := startKerberos(t, 1)
	k.Run(t, "kadmin.local", "-r", rig.Realm, "-q", `modprinc -maxlife "4 seconds" `+deployer)
	p := rig.Proxy(t, e.Addrs()[0])
	c := config(t, deploy(k), byName(p.Addr())...)
	c.Timeout = 2 * time.Minute
	s := dial(t, c)
	if err := k.Kill(); err != nil {
		t.Fatal(err)
	}
	cut := func() (before int64) {
		before = s.Connections()
		p.Cut()
		return before
	}
	before := cut()
	rig.Await(t, "a connection with the ticket that is kept", func() bool { return s.Connections() > before })

	ended := time.After(5 * time.Second)
	<-ended
	before = cut()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, _, err := s.Get(ctx, "/"); err == nil || s.Connections() > before {
		t.Error("it has logged in with a ticket that has ended")
	}
	fresh, late := context.WithTimeout(t.Context(), time.Second)
	defer late()
	if _, err := zkconn.Dial(fresh, c); !errors.Is(err, zkconn.ErrUnreachable) ||
		!strings.Contains(err.Error(), "no KDC answers") {
		t.Errorf("%v, want that no KDC answers", err)
	}
	k.Restart(t)
	rig.Await(t, "a connection when the KDC is back", func() bool { return s.Connections() > before })
	owns(t, s, deployer+"@"+rig.Realm)

	if err := k.Pause(); err != nil { // it accepts connections, and answers nobody
		t.Fatal(err)
	}
	other, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	c = config(t, deploy(k), byName(p.Addr())...)
	if _, err := zkconn.Dial(other, c); !errors.Is(err, zkconn.ErrUnreachable) {
		t.Errorf("%v, want %v", err, zkconn.ErrUnreachable)
	}
}
