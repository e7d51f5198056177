// Package planfile writes a plan into a file and reads it back, so that apply runs exactly the plan that was approved.
//
// It refuses a file that differs in any byte from what Encode writes. The package talks to no server. Its caller says
// which kinds a file may hold.
package planfile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf16"

	"muster/plan"
	"muster/resource"
)

// FormatVersion is the version of the plan files that Encode writes. Other readers should accept any minor version.
// muster itself writes to ZooKeeper what the file says, so it accepts only this one.
const FormatVersion = "1.0"

// MaxFile is the maximum size of a plan file, in bytes.
const MaxFile = 256 << 20

// Saved is a plan and everything else that apply needs when it has no configuration. It never holds a secret or an
// absolute local path.
type Saved struct {
	Created        time.Time         `json:"created"` // whole seconds, UTC
	MusterVersion  string            `json:"muster_version"`
	Servers        []string          `json:"servers,omitempty"`
	ACL            []string          `json:"acl,omitempty"` // of the znodes that apply creates; ids only
	SessionTimeout resource.Duration `json:"session_timeout,omitempty"`
	ConfigDigest   string            `json:"config_digest"`
	TLS            resource.TLS      `json:"tls,omitzero"`
	SASL           resource.SASL     `json:"sasl,omitzero"`
	Plan           plan.Plan         `json:"-"`
}

// The errors of Decode.
var (
	// ErrDamaged means that the file is cut short, edited, or no plan file at all. Make a new plan.
	ErrDamaged = errors.New("damaged plan file")
	// ErrVersion means that another version of muster wrote the file. Plan again, or apply with that version.
	ErrVersion = errors.New("plan file of another version")
)

// document is the JSON object of a plan file. Encode sorts the keys.
type document struct {
	FormatVersion string `json:"format_version"`
	Digest        string `json:"digest"` // SHA-256 of the file with noDigest in this place
	Saved
	plan.Plan
	Complete bool     `json:"complete"`
	Rows     []change `json:"resource_changes"`
}

var noDigest = strings.Repeat("0", 2*sha256.Size)

// Encode encodes s as CanonicalJSON with a newline at the end. The keys of resource_changes are Terraform's, so that
// tools for its plans can read it.
func Encode(kinds []resource.Kind, s Saved) ([]byte, error) {
	for _, file := range []string{s.TLS.CAFile, s.TLS.CertFile, s.TLS.KeyFile, s.SASL.KeytabFile, s.SASL.Krb5Conf} {
		if filepath.IsAbs(file) {
			return nil, fmt.Errorf("plan file: %s is an absolute path, which means nothing on another machine: "+
				"write it relative to the configuration", file)
		}
	}
	const typicalRow = 2 << 10 // bytes
	var b bytes.Buffer
	b.Grow(typicalRow * (1 + len(s.Plan.Rows)))
	if err := s.write(&b, kinds, noDigest); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b.Bytes())
	hex.Encode(b.Bytes()[digestAt(b.Bytes()):], sum[:])
	return b.Bytes(), nil
}

// digestAt is the offset of the digest's digits in a canonical file. JSON escapes newlines in strings, so the key with
// the newline before it stands in the file once.
func digestAt(file []byte) int {
	key := []byte("\n  \"digest\": \"")
	return bytes.Index(file, key) + len(key)
}

// write writes the canonical file row by row, so that only one row at a time is in memory twice.
func (s Saved) write(w io.Writer, kinds []resource.Kind, digest string) error {
	p := s.Plan
	s.Created = s.Created.UTC().Truncate(time.Second)
	frame, err := canonical(document{FormatVersion, digest, s, p, !p.Partial, []change{}}, "")
	if err != nil {
		return fmt.Errorf("plan file: %w", err)
	}
	head, tail, _ := bytes.Cut(frame, []byte("\n  \"resource_changes\": []"))
	out := bufio.NewWriter(w) // it keeps the first error
	fmt.Fprintf(out, "%s\n  \"resource_changes\": [", head)
	for i, r := range p.Rows {
		c, err := encodeRow(r, KindOf(r, kinds))
		if err != nil {
			return fmt.Errorf("plan file: row %s: %w", r.Address(), err)
		}
		row, err := canonical(c, "    ")
		if err != nil {
			return fmt.Errorf("plan file: row %s: %w", r.Address(), err)
		}
		if i > 0 {
			out.WriteString(",")
		}
		fmt.Fprintf(out, "\n    %s", row)
	}
	if len(p.Rows) > 0 {
		out.WriteString("\n  ")
	}
	fmt.Fprintf(out, "]%s\n", tail)
	return out.Flush()
}

// KindOf is the kind under which Encode writes a row. A row without a kind, such as that of a classic job that is not
// declared, gets the first of kinds.
func KindOf(r plan.Row, kinds []resource.Kind) resource.Kind {
	if kind := r.Kind(); kind.Name != "" || len(kinds) == 0 {
		return kind
	}
	return kinds[0]
}

// CanonicalJSON encodes v as JSON with sorted keys and two spaces of indentation. It escapes everything in strings that
// is not printable ASCII, so that no string can control a terminal.
func CanonicalJSON(v any) ([]byte, error) { return canonical(v, "") }

// canonical is CanonicalJSON with indent before every line except the first.
func canonical(v any, indent string) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // a zxid does not fit a float64
	var tree any    // its keys are sorted when it is encoded
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent(indent, "  ")
	if err := enc.Encode(tree); err != nil {
		return nil, err
	}
	return escaped(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// longEscapes writes the short escapes of encoding/json as those of all other characters.
var longEscapes = strings.NewReplacer(
	`\\`, `\\`, `\b`, `\u0008`, `\t`, `\u0009`, `\n`, `\u000a`, `\f`, `\u000c`, `\r`, `\u000d`)

// escaped is JSON with escapes for all characters of its strings that are not printable ASCII.
func escaped(body []byte) []byte {
	if !bytes.ContainsFunc(body, func(c rune) bool { return c >= 0x7f || c == '\\' }) {
		return body
	}
	b := make([]byte, 0, len(body))
	for _, c := range longEscapes.Replace(string(body)) {
		switch high, low := utf16.EncodeRune(c); {
		case c < 0x7f:
			b = append(b, byte(c))
		case c < 1<<16:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
	}
	return b
}
