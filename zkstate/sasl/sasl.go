// Package sasl logs in to ZooKeeper servers, with a password (DIGEST-MD5) or by Kerberos (GSSAPI). A login proves who
// one is, and to whom one speaks. It protects nothing that is sent after it: TLS does.
//
// The server's own login section decides about the mechanism, and who one then is. GSSAPI takes tickets from a keytab
// or from a cache in a file, not from KCM or KEYRING.
package sasl

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"muster/resource"
	"muster/zkstate/zkconn"
)

// Config says how to log in. The server's principal is Service/HOST, and HOST is its name in the list of servers, in
// small letters, or with CanonicalizeHostname the name that the name service has for its address, as in Java. Its
// realm is that of its domain in Krb5Conf, else the client's. ServerPrincipal stands in place of all that, and may hold
// _HOST.
type Config struct {
	resource.SASL
	Password  string // of DIGEST-MD5
	CacheFile string // of tickets, for GSSAPI without a keytab: a path, perhaps after "FILE:"
}

// Format prints only the mechanism, with every verb.
func (c Config) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "{%s …}", c.Mechanism) }

// New checks the config, and returns what logs in the connections of sessions. It reads files and asks servers only
// when a connection is made.
func New(c Config) (zkconn.SASL, error) {
	if why, _ := c.Problem(); why != "" {
		return nil, errors.New(why)
	}
	if c.Mechanism == resource.SASLDigest {
		if c.Password == "" {
			return nil, errors.New("DIGEST-MD5 needs a password")
		}
		for _, text := range []string{c.Username, c.Password} {
			if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
				return nil, errors.New("the username or the password is no text in UTF-8")
			}
		}
		return digest{c.Username, c.Password}, nil
	}
	for _, principal := range []string{c.Principal, c.ServerPrincipal} {
		if !isPrincipal(principal) {
			return nil, fmt.Errorf("%q is not a principal with its realm, such as service/HOST@REALM", principal)
		}
	}
	kind, _, typed := strings.Cut(c.CacheFile, ":")
	if c.KeytabFile == "" && typed && kind != "FILE" && !strings.Contains(kind, "/") {
		return nil, fmt.Errorf("tickets in a cache of type %s cannot be read: use a keytab, or a cache of type FILE", kind)
	}
	c.CacheFile = strings.TrimPrefix(c.CacheFile, "FILE:")
	c.Service = cmp.Or(c.Service, "zookeeper")
	return &kerberos{c: c, kept: map[string]*ticket{}, fetches: map[string]*fetch{}}, nil
}

// isPrincipal reports whether text is empty, or name/…@REALM. Escapes are not supported.
func isPrincipal(text string) bool {
	name, realm, found := strings.Cut(text, "@")
	return text == "" || found && realm != "" && !strings.ContainsAny(realm, "@/") && !strings.Contains(text, "\\") &&
		!slices.Contains(strings.Split(name, "/"), "")
}
