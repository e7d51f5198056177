package sasl

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"muster/zkstate/zkconn"
)

// DIGEST-MD5 is RFC 2831. The client sends an empty token, the server challenges, the client answers, and the server
// proves with rspauth that it knows the password too. Servers of ZooKeeper call themselves zk-sasl-md5, whatever their
// names are.

const digestURI = "zookeeper/zk-sasl-md5"

type digest struct{ username, password string }

// Format prints no secret, with every verb.
func (d digest) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "{%s …}", DigestMD5) }

func (d digest) Begin(context.Context, string, string) (zkconn.Login, error) {
	return &digestLogin{digest: d, cnonce: rand.Text()}, nil
}

type digestLogin struct {
	digest
	cnonce string
	step   int
	proof  string // the rspauth that the server must send
}

func (l *digestLogin) Next(token []byte) (answer []byte, done bool, err error) {
	l.step++
	switch {
	case l.step == 1:
		return []byte{}, false, nil
	case token == nil:
		return nil, false, zkconn.ErrNoSASL
	case l.step == 2:
		answer, err = l.answer(string(token))
		return answer, false, err
	}
	if subtle.ConstantTimeCompare(token, []byte("rspauth="+l.proof)) != 1 {
		return nil, false, fmt.Errorf("%w: the server does not prove that it knows the password", zkconn.ErrAuthFailed)
	}
	return nil, true, nil
}

// answer answers a challenge.
func (l *digestLogin) answer(challenge string) ([]byte, error) {
	if strings.HasPrefix(challenge, "`") { // a token of Kerberos begins so
		return nil, errMechanism
	}
	all, err := directives(challenge)
	nonce := all["nonce"]
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errMechanism, err)
	case len(nonce) != 1 || len(nonce[0]) == 0 || len(all["realm"]) == 0:
		return nil, errMechanism
	case !slices.Equal(all["algorithm"], []string{"md5-sess"}):
		return nil, fmt.Errorf("%w: the server's digest is not md5-sess", zkconn.ErrAuthFailed)
	case len(all["qop"]) > 0 && !slices.Contains(strings.Split(strings.ReplaceAll(all["qop"][0], " ", ""), ","), "auth"):
		return nil, fmt.Errorf("%w: the server wants to protect what is sent, which ZooKeeper cannot", zkconn.ErrAuthFailed)
	}
	realm, utf := all["realm"][0], slices.Equal(all["charset"], []string{"utf-8"})
	encode := latin
	if utf {
		encode = latinOrUTF8
	}
	var parts [3]string
	for i, text := range []string{l.username, realm, l.password} {
		if parts[i], err = encode(text); err != nil {
			return nil, err
		}
	}
	secret := md5.Sum([]byte(strings.Join(parts[:], ":")))
	a1 := hash(string(secret[:]) + ":" + nonce[0] + ":" + l.cnonce)
	sign := func(a2 string) string {
		return hash(a1 + ":" + nonce[0] + ":00000001:" + l.cnonce + ":auth:" + hash(a2))
	}
	l.proof = sign(":" + digestURI)
	var answer strings.Builder
	name := parts[0]
	if utf {
		answer.WriteString("charset=utf-8,")
		name = l.username
	}
	fmt.Fprintf(&answer, `username=%s,realm=%s,nonce=%s,nc=00000001,cnonce=%s,digest-uri=%s,response=%s,qop=auth`,
		quoted(name), quoted(realm), quoted(nonce[0]), quoted(l.cnonce), quoted(digestURI),
		sign("AUTHENTICATE:"+digestURI))
	return []byte(answer.String()), nil
}

// errMechanism is what a challenge that is none means.
var errMechanism = fmt.Errorf("%w: the server logs in with another mechanism than DIGEST-MD5", zkconn.ErrAuthFailed)

func hash(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoted(text string) string { return `"` + escapes.Replace(text) + `"` }

func isText(text string) bool { return utf8.ValidString(text) }

// latin is the text in ISO 8859-1.
func latin(text string) (string, error) {
	var b []byte
	for _, r := range text {
		if r > 0xff {
			return "", errors.New("the server's digest has no letters beyond ISO 8859-1")
		}
		b = append(b, byte(r))
	}
	return string(b), nil
}

// latinOrUTF8 is what is hashed of a text in UTF-8.
func latinOrUTF8(text string) (string, error) {
	if short, err := latin(text); err == nil {
		return short, nil
	}
	return text, nil
}

// directives reads a list of name=value, separated by commas. A value may be quoted. A name may come again.
func directives(text string) (map[string][]string, error) {
	all := map[string][]string{}
	malformed := errors.New("its challenge is malformed")
	for text = strings.Trim(text, ", \t"); text != ""; text = strings.TrimLeft(text, ", \t") {
		name, rest, found := strings.Cut(text, "=")
		if !found {
			return nil, malformed
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			var b strings.Builder
			i := 1
			for ; i < len(rest) && rest[i] != '"'; i++ {
				if rest[i] == '\\' {
					i++
				}
				if i < len(rest) {
					b.WriteByte(rest[i])
				}
			}
			if i >= len(rest) {
				return nil, malformed
			}
			value, text = b.String(), rest[i+1:]
			if text != "" && !strings.ContainsAny(text[:1], ", \t") {
				return nil, malformed
			}
		} else {
			end := strings.IndexByte(rest+",", ',')
			value, text = rest[:end], rest[end:]
		}
		name = strings.ToLower(strings.TrimSpace(name))
		all[name] = append(all[name], value)
	}
	return all, nil
}
