package sasl

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

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
			kerberos := gssLogin{ticket: &ticket{ticket: messages.Ticket{}, key: key}, step: step, sealing: key}
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

func TestOldTokens(t *testing.T) {
	l := gssLogin{ticket: &ticket{}, step: 2}
	if _, _, err := l.Next(bytes.Repeat([]byte{0x60}, 40)); err == nil || !strings.Contains(err.Error(), "RC4") {
		t.Error(err)
	}
}

func TestConfigsThatAreRefused(t *testing.T) {
	for want, c := range map[string]Config{
		"no mechanism":         {Mechanism: "PLAIN"},
		"a username and":       {Mechanism: DigestMD5, Username: "ann"},
		"no text":              {Mechanism: DigestMD5, Username: "ann", Password: "\xff"},
		"with its realm":       {Mechanism: GSSAPI, Principal: "ann", KeytabFile: "k"},
		"service/HOST@REALM":   {Mechanism: GSSAPI, ServerPrincipal: "zookeeper/_HOST"},
		"cache of type KCM":    {Mechanism: GSSAPI, CacheFile: "KCM:"},
		"type KEYRING cannot":  {Mechanism: GSSAPI, CacheFile: "KEYRING:persistent:0"},
		"@ in it is no princi": {Mechanism: GSSAPI, Principal: "a@b@c", KeytabFile: "k"},
	} {
		_, err := New(c)
		if err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(want, "@ in") {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestNoSecretIsPrinted(t *testing.T) {
	c := Config{Mechanism: DigestMD5, Username: "ann", Password: "hunter2"}
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
