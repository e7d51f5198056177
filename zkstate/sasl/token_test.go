package sasl

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jcmturner/gokrb5/v8/types"

	"muster/resource"
	"muster/zkstate/zkconn"
)

// TestRFC2831 has the values of its chapter 4, but for what names the service.
func TestRFC2831(t *testing.T) {
	l := digestLogin{digest: digest{"chris", "secret"}, cnonce: "OA6MHXh6VqTrRk"}
	if first, done, err := l.Next(nil); first == nil || len(first) > 0 || done || err != nil {
		t.Fatal(first, done, err)
	}
	challenge := `realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8`
	answer, done, err := l.Next([]byte(challenge))
	if err != nil || done {
		t.Fatal(done, err)
	}
	all, err := directives(string(answer))
	if err != nil || all["realm"][0] != "elwood.innosoft.com" || all["nc"][0] != "00000001" ||
		all["digest-uri"][0] != digestURI || all["username"][0] != "chris" {
		t.Errorf("%v, %v", all, err)
	}
	if _, _, err := l.Next([]byte("rspauth=ea40f60335c427b5527b84dbabcdfffd")); !errors.Is(err, zkconn.ErrAuthFailed) {
		t.Errorf("a proof that is none: %v", err)
	}
	if _, done, err := l.Next([]byte("rspauth=" + l.proof)); !done || err != nil {
		t.Error(done, err)
	}
	if strings.Contains(string(answer), "secret") {
		t.Error("the password is sent")
	}
}

