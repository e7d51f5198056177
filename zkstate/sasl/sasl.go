// Package sasl logs in to ZooKeeper servers, with a password (DIGEST-MD5) or by Kerberos (GSSAPI). A login proves who
// one is, and to whom one speaks. It protects nothing that is sent after it: TLS does.
//
// The server's own login section decides about the mechanism, and who one then is. GSSAPI takes tickets from a keytab
// or from a cache in a file. The library for Kerberos reads neither other caches (KCM, KEYRING) nor includedir.
package sasl

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/zkstate/zkconn"
)

// The mechanisms.
const (
	DigestMD5 = "DIGEST-MD5"
	GSSAPI    = "GSSAPI"
)

// Config says how to log in.
type Config struct {
	Mechanism string // DigestMD5 or GSSAPI

	Username, Password string // of DigestMD5

	Principal  string // of GSSAPI, "muster/deploy@EXAMPLE"; may be empty without a keytab
	KeytabFile string // "" is a cache of tickets
	CacheFile  string // of tickets: a path, perhaps after "FILE:"
	Krb5Conf   string // the file that names realms and their KDCs

	// The server's principal is Service/HOST, and HOST is its name in the list of servers, in small letters. The realm is
	// that of its domain in Krb5Conf, else the client's.
	Service string // "" is zookeeper
	// CanonicalizeHostname makes HOST the name that the name service has for the server's address, as in Java.
	CanonicalizeHostname bool
	// ServerPrincipal is the server's whole principal in place of that. It may hold _HOST.
	ServerPrincipal string
}

// Format prints only the mechanism, with every verb.
func (c Config) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "{%s …}", c.Mechanism) }

// New checks the config, and returns what logs in the connections of sessions. It reads files and asks servers only
// when a connection is made.
func New(c Config) (zkconn.SASL, error) {
	switch c.Mechanism {
	case DigestMD5:
		if c.Username == "" || c.Password == "" {
			return nil, errors.New("DIGEST-MD5 needs a username and a password")
		}
		for _, text := range []string{c.Username, c.Password} {
			if strings.ContainsRune(text, 0) || !isText(text) {
				return nil, errors.New("the username or the password is no text in UTF-8")
			}
		}
		return digest{c.Username, c.Password}, nil
	case GSSAPI:
		c.Service = cmp.Or(c.Service, "zookeeper")
		if _, realm, _ := cutPrincipal(c.Principal); c.KeytabFile != "" && realm == "" {
			return nil, errors.New("GSSAPI with a keytab needs a principal with its realm, such as muster@EXAMPLE")
		}
		if _, realm, err := cutPrincipal(c.ServerPrincipal); err != nil || c.ServerPrincipal != "" && realm == "" {
			return nil, errors.New("the server's principal must be service/HOST@REALM")
		}
		if kind, _, found := strings.Cut(c.CacheFile, ":"); found && kind != "FILE" && !strings.Contains(kind, "/") {
			return nil, fmt.Errorf("tickets in a cache of type %s cannot be read: use a keytab, or a cache of type FILE", kind)
		}
		c.CacheFile = strings.TrimPrefix(c.CacheFile, "FILE:")
		return &kerberos{c: c}, nil
	}
	return nil, fmt.Errorf("there is no mechanism %q: DIGEST-MD5 and GSSAPI are known", c.Mechanism)
}

// cutPrincipal returns the name and the realm of a principal. Escapes are not supported.
func cutPrincipal(principal string) (name, realm string, err error) {
	name, realm, found := strings.Cut(principal, "@")
	if parts := strings.Split(name, "/"); principal != "" && slices.Contains(parts, "") || found && realm == "" ||
		strings.ContainsAny(realm, "@/") || strings.Contains(principal, "\\") {
		return "", "", fmt.Errorf("%q is not a principal", principal)
	}
	return name, realm, nil
}
