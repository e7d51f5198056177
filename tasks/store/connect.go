package store

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource"
	"muster/resource/queue"
	"muster/text"
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
		return nil, fmt.Errorf("%w; add %s to %s if it may have them", ErrHost, host, queue.EnvHosts)
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

// maxUnasked is how long a connection is used before the sentinels are asked again, which the next one does. A primary
// that becomes a replica closes its connections, so that matters only for one that the sentinels cannot reach.
const maxUnasked = 30 * time.Second

// askTimeout is how long one sentinel may take.
const askTimeout = 2 * time.Second

// sentinels finds the primary that sentinels name. The client library has that too, but what a sentinel says could end
// the process there.
type sentinels struct {
	c    Config
	at   queue.Redis
	next atomic.Int64 // which of them is asked first
}

// dial connects to the primary that the first sentinel names which answers.
func (s *sentinels) dial(ctx context.Context) (net.Conn, error) {
	var why []error
	for range s.at.Hosts {
		at := s.next.Load()
		sentinel := s.at.Hosts[int(at)%len(s.at.Hosts)]
		addr, err := s.ask(ctx, sentinel)
		if err == nil {
			return s.c.dial(ctx, s.at, addr)
		}
		s.next.CompareAndSwap(at, at+1)
		why = append(why, fmt.Errorf("sentinel %s: %w", sentinel, err))
	}
	return nil, errors.Join(why...)
}

// ask asks a sentinel for the address of the primary.
func (s *sentinels) ask(ctx context.Context, sentinel string) (string, error) {
	o := s.c.options(s.at)
	o.Addr, o.Password = sentinel, s.c.SentinelPassword
	client := redis.NewClient(o)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := client.Do(ctx, "sentinel", "get-master-addr-by-name", s.at.Master).Result()
	if errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("it does not know %s", s.at.Master)
	}
	if err != nil {
		return "", strange(err)
	}
	var is shape
	l := is.list(reply, 2, 2)
	addr := net.JoinHostPort(is.text(l[0], maxText), is.text(l[1], maxText))
	return addr, is.err
}

// What a server may answer to what was sent at once. The client library makes room for what a reply announces, and has
// a stack frame for each array in another. The largest reply that muster asks for is a page, and each script and each
// pipeline ends its page at MaxBytes and one task or result more.
const (
	maxBulk  = int(queue.LargestTask) + 1<<20 // with what stands beside a task or a result
	maxReply = MaxBytes + maxBulk + 1<<20     // with the lines between the items
	maxItems = 1 << 18                        // of all arrays together
	maxDepth = 8
	maxLine  = 64 << 10
)

// sound is a connection to a Redis. Its Read ends with ErrReply at what is not RESP 2, or is more than a server may
// answer, and closes the connection.
type sound struct {
	net.Conn
	replies replies
	err     error
}

func soundly(c net.Conn) net.Conn {
	s := &sound{Conn: c}
	if raw, ok := c.(syscall.Conn); ok { // by which the client library sees that an idle connection was closed
		return struct {
			*sound
			syscall.Conn
		}{s, raw}
	}
	return s
}

func (s *sound) Read(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.Conn.Read(b)
	if bad := s.replies.pass(b[:n]); bad != nil {
		s.err = fmt.Errorf("%w", bad) // the client library unwraps the error of a new connection once
		_ = s.Conn.Close()
		return 0, s.err
	}
	return n, err
}

// Write begins a request: no reply to it is read before it is written.
func (s *sound) Write(b []byte) (int, error) {
	s.replies.bytes, s.replies.items = 0, 0
	return s.Conn.Write(b)
}

// replies follows replies as they come, in parts of any size.
type replies struct {
	open []int  // of each array that has not ended, the outermost first: how many items are to come
	line []byte // what has come of a line
	bulk int    // how much is to come of a bulk, with the two bytes after it

	bytes, items int // since a request
}

func (r *replies) pass(b []byte) error {
	for len(b) > 0 {
		switch {
		case r.bulk > 2:
			n := min(len(b), r.bulk-2)
			r.bulk, b = r.bulk-n, b[n:]
			continue
		case r.bulk > 0:
			if b[0] != "\r\n"[2-r.bulk] {
				return fmt.Errorf("%w: a text is longer than it says", ErrReply)
			}
			if r.bulk, b = r.bulk-1, b[1:]; r.bulk == 0 {
				r.ended()
			}
			continue
		}
		n := bytes.IndexByte(b, '\n') + 1
		line, whole := b[:n], n > 0
		if !whole {
			n, line = len(b), b
		}
		if b = b[n:]; len(r.line) > 0 || !whole {
			r.line = append(r.line, line...)
			line = r.line
		}
		if len(line) > maxLine {
			return fmt.Errorf("%w: a line of more than %d bytes", ErrReply, maxLine)
		}
		if !whole {
			return nil
		}
		r.line = r.line[:0]
		if err := r.next(line); err != nil {
			return err
		}
	}
	return nil
}

func (r *replies) next(line []byte) error {
	text, ends := bytes.CutSuffix(line, []byte("\r\n"))
	if !ends || len(text) == 0 {
		return fmt.Errorf("%w: it says %.40q", ErrReply, line)
	}
	n, err := 0, error(nil)
	switch text[0] {
	case ':':
		_, err = strconv.ParseInt(string(text[1:]), 10, 64)
	case '$', '*':
		n, err = strconv.Atoi(string(text[1:]))
	case '+', '-':
	default:
		err = ErrReply
	}
	if err != nil || n < -1 {
		return fmt.Errorf("%w: it says %.40q", ErrReply, line)
	}
	r.bytes += len(line)
	switch {
	case text[0] == '$' && n > maxBulk, text[0] == '$' && r.bytes+n > maxReply:
		return fmt.Errorf("%w: a text of %d bytes after %d of the reply", ErrReply, n, r.bytes)
	case r.bytes > maxReply:
		return fmt.Errorf("%w: a reply of more than %d bytes", ErrReply, maxReply)
	case text[0] == '*' && (n > maxItems || r.items+n > maxItems || len(r.open) == maxDepth):
		return fmt.Errorf("%w: an array of %d after %d others, in %d arrays", ErrReply, n, r.items, len(r.open))
	case text[0] == '*' && n > 0:
		r.items, r.open = r.items+n, append(r.open, n)
		return nil
	case text[0] == '$' && n >= 0:
		r.bytes, r.bulk = r.bytes+n, n+2
		return nil
	}
	r.ended()
	return nil
}

// ended notes that an item has ended, and each array with its last one.
func (r *replies) ended() {
	for i := len(r.open) - 1; i >= 0; i-- {
		if r.open[i]--; r.open[i] > 0 {
			return
		}
		r.open = r.open[:i]
	}
}

// strange makes ErrReply of an error with which the client library could not read a reply as that of its command. It
// has no error for that. No reply to what muster asks is nil, but of a sentinel and of a wait.
func strange(err error) error {
	unread := errors.Is(err, redis.Nil) || errors.As(err, new(*strconv.NumError))
	for _, words := range []string{"redis: can't parse ", "redis: got ", "redis: the length of ", "redis: invalid reply"} {
		unread = unread || strings.Contains(err.Error(), words)
	}
	if unread {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	return text.Plain(err)
}
