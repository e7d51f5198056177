package sasl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/krberror"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"muster/zkstate/zkconn"
)

// kerberos gets tickets for servers, and keeps them while they are good.
type kerberos struct {
	c Config

	mu      sync.Mutex
	fetches map[string]*fetch // under way, by the server's principal

	asking sync.Mutex // held while a KDC is asked, which may take long
	use    sync.RWMutex
	known  *known // nil before the first login at a KDC; written with both locks
}

// known is a client of a KDC, which keeps its tickets.
type known struct {
	*client.Client
	name  types.PrincipalName
	realm string
}

// ticket proves who we are to one server.
type ticket struct {
	ticket messages.Ticket
	key    types.EncryptionKey
	client types.PrincipalName
	realm  string // of the client
}

type fetch struct {
	done   chan struct{} // closed when the others are set
	ticket *ticket
	err    error
}

// serverName is the principal of the server, perhaps without its realm.
func (k *kerberos) serverName(ctx context.Context, host, addr string) (string, error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if k.c.CanonicalizeHostname {
		ip, _, err := net.SplitHostPort(addr)
		if err != nil {
			return "", err
		}
		names, err := net.DefaultResolver.LookupAddr(ctx, ip)
		if err != nil && ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if len(names) > 0 {
			host = strings.ToLower(strings.TrimSuffix(names[0], "."))
		}
	}
	if k.c.ServerPrincipal != "" {
		return strings.ReplaceAll(k.c.ServerPrincipal, "_HOST", host), nil
	}
	return k.c.Service + "/" + host, nil
}

// ticket returns a ticket for a server, from the KDC if none is kept. Who waits no longer leaves the fetch under way,
// so that the next one may find the ticket.
func (k *kerberos) ticket(ctx context.Context, server string) (*ticket, error) {
	k.mu.Lock()
	f := k.fetches[server]
	if f == nil {
		f = &fetch{done: make(chan struct{})}
		if k.fetches == nil {
			k.fetches = map[string]*fetch{}
		}
		k.fetches[server] = f
		go k.fetch(server, f)
	}
	k.mu.Unlock()
	select {
	case <-f.done:
		return f.ticket, f.err
	case <-ctx.Done():
		return nil, errNoKDC
	}
}

func (k *kerberos) fetch(server string, f *fetch) {
	f.ticket, f.err = k.get(server)
	k.mu.Lock()
	delete(k.fetches, server)
	k.mu.Unlock()
	close(f.done)
}

// get takes a ticket that is kept, or asks the KDC. A client that gets none is replaced, once, by one that reads the
// files again: its own ticket may have ended, and the keytab or the cache may be new.
func (k *kerberos) get(server string) (*ticket, error) {
	k.use.RLock()
	t := k.known.kept(server)
	k.use.RUnlock()
	if t != nil {
		return t, nil
	}
	k.asking.Lock()
	defer k.asking.Unlock()
	if k.known != nil {
		if t, err := k.known.get(server); err == nil {
			return t, nil
		}
	}
	now, err := k.login()
	if err != nil {
		return nil, k.explain(err, server)
	}
	if t, err = now.get(server); err != nil {
		now.Destroy()
		return nil, k.explain(err, server)
	}
	k.use.Lock()
	defer k.use.Unlock()
	if k.known != nil {
		k.known.Destroy()
	}
	k.known = now
	return t, nil
}

// kept is a ticket that the client has; nil if there is none.
func (n *known) kept(server string) *ticket {
	if n == nil {
		return nil
	}
	name, _, _ := strings.Cut(server, "@")
	if found, key, ok := n.GetCachedTicket(name); ok {
		return &ticket{found, key, n.name, n.realm}
	}
	return nil
}

// get asks the KDC if no ticket is kept.
func (n *known) get(server string) (t *ticket, err error) {
	defer recovered(&err)
	name, realm, _ := strings.Cut(server, "@")
	if host := name[strings.LastIndexByte(name, '/')+1:]; realm != "" {
		n.Config.DomainRealm[host] = realm
	}
	found, key, err := n.GetServiceTicket(name)
	if err != nil {
		return nil, err
	}
	return &ticket{found, key, n.name, n.realm}, nil
}

// maxFile is the largest of the files, in bytes.
const maxFile = 1 << 20

// login reads the files, and logs in at the KDC unless there is a cache.
func (k *kerberos) login() (n *known, err error) {
	defer recovered(&err)
	text, err := readFile(k.c.Krb5Conf)
	if err != nil {
		return nil, err
	}
	conf, err := config.NewFromReader(bytes.NewReader(text))
	if _, unsupported := errors.AsType[config.UnsupportedDirective](err); err != nil && !unsupported {
		return nil, fmt.Errorf("%s: %w", k.c.Krb5Conf, err)
	}
	if k.c.KeytabFile != "" {
		n, err = k.fromKeytab(conf)
	} else {
		n, err = k.fromCache(conf)
	}
	if err != nil {
		return nil, err
	}
	if err := k.hasKDC(conf, n.realm); err != nil {
		return nil, err
	}
	return n, n.Login() // nothing, if the tickets are there
}

