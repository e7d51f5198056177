package sasl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/krberror"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"muster/zkstate/zkconn"
)

// The library's client would keep tickets and renew them in a goroutine, where what a KDC sends could end the process.
// So there is a client for each fetch, which begins at the files again: the keytab or the cache may be new.

// identity is a client with its ticket for the KDC of its realm.
type identity struct {
	*client.Client
	name  types.PrincipalName
	realm string
	tgt   messages.Ticket
	key   types.EncryptionKey
}

// fetch gets a ticket for a server.
func (c Config) fetch(server string) (t *ticket, err error) {
	defer recovered(&err) // the library reads what the KDC and others have written
	conf, err := readConf(c.Krb5Conf)
	if err != nil {
		return nil, c.explain(err, server)
	}
	me, err := c.identify(conf)
	if err != nil {
		return nil, c.explain(err, server)
	}
	defer me.Destroy()
	t, err = me.ticket(conf, server)
	if err != nil {
		return nil, c.explain(err, server)
	}
	return t, nil
}

// identify takes the client's ticket from its cache, or gets one with its key.
func (c Config) identify(conf *config.Config) (*identity, error) {
	if c.KeytabFile == "" {
		return c.fromCache(conf)
	}
	body, err := readFile(c.KeytabFile)
	if err != nil {
		return nil, err
	}
	keys := keytab.New()
	if err := keys.Unmarshal(body); err != nil {
		return nil, fmt.Errorf("%s is no keytab", c.KeytabFile)
	}
	name, realm, _ := strings.Cut(c.Principal, "@")
	if err := reach(conf, realm, c.Krb5Conf); err != nil {
		return nil, err
	}
	me := &identity{Client: client.NewWithKeytab(name, realm, keys, conf, client.DisablePAFXFAST(true)), realm: realm}
	me.name = me.Credentials.CName()
	request, err := messages.NewASReqForTGT(realm, conf, me.name)
	if err != nil {
		return nil, err
	}
	reply, err := me.ASExchange(realm, request, 0)
	if err != nil {
		return nil, err
	}
	me.tgt, me.key = reply.Ticket, reply.DecryptedEncPart.Key
	return me, nil
}

func (c Config) fromCache(conf *config.Config) (*identity, error) {
	body, err := readFile(c.CacheFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no tickets in %s: run kinit with KRB5CCNAME=FILE:%[1]s, or name a keytab", c.CacheFile)
	}
	if err != nil {
		return nil, err
	}
	var cache credentials.CCache
	if err := cache.Unmarshal(body); err != nil {
		return nil, fmt.Errorf("%s is no cache of tickets", c.CacheFile)
	}
	name, realm := cache.GetClientPrincipalName(), cache.GetClientRealm()
	if whose := name.PrincipalNameString() + "@" + realm; c.Principal != "" && c.Principal != whose {
		return nil, fmt.Errorf("the tickets in %s are for %.200q", c.CacheFile, whose)
	}
	tgt, _ := cache.GetEntry(kdcOf(realm))
	if !tgt.EndTime.After(time.Now()) {
		return nil, fmt.Errorf("the ticket in %s has ended: run kinit", c.CacheFile)
	}
	if err := reach(conf, realm, c.Krb5Conf); err != nil {
		return nil, err
	}
	without := client.NewWithKeytab(name.PrincipalNameString(), realm, keytab.New(), conf)
	me := &identity{Client: without, name: name, realm: realm, key: tgt.Key}
	if err := me.tgt.Unmarshal(tgt.Ticket); err != nil {
		return nil, fmt.Errorf("%s is no cache of tickets", c.CacheFile)
	}
	return me, nil
}

