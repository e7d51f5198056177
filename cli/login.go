package cli

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"muster/resource"
	"muster/zkstate/sasl"
	"muster/zkstate/zkconn"
)

// envSASL is MUSTER_SASL_ and the name of an argument of the sasl block.
func (p *process) envSASL(argument string) string {
	return p.environ.value("MUSTER_SASL_" + strings.ToUpper(argument))
}

// sasl is how to log in: what is declared, with each variable that is set in place of its argument. A mechanism in the
// environment that is not the declared one stands alone.
func (p *process) sasl(declared resource.SASL) resource.SASL {
	s := declared
	if mechanism := p.envSASL("mechanism"); mechanism != "" && mechanism != s.Mechanism {
		s = resource.SASL{Mechanism: mechanism}
	}
	for name, to := range s.Texts() {
		*to = cmp.Or(p.envSASL(name), *to)
	}
	switch p.envSASL("canonicalize_hostname") {
	case "true", "1":
		s.CanonicalizeHostname = true
	case "false", "0":
		s.CanonicalizeHostname = false
	}
	s.KeytabFile, s.Krb5Conf = p.pathIfAny(s.KeytabFile), p.pathIfAny(s.Krb5Conf)
	return s
}

// login is what logs in to the servers of t; nil: nothing does. No message shows the password.
func (p *process) login(t target) (zkconn.SASL, error) {
	s := t.login
	if s.Mechanism == "" {
		if s != (resource.SASL{}) {
			return nil, usagef("set MUSTER_SASL_MECHANISM to DIGEST-MD5 or GSSAPI", "a login by SASL without its mechanism")
		}
		return nil, nil
	}
	if why, help := s.Problem(); why != "" {
		return nil, usagef(help, "the login by SASL: %s", why)
	}
	password, err := p.saslPassword()
	if err == nil && s.Mechanism == resource.SASLDigest && password == "" {
		err = usagef("set MUSTER_SASL_PASSWORD or MUSTER_SASL_PASSWORD_FILE", "no password to log in as %s", s.Username)
	}
	if err != nil {
		return nil, err
	}
	conf, _, _ := strings.Cut(p.environ.value("KRB5_CONFIG"), ":")
	c := sasl.Config{
		Mechanism: s.Mechanism, Username: s.Username, Password: password,
		Principal: s.Principal, KeytabFile: s.KeytabFile,
		CacheFile: cmp.Or(p.environ.value("KRB5CCNAME"), fmt.Sprintf("/tmp/krb5cc_%d", os.Getuid())),
		Krb5Conf:  cmp.Or(s.Krb5Conf, conf, "/etc/krb5.conf"),
		Service:   s.Service, ServerPrincipal: s.ServerPrincipal, CanonicalizeHostname: s.CanonicalizeHostname,
	}
	if before, ok := p.logins.Load(c); ok {
		return before.(zkconn.SASL), nil
	}
	login, err := sasl.New(c)
	if err != nil {
		return nil, usagef("muster explain M1608 shows both mechanisms", "the login by SASL: %w", err)
	}
	p.logins.Store(c, login)
	return login, nil
}

func (p *process) saslPassword() (string, error) {
	password, file := p.envSASL("password"), p.envSASL("password_file")
	switch {
	case file == "":
		return password, nil
	case password != "":
		return "", usagef("unset one of them", "MUSTER_SASL_PASSWORD and MUSTER_SASL_PASSWORD_FILE are both set")
	}
	text, err := readBounded(p.path(file), maxCredentials)
	if err != nil {
		return "", fmt.Errorf("MUSTER_SASL_PASSWORD_FILE: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// authenticates reports whether sessions with the servers of t prove who they are by credentials or by a login.
func (p *process) authenticates(t target) (bool, error) {
	auth, err := p.credentials()
	return len(auth) > 0 || t.login.Mechanism != "", err
}
