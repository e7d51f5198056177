package planfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"muster/plan"
	"muster/resource"
)

// FormatVersion of the plan files that Encode writes. A reader other than muster accepts any minor version; muster
// itself, which writes to ZooKeeper by what the file says, accepts this one only.
const FormatVersion = "1.0"

// MaxFile is the size above which no plan file is read.
const MaxFile = 256 << 20

// Saved is a plan as a file keeps it, with all that is needed to apply it without the configuration. It never holds a
// secret or an absolute local path.
type Saved struct {
	Created        time.Time // whole seconds, UTC
	MusterVersion  string
	Servers        []string
	ACL            []string // of what apply creates; ids only
	SessionTimeout resource.Duration
	ConfigDigest   string
	TLS            resource.TLS
	Plan           plan.Plan
}

// Why Decode refuses a file. Nothing can be rescued from one: make a new plan.
var (
	// ErrDamaged means the file is not what plan wrote: cut short, edited, or not a plan file at all.
	ErrDamaged = errors.New("damaged plan file")
	// ErrVersion means another version of muster wrote the file. Plan again, or apply with that version.
	ErrVersion = errors.New("plan file of another version")
)

// document is the file. Encode sorts all keys, so the order here is for the reader.
type document struct {
	FormatVersion  string            `json:"format_version"`
	Digest         string            `json:"digest"` // SHA-256 of the file with noDigest in this place
	MusterVersion  string            `json:"muster_version"`
	Created        string            `json:"created"`
	ID             string            `json:"id"`
	Stack          string            `json:"stack"`
	Ensemble       string            `json:"ensemble"` // empty: the ensemble had no id yet
	Servers        []string          `json:"servers,omitempty"`
	Home           string            `json:"home,omitempty"`
	Roots          []string          `json:"roots,omitempty"`
	Unlisted       []string          `json:"unlisted,omitempty"`  // of roots: could not be listed
	Unindexed      string            `json:"unindexed,omitempty"` // why the index of stacks could not be read
	ACL            []string          `json:"acl,omitempty"`
	SessionTimeout resource.Duration `json:"session_timeout,omitempty"`
	TLS            *resource.TLS     `json:"tls,omitempty"`
	ConfigDigest   string            `json:"config_digest"`
	Complete       bool              `json:"complete"`
	Rows           []change          `json:"resource_changes"`
}

var noDigest = strings.Repeat("0", 2*sha256.Size)

// Encode writes s as canonical JSON: sorted keys, two spaces of indentation, a newline at the end. The keys of
// resource_changes are Terraform's, so that tools for its plans work on ours.
func Encode(kinds []resource.Kind, s Saved) ([]byte, error) {
	for _, file := range []string{s.TLS.CAFile, s.TLS.CertFile, s.TLS.KeyFile} {
		if filepath.IsAbs(file) {
			return nil, fmt.Errorf("plan file: %s is an absolute path, which means nothing on another machine: write it relative to the configuration", file)
		}
	}
	const usualRow = 2 << 10
	var b bytes.Buffer
	b.Grow(usualRow * (1 + len(s.Plan.Rows)))
	if err := s.write(&b, kinds, noDigest); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b.Bytes())
	hex.Encode(b.Bytes()[digestAt(b.Bytes()):], sum[:])
	return b.Bytes(), nil
}

// digestAt is where the digits of the digest start in a canonical file. JSON escapes newlines, so no text in the file can
// look like this key.
func digestAt(file []byte) int {
	key := []byte("\n  \"digest\": \"")
	return bytes.Index(file, key) + len(key)
}

// write writes the canonical file row by row, so that a plan of 10,000 jobs is in memory once.
func (s Saved) write(w io.Writer, kinds []resource.Kind, digest string) error {
	p := s.Plan
	doc := document{
		FormatVersion: FormatVersion, Digest: digest, MusterVersion: s.MusterVersion,
		Created: s.Created.UTC().Format(time.RFC3339), ID: p.ID, Stack: p.Stack, Ensemble: p.Ensemble,
		Servers: s.Servers, Home: p.Home, Roots: p.Roots, Unlisted: p.Unlisted, Unindexed: p.Unindexed, ACL: s.ACL, SessionTimeout: s.SessionTimeout,
		ConfigDigest: s.ConfigDigest, Complete: !p.Partial, Rows: []change{},
	}
	if s.TLS != (resource.TLS{}) {
		doc.TLS = &s.TLS
	}
	frame, err := canonical(doc, "")
	if err != nil {
		return fmt.Errorf("plan file: %w", err)
	}
	head, tail, _ := bytes.Cut(frame, []byte("\n  \"resource_changes\": []"))
	out := &sticky{w: w}
	out.write(head, []byte("\n  \"resource_changes\": ["))
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
			out.write([]byte(","))
		}
		out.write([]byte("\n    "), row)
	}
	if len(p.Rows) > 0 {
		out.write([]byte("\n  "))
	}
	out.write([]byte("]"), tail, []byte("\n"))
	return out.err
}

// KindOf is the kind that a row is written as. What tells none, such as a classic job that is not declared, is of the first.
func KindOf(r plan.Row, kinds []resource.Kind) resource.Kind {
	if kind := r.Kind(); kind.Name != "" || len(kinds) == 0 {
		return kind
	}
	return kinds[0]
}

// sticky remembers the first error of a writer and writes nothing after it.
type sticky struct {
	w   io.Writer
	err error
}

func (s *sticky) write(parts ...[]byte) {
	for _, p := range parts {
		if s.err == nil {
			_, s.err = s.w.Write(p)
		}
	}
}
