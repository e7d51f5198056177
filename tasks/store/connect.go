package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource"
	"muster/resource/queue"
)

var (
	// ErrURL means that a URL of Redis cannot be used. Correct it; the error says how.
	ErrURL = errors.New("not a usable redis URL")
	// ErrHost means that credentials are set, but not for this host. Add it to MUSTER_REDIS_HOSTS if it may have them.
	ErrHost = errors.New("the credentials are not for this host")
	// ErrServer means that the server is not one that a queue may live on. Change the server; the error says what.
	ErrServer = errors.New("redis cannot hold a queue")
	// ErrReply means that a server answers what no Redis would: it is another program, or broken, or hostile. Look what
	// it is, or correct the address; or wait, if it is being repaired.
	ErrReply = errors.New("this Redis does not answer as a Redis does")
)

// dialTimeout ends one attempt at a connection.
const dialTimeout = 5 * time.Second

// Config says where a queue's Redis is, and who we are there.
type Config struct {
	URL string // as queue.ParseRedis reads it

	// Credentials are sent only to Hosts. A URL cannot hold them: who writes it could name another host.
	Username, Password string
	SentinelPassword   string
	Hosts              resource.Hosts // with sentinels also the hosts of the primary and its replicas

	TLS *tls.Config // nil is the system's certificates

	// Dial connects to host:port, without TLS; nil is TCP. A simulation connects to a model in memory.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// FromEnvironment is a Config with the credentials in MUSTER_REDIS_USERNAME, MUSTER_REDIS_PASSWORD or
// MUSTER_REDIS_PASSWORD_FILE, MUSTER_SENTINEL_PASSWORD, and the hosts in MUSTER_REDIS_HOSTS, separated by commas.
func FromEnvironment(redisURL string, getenv func(string) string) (Config, error) {
	c := Config{
		URL: redisURL, Username: getenv(queue.EnvUsername), Password: getenv(queue.EnvPassword),
		SentinelPassword: getenv(queue.EnvSentinelPassword),
	}
	if file := getenv(queue.EnvPasswordFile); file != "" {
		if c.Password != "" {
			return Config{}, fmt.Errorf("set %s or %s, not both", queue.EnvPassword, queue.EnvPasswordFile)
		}
		body, err := os.ReadFile(file)
		if err != nil {
			return Config{}, fmt.Errorf("%s: %w", queue.EnvPasswordFile, err)
		}
		c.Password = strings.TrimRight(string(body), "\r\n")
	}
	c.Hosts = resource.ParseHosts(getenv(queue.EnvHosts))
	return c, nil
}

// dial connects to a host, which must be one of Hosts if there are credentials. Only sound replies are read there.
func (c Config) dial(ctx context.Context, at queue.Redis, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	secret := c.Username != "" || c.Password != "" || c.SentinelPassword != ""
	if secret && !c.Hosts.Include(addr) {
		return nil, fmt.Errorf("redis at %s: %w; add %s to %s if it may have them", addr, ErrHost, host, queue.EnvHosts)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var conn net.Conn
	plain := &net.Dialer{}
	switch {
	case c.Dial != nil:
		conn, err = c.Dial(ctx, addr)
	case at.TLS:
		conn, err = (&tls.Dialer{NetDialer: plain, Config: c.TLS}).DialContext(ctx, "tcp", addr)
	default:
		conn, err = plain.DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, err
	}
	return soundly(conn), nil
}

// Connect returns a client that sends each command once and obeys contexts, after it has checked that the server is
// Redis 7 or newer, a primary, and evicts nothing. The caller closes the client. It does not wait for a server that
// does not answer.
func Connect(ctx context.Context, c Config) (*redis.Client, error) {
	at, err := queue.ParseRedis(c.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	redis.SetLogger(silent{})
	client := c.client(at)
	if err := check(ctx, client); err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("redis at %s: %w", strings.Join(at.Hosts, ","), err)
	}
	return client, nil
}

// silent is for the client library, which logs to standard error what it also returns. It has one logger for all.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func (c Config) client(at queue.Redis) *redis.Client {
	o := c.options(at)
	o.DB, o.Username, o.Password = at.Database, c.Username, c.Password
	if at.Master != "" {
		s := &sentinels{c: c, at: at}
		o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) }
		o.ConnMaxLifetime = maxUnasked
	}
	return redis.NewClient(o)
}

// options are those of every client.
func (c Config) options(at queue.Redis) *redis.Options {
	return &redis.Options{
		Addr:     strings.Join(at.Hosts, ","),
		Dialer:   func(ctx context.Context, _, addr string) (net.Conn, error) { return c.dial(ctx, at, addr) },
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
	}
}

// check asks the server whether a queue may live on it.
func check(ctx context.Context, client *redis.Client) error {
	reply, err := client.Do(ctx, "info", "server", "memory", "replication").Result()
	if err != nil {
		return strange(err)
	}
	var s shape
	info := map[string]string{}
	for line := range strings.SplitSeq(s.text(reply, maxLine), "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			info[name] = value
		}
	}
	if s.err == nil && info["redis_version"] == "" {
		s.wrong("it does not tell its version")
	}
	if s.err != nil {
		return s.err
	}
	return suits(info)
}

// suits reports why a queue may not live on a server with this INFO.
func suits(info map[string]string) error {
	version := info["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return fmt.Errorf("%w: it is version %q, and a queue needs 7 or newer", ErrServer, version)
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		return fmt.Errorf("%w: its maxmemory-policy is %q, which deletes tasks; set it to noeviction", ErrServer, policy)
	}
	if info["role"] != "master" {
		return fmt.Errorf("%w: it is a replica; name the primary, or the sentinels", ErrServer)
	}
	return nil
}
