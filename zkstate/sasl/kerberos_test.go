package sasl_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
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
			"or name a keytab"},
		"garbage for a cache": {func(c *sasl.Config) { c.KeytabFile, c.CacheFile = "", garbage }, "sound Kerberos"},
		"another's cache":     {func(c *sasl.Config) { c.KeytabFile, c.CacheFile = "", cache }, "are for \"other@"},
		"no krb5.conf":        {func(c *sasl.Config) { c.Krb5Conf = filepath.Join(dir, "none") }, "no such file"},
		"a realm without KDC": {func(c *sasl.Config) { c.Krb5Conf = file("empty.conf", "[libdefaults]\n") },
			"has no kdc of"},
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

// TestRC4: keys are AES.
func TestRC4(t *testing.T) {
	t.Parallel()
	k := rig.StartKDC(t, server, deployer)
	const kadmin = "kadmin.local"
	k.Run(t, kadmin, "-r", rig.Realm, "-q", "cpw -randkey -e arcfour-hmac:normal "+deployer)
	k.Run(t, kadmin, "-r", rig.Realm, "-q", "ktadd -norandkey -k "+k.Keytab(deployer)+" "+deployer)
	refused(t, config(t, deploy(k), byName(startDigest(t, 1).Addrs()...)...), "has no key of AES")
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
		!strings.Contains(err.Error(), "no KDC of "+rig.Realm+" answers") {
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

// TestANewKeyOfTheServer: a ticket that the server refuses is not used again.
func TestANewKeyOfTheServer(t *testing.T) {
	t.Parallel()
	k, e := startKerberos(t, 1)
	c := config(t, deploy(k), byName(e.Addrs()...)...)
	owns(t, dial(t, c), deployer+"@"+rig.Realm)
	if err := os.Remove(k.Keytab(server)); err != nil {
		t.Fatal(err)
	}
	k.Run(t, "kadmin.local", "-r", rig.Realm, "-q", "ktadd -k "+k.Keytab(server)+" "+server)
	if err := e.Server(0).Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	owns(t, dial(t, c), deployer+"@"+rig.Realm)
}

// TestKDCsThatAreAway: of several KDCs those are asked that accept connections.
func TestKDCsThatAreAway(t *testing.T) {
	t.Parallel()
	k, e := startKerberos(t, 1)
	closed, free, err := zkserver.Refusing()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = free() })
	conf, err := os.ReadFile(k.Conf)
	if err != nil {
		t.Fatal(err)
	}
	c := deploy(k)
	c.Krb5Conf = filepath.Join(t.TempDir(), "krb5.conf")
	more := strings.Replace(string(conf), "  kdc = ", "  kdc = "+closed+"\n  kdc = nowhere.invalid\n  kdc = ", 1)
	if err := os.WriteFile(c.Krb5Conf, []byte(more), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 4 { // the library takes any one first
		owns(t, dial(t, config(t, c, byName(e.Addrs()...)...)), deployer+"@"+rig.Realm)
	}
}

// TestAHostileKDC: what is no reply is an error, and ends no process.
func TestAHostileKDC(t *testing.T) {
	t.Parallel()
	k, e := startKerberos(t, 1)
	preauth := "\x30\x0d\x30\x0b\xa1\x03\x02\x01\x13\xa2\x04\x04\x02\x30\x00" // an empty list of encryption types
	for name, says := range map[string][]byte{
		"garbage": []byte("neither this nor that"), "nothing": {}, "no types": krbError(25, preauth),
		"no data": krbError(25, ""), "unknown": krbError(99, ""),
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for c, err := l.Accept(); err == nil; c, err = l.Accept() {
					_, _ = c.Read(make([]byte, 4096))
					_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(says))), says...))
					_ = c.Close()
				}
			}()
			c := deploy(k)
			c.Krb5Conf = filepath.Join(t.TempDir(), "krb5.conf")
			text := fmt.Sprintf("[realms]\n%s = {\nkdc = %s\n}\n", rig.Realm, l.Addr())
			if err := os.WriteFile(c.Krb5Conf, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if s, err := zkconn.Dial(ctx, config(t, c, byName(e.Addrs()...)...)); err == nil {
				_ = s.Close()
				t.Error("it has logged in")
			} else if !errors.Is(err, zkconn.ErrAuthFailed) && !errors.Is(err, zkconn.ErrUnreachable) {
				t.Error(err)
			}
		})
	}
}

// krbError is a KRB-ERROR with a code and data, in ASN.1 (RFC 4120, 5.9.1).
func krbError(code byte, data string) []byte {
	tagged := func(tag byte, body string) string { return string([]byte{tag, byte(len(body))}) + body }
	number := func(n byte) string { return tagged(2, string([]byte{n})) }
	text := func(s string) string { return tagged(0x1b, s) }
	fields := tagged(0xa0, number(5)) + tagged(0xa1, number(30)) + tagged(0xa4, tagged(0x18, "20261128000000Z")) +
		tagged(0xa5, number(0)) + tagged(0xa6, number(code)) + tagged(0xa9, text("R")) +
		tagged(0xaa, tagged(0x30, tagged(0xa0, number(1))+tagged(0xa1, tagged(0x30, text("k")))))
	if data != "" {
		fields += tagged(0xac, tagged(4, data))
	}
	return []byte(tagged(0x7e, tagged(0x30, fields)))
}