// ticket asks the KDC of the client's realm for a ticket, and perhaps for one for the KDC of the server's realm first.
func (me *identity) ticket(conf *config.Config, server string) (*ticket, error) {
	name, realm, _ := strings.Cut(server, "@")
	realm = cmp.Or(realm, conf.ResolveRealm(name[strings.LastIndexByte(name, '/')+1:]), me.realm)
	at, tgt, key := me.realm, me.tgt, me.key
	if realm != me.realm {
		_, reply, err := me.TGSREQGenerateAndExchange(kdcOf(realm), at, tgt, key, false)
		if err == nil {
			err = reach(conf, realm, "krb5.conf")
		}
		if err != nil {
			return nil, err
		}
		at, tgt, key = realm, reply.Ticket, reply.DecryptedEncPart.Key
	}
	who := types.NewPrincipalName(nametype.KRB_NT_PRINCIPAL, name)
	_, reply, err := me.TGSREQGenerateAndExchange(who, at, tgt, key, false)
	if err != nil {
		return nil, err
	}
	part := reply.DecryptedEncPart
	return &ticket{reply.Ticket, part.Key, part.EndTime, me.name, me.realm}, nil
}

// kdcOf is the principal of the KDC of a realm.
func kdcOf(realm string) types.PrincipalName {
	return types.PrincipalName{NameType: nametype.KRB_NT_SRV_INST, NameString: []string{"krbtgt", realm}}
}

// maxFile is the largest of the files, in bytes.
const maxFile = 1 << 20

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

// readConf takes from a krb5.conf what is needed here: the KDCs of realms, the realms of domains, and whether the name
// service knows KDCs. The library refuses files that others accept. Sections are [NAME], a realm is NAME = { … }, other
// lines are KEY = VALUE. Comments begin with # or ;.
func readConf(name string) (*config.Config, error) {
	text, err := readFile(name)
	if err != nil {
		return nil, err
	}
	conf := config.New()
	conf.LibDefaults.UDPPreferenceLimit = 1 // TCP: the library waits 5 s for each datagram that is lost
	aes := []int32{18, 17, 20, 19}
	conf.LibDefaults.DefaultTktEnctypeIDs, conf.LibDefaults.DefaultTGSEnctypeIDs = aes, aes
	conf.LibDefaults.PermittedEnctypeIDs = aes
	section, realm, depth := "", "", 0
	for line := range strings.Lines(openBrace.ReplaceAllString(string(text), "$1{\n")) {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case line == "" || strings.ContainsAny(line[:1], "#;"):
		case strings.HasPrefix(line, "[") && depth == 0:
			section, _, _ = strings.Cut(line[1:], "]")
		case strings.HasPrefix(line, "}"):
			depth = max(depth-1, 0)
		case strings.HasSuffix(line, "{"):
			if depth++; depth == 1 && key != "{" {
				realm = key
			}
		case value == "" && depth == 0: // the brace follows
			realm = key
		case section == "libdefaults" && key == "dns_lookup_kdc":
			conf.LibDefaults.DNSLookupKDC = strings.ContainsAny(strings.ToLower(value[:1]), "ty1") ||
				strings.EqualFold(value, "on")
		case section == "domain_realm":
			conf.DomainRealm[strings.ToLower(key)] = value
		case section == "realms" && depth == 1 && key == "kdc":
			conf.Realms = append(conf.Realms, config.Realm{Realm: realm, KDC: []string{kdcAddress(value)}})
		}
	}
	return conf, nil
}

// openBrace is the begin of a block, with what may stand before it.
var openBrace = regexp.MustCompile(`(?m)(=[ \t]*|^[ \t]*)\{`)

// kdcAddress is host:port of a KDC.
func kdcAddress(value string) string {
	value, _, _ = strings.Cut(value, " ")
	value = strings.TrimPrefix(value, "tcp/")
	if _, _, err := net.SplitHostPort(value); err == nil {
		return value
	}
	return net.JoinHostPort(strings.Trim(value, "[]"), "88")
}

const (
	reachLimit = 3 * time.Second        // for the first KDC to accept a connection
	reachGrace = 300 * time.Millisecond // for the others
)

