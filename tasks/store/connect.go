package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrURL means that a URL of Redis cannot be used. Correct it; the error says how.
	ErrURL = errors.New("not a usable redis URL")
	// ErrHost means that credentials are set, but not for this host. Add it to MUSTER_REDIS_HOSTS if it may have them.
	ErrHost = errors.New("the credentials are not for this host")
	// ErrServer means that the server is not one that a queue may live on. Change the server; the error says what.
	ErrServer = errors.New("redis cannot hold a queue")
)

// dialTimeout ends one attempt at a connection.
const dialTimeout = 5 * time.Second

// Config says where a queue's Redis is, and who we are there.
type Config struct {
	// URL is redis://host:port/db, or redis+sentinel://host:port,host:port/name/db with the sentinels' hosts and what
	// they call the primary; rediss and rediss+sentinel with TLS. The port is 6379, or 26379 of a sentinel; db is 0.
	URL string

	// Credentials are sent only to Hosts. A URL cannot hold them: who writes it could name another host.
	Username, Password string
	SentinelPassword   string
	Hosts              []string // host, or host:port; with sentinels also the hosts of the primary and its replicas

	TLS *tls.Config // nil is the system's certificates
}

// FromEnvironment is a Config with the credentials in MUSTER_REDIS_USERNAME, MUSTER_REDIS_PASSWORD or
// MUSTER_REDIS_PASSWORD_FILE, MUSTER_SENTINEL_PASSWORD, and the hosts in MUSTER_REDIS_HOSTS, separated by commas.
func FromEnvironment(redisURL string, getenv func(string) string) (Config, error) {
	c := Config{
		URL: redisURL, Username: getenv("MUSTER_REDIS_USERNAME"), Password: getenv("MUSTER_REDIS_PASSWORD"),
		SentinelPassword: getenv("MUSTER_SENTINEL_PASSWORD"),
	}
	if file := getenv("MUSTER_REDIS_PASSWORD_FILE"); file != "" {
		if c.Password != "" {
			return Config{}, errors.New("set MUSTER_REDIS_PASSWORD or MUSTER_REDIS_PASSWORD_FILE, not both")
		}
		body, err := os.ReadFile(file)
		if err != nil {
			return Config{}, fmt.Errorf("MUSTER_REDIS_PASSWORD_FILE: %w", err)
		}
		c.Password = strings.TrimRight(string(body), "\r\n")
	}
	for host := range strings.SplitSeq(getenv("MUSTER_REDIS_HOSTS"), ",") {
		if host = strings.TrimSpace(host); host != "" {
			c.Hosts = append(c.Hosts, host)
		}
	}
	return c, nil
}

// place is what a URL says.
type place struct {
	addrs  []string
	master string // what sentinels call the primary; "" without sentinels
	db     int
	tls    bool
}

func parseURL(text string) (place, error) {
	fail := func(format string, args ...any) (place, error) {
		return place{}, fmt.Errorf("%w: %s", ErrURL, fmt.Sprintf(format, args...))
	}
	u, err := splitURL(text)
	if err != nil {
		return fail("want redis://host:port/db") // without the text: it may hold a password
	}
	switch {
	case u.password:
		return fail("it holds a user or a password; set MUSTER_REDIS_USERNAME and MUSTER_REDIS_PASSWORD instead")
	case u.rest != "":
		return fail("it has options after %q", u.rest[:1])
	}
	scheme, sentinel := strings.CutSuffix(u.scheme, "+sentinel")
	if scheme != "redis" && scheme != "rediss" {
		return fail("the scheme %q is not redis, rediss, redis+sentinel or rediss+sentinel", u.scheme)
	}
	p := place{tls: scheme == "rediss"}
	port, path := "6379", strings.Split(strings.Trim(u.path, "/"), "/")
	if sentinel {
		if port = "26379"; path[0] == "" {
			return fail("it does not name the primary: redis+sentinel://host:port,host:port/name/db")
		}
		p.master, path = path[0], path[1:]
	}
	if len(path) > 1 {
		return fail("the path %q is not a database", u.path)
	}
	if len(path) == 1 && path[0] != "" {
		if p.db, err = strconv.Atoi(path[0]); err != nil || p.db < 0 {
			return fail("the database %q is not a number", path[0])
		}
	}
	for host := range strings.SplitSeq(u.hosts, ",") {
		addr, err := hostPort(host, port)
		if err != nil {
			return fail("the host %q cannot be read", host)
		}
		p.addrs = append(p.addrs, addr)
	}
	if !sentinel && len(p.addrs) > 1 {
		return fail("it names %d hosts; only redis+sentinel takes several", len(p.addrs))
	}
	return p, nil
}

