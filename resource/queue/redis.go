package queue

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"muster/resource"
)

// ErrCredentials means that the address of a Redis has a password or a user name in it. The error does not repeat the
// address. Whoever reports it must not show the address either.
var ErrCredentials = errors.New("in the address of a Redis can be read by everybody who may read ZooKeeper")

// The environment variables that hold what is not in the address.
const (
	EnvUsername         = "MUSTER_REDIS_USERNAME"
	EnvPassword         = "MUSTER_REDIS_PASSWORD"
	EnvPasswordFile     = "MUSTER_REDIS_PASSWORD_FILE"
	EnvSentinelPassword = "MUSTER_SENTINEL_PASSWORD"
	EnvHosts            = "MUSTER_REDIS_HOSTS" // the only hosts to which credentials are sent
)

// Limits of the address of a Redis.
const (
	maxAddress   = 2000 // bytes
	maxSentinels = 20
	maxDatabase  = 9999

	redisPort    = "6379"
	sentinelPort = "26379"

	plainScheme    = "redis"
	tlsScheme      = "rediss"
	sentinelScheme = "redis+sentinel"
)

// Redis says which Redis a queue uses.
type Redis struct {
	TLS bool
	// Hosts are host:port: the Redis itself, or its sentinels, sorted.
	Hosts    []string
	Master   string // by which name the sentinels know it; empty: there are none
	Database int
}

// ParseRedis reads the address of a Redis: redis://HOST[:PORT][/DATABASE], rediss:// likewise for TLS, or
// redis+sentinel://HOST[:PORT],…/MASTER[/DATABASE]. Errors of addresses with a password or a user name are
// ErrCredentials.
func ParseRedis(text string) (Redis, error) {
	if err := checkCredentials(text); err != nil {
		return Redis{}, err
	}
	scheme, rest, ok := strings.Cut(text, "://")
	switch {
	case len(text) > maxAddress:
		return Redis{}, fmt.Errorf("it has %d characters, more than the %d allowed", len(text), maxAddress)
	case !ok && text != "":
		return Redis{}, fmt.Errorf("%q has no scheme: write %q", text, plainScheme+"://"+text)
	case scheme != plainScheme && scheme != tlsScheme && scheme != sentinelScheme:
		return Redis{}, fmt.Errorf("%q is not the address of a Redis: write %q, %q for TLS, or %q", text,
			"redis://redis-1:6379/0", "rediss://redis-1:6380/0", "redis+sentinel://s-1:26379,s-2:26379/mymaster/0")
	}
	hosts, path, _ := strings.Cut(rest, "/")
	if scheme == sentinelScheme {
		return parseSentinels(hosts, path)
	}
	if strings.Contains(hosts, ",") {
		return Redis{}, fmt.Errorf("%q names several hosts: write one, or %s:// and their sentinels", text, sentinelScheme)
	}
	host, err := parseHost(hosts, redisPort)
	if err != nil {
		return Redis{}, err
	}
	database, err := parseDatabase(path)
	return Redis{TLS: scheme == tlsScheme, Hosts: []string{host}, Database: database}, err
}

func parseSentinels(hosts, path string) (Redis, error) {
	master, database, _ := strings.Cut(path, "/")
	if master == "" {
		return Redis{}, fmt.Errorf("it does not say by which name the sentinels know the Redis: write %q",
			sentinelScheme+"://"+hosts+"/mymaster")
	}
	if err := resource.CheckName("master", master); err != nil {
		return Redis{}, err
	}
	r := Redis{Master: master}
	for host := range strings.SplitSeq(hosts, ",") {
		host, err := parseHost(host, sentinelPort)
		if err != nil {
			return Redis{}, err
		}
		r.Hosts = append(r.Hosts, host)
	}
	slices.Sort(r.Hosts)
	if r.Hosts = slices.Compact(r.Hosts); len(r.Hosts) > maxSentinels {
		return Redis{}, fmt.Errorf("it names %d sentinels, more than the %d allowed", len(r.Hosts), maxSentinels)
	}
	var err error
	r.Database, err = parseDatabase(database)
	return r, err
}

// checkCredentials refuses an address that holds a password or a user name, or may do so: behind an @, in an option, or
// where a port should be.
func checkCredentials(text string) error {
	_, rest, ok := strings.Cut(text, "://")
	if !ok {
		rest = text
	}
	name, _, hasUser := strings.Cut(rest, "@")
	hosts, _, _ := strings.Cut(rest, "/")
	switch {
	case hasUser && !strings.Contains(name, ":"):
		return fmt.Errorf("a user name %w: write it without, and set %s", ErrCredentials, EnvUsername)
	case hasUser:
		return fmt.Errorf("a password %w: write it without, and set %s or %s", ErrCredentials, EnvPassword,
			EnvPasswordFile)
	case strings.ContainsAny(rest, "?#="), slices.ContainsFunc(strings.Split(hosts, ","), oddPort):
		return fmt.Errorf("what may be a password %w: write it without options, with a number as port, and set %s or %s",
			ErrCredentials, EnvPassword, EnvPasswordFile)
	}
	return nil
}

// oddPort reports whether the port of a host is not a number.
func oddPort(host string) bool {
	i := strings.LastIndexByte(host, ':')
	return i >= 0 && !strings.HasSuffix(host, "]") && strings.Trim(host[i+1:], "0123456789") != ""
}

// parseHost reads a host with or without a port, and returns it with one, in small letters.
func parseHost(text, port string) (string, error) {
	host, given, err := net.SplitHostPort(text)
	if err != nil {
		host, given = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), port
	}
	host = strings.ToLower(host)
	n, bad := strconv.Atoi(given)
	if bad != nil || n < 1 || n > 65535 || strconv.Itoa(n) != given {
		return "", fmt.Errorf("the port %q is not a number from 1 to 65535", given)
	}
	if _, err := netip.ParseAddr(host); err != nil && !isHostName(host) {
		return "", fmt.Errorf("the host %q is missing or malformed: write it as %q or %q", host, "redis-1:"+port,
			"[::1]:"+port)
	}
	return net.JoinHostPort(host, given), nil
}

func isHostName(s string) bool {
	return s != "" && len(s) <= 253 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
}

func parseDatabase(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxDatabase || strconv.Itoa(n) != text {
		return 0, fmt.Errorf("the database %q is not a number from 0 to %d", text, maxDatabase)
	}
	return n, nil
}

// String is the address in one spelling, with ports and the database.
func (r Redis) String() string {
	at := "://" + strings.Join(r.Hosts, ",")
	switch {
	case r.Master != "":
		at = sentinelScheme + at + "/" + r.Master
	case r.TLS:
		at = tlsScheme + at
	default:
		at = plainScheme + at
	}
	return at + "/" + strconv.Itoa(r.Database)
}