// reach leaves in conf those KDCs of a realm that accept connections now. The library waits 5 s for each that does not.
func reach(conf *config.Config, realm, file string) error {
	ctx, cancel := context.WithTimeout(context.Background(), reachLimit)
	defer cancel()
	var kdcs []string
	for _, r := range conf.Realms {
		if r.Realm == realm {
			kdcs = append(kdcs, r.KDC...)
		}
	}
	if len(kdcs) == 0 && conf.LibDefaults.DNSLookupKDC {
		_, found, err := net.DefaultResolver.LookupSRV(ctx, "kerberos", "tcp", realm)
		if err != nil {
			return fmt.Errorf("%w of %s is known to the name service", errNoKDC, realm)
		}
		for _, srv := range found {
			kdcs = append(kdcs, net.JoinHostPort(strings.TrimSuffix(srv.Target, "."), strconv.Itoa(int(srv.Port))))
		}
	}
	if len(kdcs) == 0 {
		return fmt.Errorf("%s has no kdc of %s in [realms], and no dns_lookup_kdc = true (includedir is not read)",
			file, realm)
	}
	var all sync.WaitGroup
	errs := make([]error, len(kdcs))
	for i, at := range kdcs {
		all.Go(func() {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
			if errs[i] = err; err == nil {
				_ = c.Close()
				time.AfterFunc(reachGrace, cancel)
			}
		})
	}
	all.Wait()
	here := config.Realm{Realm: realm}
	for i, err := range errs {
		if err == nil {
			here.KDC = append(here.KDC, kdcs[i])
		}
	}
	if len(here.KDC) == 0 {
		return fmt.Errorf("%w of %s answers: %w", errNoKDC, realm, errors.Join(errs...))
	}
	conf.Realms = append(conf.Realms, here) // the library takes the last one
	return nil
}

// errNoKDC may pass. All other errors of a fetch last.
var errNoKDC = errors.New("no ticket: no KDC")

// kdcError is how the library writes an error that a KDC has sent.
var kdcError = regexp.MustCompile(`KRB Error: \(\d+\) (\w+)`)

// explain says what an error means.
func (c Config) explain(err error, server string) error {
	of, _ := errors.AsType[krberror.Krberror](err)
	code := ""
	if found := kdcError.FindStringSubmatch(err.Error()); found != nil {
		code = found[1]
	}
	switch {
	case errors.Is(err, errNoKDC):
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	case of.RootCause == krberror.NetworkingError, code == "KDC_ERR_SVC_UNAVAILABLE":
		return fmt.Errorf("%w answers", errNoKDC)
	case of.RootCause == krberror.DecryptingError: // of what only the principal can read
		code = "KDC_ERR_PREAUTH_FAILED"
	case strings.Contains(err.Error(), "clock skew"):
		code = "KRB_AP_ERR_SKEW"
	}
	who := cmp.Or(c.Principal, "the client")
	why := ""
	switch code {
	case "KDC_ERR_C_PRINCIPAL_UNKNOWN":
		why = "the KDC does not know " + who
	case "KDC_ERR_S_PRINCIPAL_UNKNOWN":
		why = fmt.Sprintf("the KDC does not know the server as %s: name it in the list of servers as its principal does, "+
			"or set service, server_principal or canonicalize_hostname", server)
	case "KDC_ERR_PREAUTH_FAILED", "KRB_AP_ERR_BAD_INTEGRITY":
		why = fmt.Sprintf("%s does not hold the key that the KDC has for %s", cmp.Or(c.KeytabFile, c.CacheFile), who)
	case "KDC_ERR_ETYPE_NOSUPP":
		why = fmt.Sprintf("%s or %s has no key of AES at the KDC", who, server)
	case "KRB_AP_ERR_SKEW":
		why = "the clocks of this machine and of the KDC differ too much"
	case "KRB_AP_ERR_TKT_EXPIRED":
		why = "the ticket has ended: run kinit"
	default:
		why = fmt.Sprintf("no ticket for %s: %.300s", server, cmp.Or(code, err.Error()))
	}
	return fmt.Errorf("%w: %s", zkconn.ErrAuthFailed, why)
}
