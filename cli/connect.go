package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/spec"
	"muster/zkstate/zkconn"
)

// target is a ZooKeeper ensemble and how to connect to it. Flags come before the environment, the environment before
// what is declared.
type target struct {
	servers []string
	by      namer
	timeout time.Duration
	tls     resource.TLS // as declared, relative to the current directory
	files   resource.TLS // the files to open

	declaredSASL resource.SASL // with files like tls
	sasl         resource.SASL // with the environment, and the files to open
}

type namer int

const (
	byCaller        namer = iota // flags, the environment, or nobody: the default
	byConfiguration              // which the caller chose
	byPlan                       // a file that others may have written since
)

// target returns the target of a command whose configuration or saved plan declares the given one.
func (p *process) target(declared target) target {
	t := declared
	switch env := p.environ.value("MUSTER_SERVERS"); {
	case len(p.flags.servers) > 0:
		t.servers, t.by = p.flags.servers, byCaller
	case env != "":
		t.servers, t.by = strings.Split(env, ","), byCaller
	case len(t.servers) > 0:
		p.called.servers = t.servers
	default:
		t.servers, t.by = []string{spec.DefaultServer}, byCaller
	}
	for i, s := range t.servers {
		t.servers[i] = strings.TrimSpace(s)
	}
	pick := func(flag, env, declared string) string {
		return p.pathIfAny(cmp.Or(flag, p.environ.value(env), declared))
	}
	t.files = resource.TLS{
		CAFile:   pick(p.flags.tlsCA, "MUSTER_TLS_CA", t.tls.CAFile),
		CertFile: pick(p.flags.tlsCert, "MUSTER_TLS_CERT", t.tls.CertFile),
		KeyFile:  pick(p.flags.tlsKey, "MUSTER_TLS_KEY", t.tls.KeyFile),
	}
	t.sasl = p.sasl(t.declaredSASL)
	return t
}

// declaredTarget returns what the configuration that an argument names says about ZooKeeper.
func (p *process) declaredTarget(cfg *spec.Config, arg string) target {
	z, dir := cfg.ZooKeeper, p.configDir(arg)
	login := z.SASL
	login.KeytabFile = p.declaredPath(dir, login.KeytabFile)
	login.Krb5Conf = p.declaredPath(dir, login.Krb5Conf)
	return target{
		servers: slices.Clone(z.Servers), by: byConfiguration, timeout: time.Duration(z.SessionTimeout),
		tls: resource.TLS{
			CAFile:   p.declaredPath(dir, z.TLS.CAFile),
			CertFile: p.declaredPath(dir, z.TLS.CertFile),
			KeyFile:  p.declaredPath(dir, z.TLS.KeyFile),
		},
		declaredSASL: login,
	}
}

// declaredPath returns name, which is relative to dir, relative to the current directory: a saved plan may be applied
// on a machine that has the same files in another place.
func (p *process) declaredPath(dir, name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	name = filepath.Join(dir, name)
	here, err := filepath.Abs(p.path("."))
	if rel, relErr := filepath.Rel(here, name); filepath.IsAbs(name) && err == nil && relErr == nil {
		return rel
	}
	return name
}

// connectTimeout bounds the wait for a session. An ensemble chooses a leader in that time. A KDC may need more: the
// library for Kerberos waits 5 s for one that says nothing, and then asks another.
const (
	connectTimeout  = 5 * time.Second
	kerberosTimeout = 15 * time.Second
)

// connect opens a session. The session outlives ctx: a signal must not interrupt the writes in flight.
func (p *process) connect(ctx context.Context, t target) (*zkconn.Session, error) {
	auth, err := p.credentials()
	if proves, _ := p.authenticates(t); err == nil && proves {
		err = p.checkHosts(t)
	}
	if err != nil {
		return nil, err
	}
	login, err := p.login(t)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := t.tlsConfig()
	if err != nil {
		return nil, err
	}
	limit := connectTimeout
	if t.sasl.Mechanism == resource.SASLKerberos {
		limit = kerberosTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("gave up after %s", limit))
	defer cancel()
	s, err := zkconn.Dial(ctx, zkconn.Config{
		Servers: t.servers, Timeout: t.timeout, Auth: auth, SASL: login, TLS: tlsConfig,
		Logger: p.log,
	})
	p.session.Store(s)
	return s, wrapDialError(err)
}