// hasKDC returns an error if nobody can be asked.
func (k *kerberos) hasKDC(conf *config.Config, realm string) error {
	named, _, _ := conf.GetKDCs(realm, true)
	if named > 0 || conf.LibDefaults.DNSLookupKDC {
		return nil
	}
	return fmt.Errorf("%s names no kdc of %s: add it to [realms], or dns_lookup_kdc = true to [libdefaults]",
		k.c.Krb5Conf, realm)
}

func (k *kerberos) fromKeytab(conf *config.Config) (*known, error) {
	body, err := readFile(k.c.KeytabFile)
	if err != nil {
		return nil, err
	}
	keys := keytab.New()
	if err := keys.Unmarshal(body); err != nil {
		return nil, fmt.Errorf("%s is no keytab", k.c.KeytabFile)
	}
	name, realm, _ := cutPrincipal(k.c.Principal)
	c := client.NewWithKeytab(name, realm, keys, conf, client.DisablePAFXFAST(true))
	return &known{c, c.Credentials.CName(), realm}, nil
}

func (k *kerberos) fromCache(conf *config.Config) (*known, error) {
	body, err := readFile(k.c.CacheFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no tickets in %s: run kinit, or name a keytab", k.c.CacheFile)
	}
	if err != nil {
		return nil, err
	}
	var cache credentials.CCache
	if err := cache.Unmarshal(body); err != nil {
		return nil, fmt.Errorf("%s is no cache of tickets", k.c.CacheFile)
	}
	name, realm := cache.GetClientPrincipalName(), cache.GetClientRealm()
	if whose := name.PrincipalNameString() + "@" + realm; k.c.Principal != "" && k.c.Principal != whose {
		return nil, fmt.Errorf("the tickets in %s are for %.200q", k.c.CacheFile, whose)
	}
	tgt, _ := cache.GetEntry(types.PrincipalName{NameString: []string{"krbtgt", realm}})
	if !tgt.EndTime.After(time.Now()) {
		return nil, fmt.Errorf("the ticket in %s has ended: run kinit", k.c.CacheFile)
	}
	c, err := client.NewFromCCache(&cache, conf, client.DisablePAFXFAST(true))
	if err != nil {
		return nil, err
	}
	return &known{c, name, realm}, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(body) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	return body, err
}

// kdcError is how the library writes an error that a KDC has sent.
var kdcError = regexp.MustCompile(`KRB Error: \(\d+\) (\w+)`)

// explain says what an error of the library means. Only if no KDC has answered, the next try may succeed.
func (k *kerberos) explain(err error, server string) error {
	of, _ := errors.AsType[krberror.Krberror](err)
	code := ""
	if found := kdcError.FindStringSubmatch(err.Error()); found != nil {
		code = found[1]
	}
	switch {
	case of.RootCause == krberror.NetworkingError:
		return errNoKDC
	case of.RootCause == krberror.DecryptingError: // of what only the principal can read
		code = "KDC_ERR_PREAUTH_FAILED"
	case strings.Contains(err.Error(), "clock skew"):
		code = "KRB_AP_ERR_SKEW"
	}
	who := cmp.Or(k.c.Principal, "the client")
	why := ""
	switch code {
	case "KDC_ERR_SVC_UNAVAILABLE":
		return errNoKDC
	case "KDC_ERR_C_PRINCIPAL_UNKNOWN":
		why = "the KDC does not know " + who
	case "KDC_ERR_S_PRINCIPAL_UNKNOWN":
		why = fmt.Sprintf("the KDC does not know the server as %s: name it in the list of servers as its principal does, "+
			"or set service, server_principal or canonicalize_hostname", server)
	case "KDC_ERR_PREAUTH_FAILED", "KRB_AP_ERR_BAD_INTEGRITY":
		why = fmt.Sprintf("%s does not hold the key that the KDC has for %s", k.c.KeytabFile, who)
	case "KDC_ERR_ETYPE_NOSUPP":
		why = fmt.Sprintf("the KDC and %s have no encryption type in common, or %s has no key of AES", who, server)
	case "KRB_AP_ERR_SKEW":
		why = "the clocks of this machine and of the KDC differ too much"
	case "KRB_AP_ERR_TKT_EXPIRED":
		why = "the ticket has ended: run kinit"
	default:
		why = fmt.Sprintf("no ticket for %s: %.300s", server, cmp.Or(code, err.Error()))
	}
	return fmt.Errorf("%w: %s", zkconn.ErrAuthFailed, why)
}

var errNoKDC = errors.New("no ticket: no KDC answers")