// parts are the parts of a URL. Package net/url does not accept several hosts with ports.
type parts struct {
	scheme, hosts, path, rest string
	password                  bool
}

func splitURL(text string) (parts, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme == "" {
		return parts{}, ErrURL
	}
	p := parts{scheme: scheme, password: strings.Contains(rest, "@")}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest, p.rest = rest[:i], rest[i:]
	}
	p.hosts, p.path, _ = strings.Cut(rest, "/")
	if p.hosts == "" {
		return parts{}, ErrURL
	}
	return p, nil
}

func hostPort(host, port string) (string, error) {
	u, err := url.Parse("redis://" + host)
	if err != nil || u.Hostname() == "" {
		return "", ErrURL
	}
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// dial connects to a host, which must be one of Hosts if there are credentials.
func (c Config) dial(withTLS bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	secret := c.Username != "" || c.Password != "" || c.SentinelPassword != ""
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		if secret && !slices.Contains(c.Hosts, host) && !slices.Contains(c.Hosts, addr) {
			return nil, fmt.Errorf("redis at %s: %w; add %s to MUSTER_REDIS_HOSTS if it may have them", addr, ErrHost, host)
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		plain := &net.Dialer{}
		if withTLS {
			return (&tls.Dialer{NetDialer: plain, Config: c.TLS}).DialContext(ctx, network, addr)
		}
		return plain.DialContext(ctx, network, addr)
	}
}

// Connect returns a client that sends each command once and obeys contexts, after it has checked that the server is
// Redis 7 or newer, a primary, and evicts nothing. The caller closes the client. It does not wait for a server that
// does not answer.
func Connect(ctx context.Context, c Config) (*redis.Client, error) {
	p, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(silent{})
	client := c.client(p)
	if err := check(ctx, client); err != nil {
		client.Close()
		return nil, fmt.Errorf("redis at %s: %w", strings.Join(p.addrs, ","), err)
	}
	return client, nil
}

// silent is for the client library, which logs to standard error what it also returns. It has one logger for all.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func (c Config) client(p place) *redis.Client {
	if p.master != "" {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: p.master, SentinelAddrs: p.addrs, DB: p.db, Dialer: c.dial(p.tls),
			Username: c.Username, Password: c.Password, SentinelPassword: c.SentinelPassword,
			Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: p.addrs[0], DB: p.db, Dialer: c.dial(p.tls), Username: c.Username, Password: c.Password,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
	})
}

// check asks the server whether a queue may live on it.
func check(ctx context.Context, client *redis.Client) error {
	info, err := client.InfoMap(ctx, "server", "memory", "replication").Result()
	if err != nil {
		return err
	}
	return suits(info)
}

// suits reports why a queue may not live on a server with this INFO.
func suits(info map[string]map[string]string) error {
	version := info["Server"]["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return fmt.Errorf("%w: it is version %q, and a queue needs 7 or newer", ErrServer, version)
	}
	if policy := info["Memory"]["maxmemory_policy"]; policy != "noeviction" {
		return fmt.Errorf("%w: its maxmemory-policy is %q, which deletes tasks; set it to noeviction", ErrServer, policy)
	}
	if role := info["Replication"]["role"]; role != "master" {
		return fmt.Errorf("%w: it is a replica; name the primary, or the sentinels", ErrServer)
	}
	return nil
}