// checkHosts refuses servers that the credentials are not for: all but those that the caller names as servers or in
// MUSTER_ZK_HOSTS and, if that is empty, those of the configuration.
func (p *process) checkHosts(t target) error {
	hosts := resource.ParseHosts(p.environ.value("MUSTER_ZK_HOSTS"))
	i := slices.IndexFunc(t.servers, func(addr string) bool { return !hosts.Include(addr) })
	if t.by == byCaller || t.by == byConfiguration && len(hosts) == 0 || i < 0 {
		return nil
	}
	source := "the configuration"
	if t.by == byPlan {
		source = "the plan"
	}
	err := fmt.Errorf("zookeeper at %s, which %s names: the credentials are not for this host", t.servers[i], source)
	return &problem{
		errWithheld, err,
		"name the servers in --servers or MUSTER_SERVERS, or add those that may have the credentials to MUSTER_ZK_HOSTS",
	}
}

// wrapDialError makes a usage error of an error that came before any server was tried.
func wrapDialError(err error) error {
	if err == nil || unreachable(err) {
		return err
	}
	return &problem{errUsage, err, "write host:port,host:port in --servers or MUSTER_SERVERS"}
}

// tlsConfig returns nil if there are no TLS files. Server names are verified.
func (t target) tlsConfig() (*tls.Config, error) {
	if t.files == (resource.TLS{}) {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.files.CAFile != "" {
		pem, err := readBounded(t.files.CAFile, maxTLSFile)
		if err != nil {
			return nil, fmt.Errorf("certificates to trust: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM format", t.files.CAFile)
		}
	}
	var err error
	c.Certificates, err = keyPair("my certificate", t.files.CertFile, t.files.KeyFile,
		"give both --tls-cert and --tls-key")
	return c, err
}

// keyPair reads a certificate and its key; none if both files are empty. both says how to name the two.
func keyPair(what, certFile, keyFile, both string) ([]tls.Certificate, error) {
	switch {
	case certFile == "" && keyFile == "":
		return nil, nil
	case certFile == "" || keyFile == "":
		return nil, usagef(both, "a certificate without its key, or a key without its certificate")
	}
	cert, certErr := readBounded(certFile, maxTLSFile)
	key, keyErr := readBounded(keyFile, maxTLSFile)
	if err := cmp.Or(certErr, keyErr); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, &problem{nil, fmt.Errorf("%s: %s and %s: %w", what, certFile, keyFile, err),
			"name a certificate and its own key, both in PEM format and without a passphrase"}
	}
	return []tls.Certificate{pair}, nil
}

// credentials reads MUSTER_ZK_AUTH or the file of MUSTER_ZK_AUTH_FILE: one scheme:data a line. No message shows them.
func (p *process) credentials() ([]zkconn.Auth, error) {
	source, text := "MUSTER_ZK_AUTH", []byte(p.environ.value("MUSTER_ZK_AUTH"))
	if name := p.environ.value("MUSTER_ZK_AUTH_FILE"); name != "" && len(text) == 0 {
		var err error
		if text, err = readBounded(p.path(name), maxCredentials); err != nil {
			return nil, fmt.Errorf("MUSTER_ZK_AUTH_FILE: %w", err)
		}
		source = name
	}
	var auth []zkconn.Auth
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		scheme, data, ok := strings.Cut(line, ":")
		if !ok || scheme == "" || scheme == "digest" && !strings.Contains(data, ":") {
			return nil, usagef("write digest:USER:PASSWORD", "%s holds something that is not a credential", source)
		}
		auth = append(auth, zkconn.Auth{Scheme: scheme, Data: []byte(data)})
	}
	return auth, nil
}

// checkACL refuses an ACL with the scheme "auth" if muster does not authenticate: ZooKeeper would refuse every write. A
// client certificate authenticates too.
func (p *process) checkACL(t target, acl []string) error {
	proves, err := p.authenticates(t)
	if err != nil || proves || t.files.CertFile != "" {
		return err
	}
	for _, entry := range acl {
		if strings.HasPrefix(entry, "auth:") {
			return fmt.Errorf("acl %q means who has authenticated, and there are no credentials: %w",
				entry, zkconn.ErrInvalidACL)
		}
	}
	return nil
}

// noAnswer reports whether no server of ZooKeeper answers: another session may be opened when one does.
func noAnswer(err error) bool { return isAny(err, zkconn.ErrSessionLost, zkconn.ErrUnreachable) }

// unreachable reports whether ZooKeeper was not reached, ended the session, refused access, or must not get the
// credentials.
func unreachable(err error) bool {
	return noAnswer(err) || isAny(err, zkconn.ErrNoAuth, zkconn.ErrAuthFailed, zkconn.ErrInvalidACL, errWithheld)
}