func TestChallengesThatAreRefused(t *testing.T) {
	good := `realm="r",nonce="n",algorithm=md5-sess`
	for name, challenge := range map[string]string{
		"empty": "", "no nonce": `realm="r",algorithm=md5-sess`, "two nonces": good + `,nonce="m"`,
		"no realm": `nonce="n",algorithm=md5-sess`, "another digest": strings.Replace(good, "md5-sess", "md5", 1),
		"no auth": good + `,qop="auth-int,auth-conf"`, "an open quote": good + `,qop="auth`, "no value": good + ",qop",
		"glued": good + `,qop="auth"x=y`, "Kerberos": "\x60\x01\x02",
	} {
		l := digestLogin{digest: digest{"ann", "x"}, step: 1}
		if answer, _, err := l.Next([]byte(challenge)); !errors.Is(err, zkconn.ErrAuthFailed) {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
	}
	l := digestLogin{digest: digest{"ann", "пароль"}, step: 1}
	if _, _, err := l.Next([]byte(good)); err == nil || !strings.Contains(err.Error(), "8859-1") {
		t.Error(err)
	}
}

func TestDirectives(t *testing.T) {
	got, err := directives(`, a="x,\"y\\" ,b=c, A=d,e="",`)
	want := map[string][]string{"a": {`x,"y\`, "d"}, "b": {"c"}, "e": {""}}
	if err != nil || !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("%q, %v", got, err)
	}
}

// FuzzTokens: nothing that a server sends is more than refused.
func FuzzTokens(f *testing.F) {
	reply, err := frame(apReply, []byte{0x6f, 2, 0x30, 0})
	if err != nil {
		f.Fatal(err)
	}
	refusal, err := frame(krbError, []byte{0x7e, 2, 0x30, 0})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{
		nil, {}, {0x60}, reply, refusal, []byte(`realm="r",nonce="n",algorithm=md5-sess`), []byte("rspauth="),
		bytes.Repeat([]byte{0x60}, 40), {5, 4, 1, 0xff, 0, 12, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4},
	} {
		f.Add(seed)
	}
	key := types.EncryptionKey{KeyType: 18, KeyValue: make([]byte, 32)}
	f.Fuzz(func(t *testing.T, token []byte) {
		for step := range 4 {
			kerberos := gssLogin{ticket: &ticket{key: key}, forget: func() {}, step: step, sealing: key}
			password := digestLogin{digest: digest{"ann", "x"}, step: step, proof: "proof"}
			for _, l := range []zkconn.Login{&kerberos, &password} {
				// An empty token is right where GSSAPI ends.
				if _, done, _ := l.Next(token); done && !(step == 3 && len(token) == 0) && string(token) != "rspauth=proof" {
					t.Errorf("%T is done at step %d with %q", l, step+1, token)
				}
			}
		}
	})
}

// TestRotated reads a token whose body was rotated, as Java and others may send it.
func TestRotated(t *testing.T) {
	token, err := hex.DecodeString("050401ff000c001c0000000000000000" + "03040102")
	if err != nil {
		t.Fatal(err)
	}
	token[7] = 2
	if got := unrotated(token)[16:]; !bytes.Equal(got, []byte{1, 2, 3, 4}) {
		t.Errorf("% x", got)
	}
}

func TestConfigsThatAreRefused(t *testing.T) {
	password := func(user, secret string) Config {
		return Config{SASL: resource.SASL{Mechanism: resource.SASLDigest, Username: user}, Password: secret}
	}
	kerberos := func(client, keytab, server, cache string) Config {
		return Config{CacheFile: cache, SASL: resource.SASL{
			Mechanism: resource.SASLKerberos, Principal: client, KeytabFile: keytab, ServerPrincipal: server,
		}}
	}
	for _, test := range []struct {
		want string
		c    Config
	}{
		{"no mechanism", Config{SASL: resource.SASL{Mechanism: "PLAIN"}}}, {"a password", password("ann", "")},
		{"no text", password("ann", "\xff")}, {"no text", password("a\x00", "x")}, {"a username", password("", "x")},
		{"with its realm", kerberos("ann", "k", "", "")}, {"service/HOST@REALM", kerberos("", "", "zookeeper/_HOST", "")},
		{"not a principal", kerberos("a@b@c", "k", "", "")}, {"not a principal", kerberos("a//b@c", "k", "", "")},
		{"cache of type KCM", kerberos("", "", "", "KCM:")}, {"type KEYRING", kerberos("", "", "", "KEYRING:persistent:0")},
	} {
		if _, err := New(test.c); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
	for _, c := range []Config{
		kerberos("a@B", "k", "", "KCM:0"), kerberos("", "", "", "/tmp/x:y"), kerberos("", "", "", ""),
	} {
		if _, err := New(c); err != nil {
			t.Error(err)
		}
	}
}

// TestReadConf reads files as distributions write them.
func TestReadConf(t *testing.T) {
	for name, text := range map[string]string{
		"RHEL": `# To opt out of the system crypto-policies configuration of krb5, remove the
includedir /etc/krb5.conf.d/

[logging]
    default = FILE:/var/log/krb5libs.log

[libdefaults]
    dns_lookup_realm = false
    dns_canonicalize_hostname = fallback
    ticket_lifetime = 24h
    renew_lifetime = 7d
    forwardable = true
    spake_preauth_groups = edwards25519
    default_ccache_name = KEYRING:persistent:%{uid}

[realms]
 EXAMPLE.COM = {
     kdc = kerberos.example.com
     admin_server = kerberos.example.com
     auth_to_local_names = {
        kdc = not-one
     }
     kdc = tcp/second.example.com:1088
 }

[domain_realm]
 .example.com = EXAMPLE.COM
 Example.com = EXAMPLE.COM
`,
		"braces": "[domain_realm]\n.example.com=EXAMPLE.COM\nexample.com = EXAMPLE.COM\n[libdefaults]\n" +
			"dns_lookup_realm = off\n[realms]\nEXAMPLE.COM =\n{\nkdc=kerberos.example.com\n" +
			"kdc = second.example.com:1088 *\n}\nOTHER={kdc = [::1]\n}\n",
	} {
		file := filepath.Join(t.TempDir(), "krb5.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		conf, err := readConf(file)
		if err != nil {
			t.Fatal(err)
		}
		var kdcs []string
		for _, r := range conf.Realms {
			if r.Realm == "EXAMPLE.COM" {
				kdcs = append(kdcs, r.KDC...)
			} else if r.Realm != "OTHER" || r.KDC[0] != "[::1]:88" {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if want := []string{"kerberos.example.com:88", "second.example.com:1088"}; !slices.Equal(kdcs, want) {
			t.Errorf("%s: %q, want %q", name, kdcs, want)
		}
		if conf.ResolveRealm("zk.example.com") != "EXAMPLE.COM" || conf.LibDefaults.DNSLookupKDC {
			t.Errorf("%s: %+v", name, conf)
		}
	}
}

// TestALongChallenge takes no time that grows with the square of its length.
func TestALongChallenge(t *testing.T) {
	all, err := directives(strings.Repeat("a=b,", 1<<18))
	if err != nil || len(all["a"]) != 1<<18 {
		t.Error(len(all["a"]), err)
	}
}

func TestNoSecretIsPrinted(t *testing.T) {
	c := Config{SASL: resource.SASL{Mechanism: resource.SASLDigest, Username: "ann"}, Password: "hunter2"}
	login, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{c, &c, login} {
		if text := fmt.Sprintf("%v %+v %#v %s", v, v, v, v); strings.Contains(text, "hunter2") {
			t.Error(text)
		}
	}
}
