package resource

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that JSON and HCL write as text, in Go's format ("1m40s"). Two spellings of one duration
// are equal.
type Duration time.Duration

// MaxDuration is the maximum of every other duration in a declaration.
const MaxDuration = Duration(30 * 24 * time.Hour)

// Limits of a session timeout. A shorter session ends at every pause of the process; a longer one shows a dead member
// as live for more than a day.
const (
	MinSessionTimeout = Duration(100 * time.Millisecond)
	MaxSessionTimeout = Duration(24 * time.Hour)
)

// String drops the zero units that time.Duration prints: "2m", not "2m0s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write a number and a unit, such as 30s or 2m", text)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes, which JSON and HCL write as a whole number and a unit: "256KiB". Two spellings of one size
// are equal.
type Size int64

type sizeUnit struct {
	name  string
	bytes int64
}

// sizeUnits lists the units from the largest to the smallest.
func sizeUnits() []sizeUnit {
	return []sizeUnit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

// String uses the largest unit that divides the size: "1MiB", "1025B".
func (s Size) String() string {
	for _, u := range sizeUnits() {
		if int64(s)%u.bytes == 0 && (s != 0 || u.bytes == 1) {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return ""
}

func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a whole number and a unit.
func (s *Size) UnmarshalText(text []byte) error {
	for _, u := range sizeUnits() {
		number, ok := strings.CutSuffix(string(text), u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes || strconv.FormatInt(n, 10) != number {
			break
		}
		*s = Size(n * u.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size: write a whole number and a unit, such as 256KiB or 1GiB", text)
}

// Hosts are the hosts that may get credentials, each as host or host:port. Where a process connects to may have been
// written by somebody else, so whoever gives it credentials also says for which hosts they are.
type Hosts []string

// ParseHosts reads hosts that are separated by commas.
func ParseHosts(text string) Hosts {
	var all Hosts
	for host := range strings.SplitSeq(text, ",") {
		if host = strings.TrimSpace(host); host != "" {
			all = append(all, host)
		}
	}
	return all
}

// Include reports whether the server at an address may get the credentials. An address without a port is a host.
func (h Hosts) Include(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]")
	}
	return slices.ContainsFunc(h, func(one string) bool {
		return strings.EqualFold(one, host) || strings.EqualFold(one, addr)
	})
}

// TLS names the files of a TLS connection; a name is empty if there is no such file. In a configuration the names are
// relative to its directory, in a saved plan to the directory in which apply runs.
type TLS struct {
	CAFile   string `json:"ca_file,omitempty"`
	CertFile string `json:"cert_file,omitempty"`
	KeyFile  string `json:"key_file,omitempty"`
}

// SASL says how to log in to ZooKeeper. It holds no secret. File names are as in TLS.
type SASL struct {
	Mechanism  string `json:"mechanism,omitempty"` // SASLDigest or SASLKerberos; "" logs nobody in
	Username   string `json:"username,omitempty"`  // of SASLDigest
	Principal  string `json:"principal,omitempty"` // of SASLKerberos, like all that follow
	KeytabFile string `json:"keytab_file,omitempty"`
	Krb5Conf   string `json:"krb5_conf,omitempty"`

	Service              string `json:"service,omitempty"` // the server is SERVICE/HOST, or ServerPrincipal
	CanonicalizeHostname bool   `json:"canonicalize_hostname,omitempty"`
	ServerPrincipal      string `json:"server_principal,omitempty"`
}

// The mechanisms.
const (
	SASLDigest   = "DIGEST-MD5"
	SASLKerberos = "GSSAPI"
)

// Texts are the arguments that are texts, by their names.
func (s *SASL) Texts() map[string]*string {
	return map[string]*string{
		"mechanism": &s.Mechanism, "username": &s.Username, "principal": &s.Principal, "keytab_file": &s.KeytabFile,
		"krb5_conf": &s.Krb5Conf, "service": &s.Service, "server_principal": &s.ServerPrincipal,
	}
}

// Problem says what is wrong, and what to do; both are empty if nothing is.
func (s SASL) Problem() (why, help string) {
	kerberos := s
	kerberos.Mechanism, kerberos.Username = "", ""
	switch {
	case s.Mechanism == "":
		return "it names no mechanism", `add: mechanism = "DIGEST-MD5" or "GSSAPI"`
	case s.Mechanism != SASLDigest && s.Mechanism != SASLKerberos:
		return fmt.Sprintf("there is no mechanism %q", s.Mechanism), "DIGEST-MD5 and GSSAPI are known"
	case s.Mechanism == SASLDigest && s.Username == "":
		return "DIGEST-MD5 needs a username", "give it; MUSTER_SASL_PASSWORD takes the password"
	case s.Mechanism == SASLDigest && kerberos != SASL{}:
		return "DIGEST-MD5 takes a username only", "remove what is for GSSAPI"
	case s.Mechanism == SASLKerberos && s.Username != "":
		return "GSSAPI takes a principal, no username", "give principal in place of username"
	case s.KeytabFile != "" && !strings.Contains(s.Principal, "@"):
		return "a keytab needs a principal with its realm", `such as principal = "muster@EXAMPLE"`
	case s.ServerPrincipal != "" && s.Service != "":
		return "server_principal is the whole principal of the servers", "remove service"
	}
	return "", ""
}

// Codes are exit codes, ascending and each once.
type Codes []int

// String is "2, 17", or "none".
func (c Codes) String() string {
	if len(c) == 0 {
		return noCodes
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(c)), " ", ", "), "[]")
}

const noCodes = "none"

// UnmarshalText reads what String writes. In JSON and HCL they are a list of numbers.
func (c *Codes) UnmarshalText(text []byte) error {
	if *c = (Codes)(nil); string(text) == noCodes {
		return nil
	}
	for _, one := range strings.Split(string(text), ", ") {
		code, err := strconv.Atoi(one)
		if err != nil {
			return fmt.Errorf("%q is not a list of exit codes", text)
		}
		*c = append(*c, code)
	}
	return nil
}

// UnmarshalJSON reads a list of numbers: a type that reads texts would take a text.
func (c *Codes) UnmarshalJSON(body []byte) error { return json.Unmarshal(body, (*[]int)(c)) }

func (c Codes) check(least, most int64) error {
	for i, code := range c {
		if int64(code) < least || int64(code) > most || i > 0 && c[i-1] >= code {
			return fmt.Errorf("%s are not exit codes from %d to %d, ascending and each once", c, least, most)
		}
	}
	return nil
}
