package planfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"muster/plan"
	"muster/resource"
)

// Decode reads a file that Encode wrote. It accepts exactly the bytes that Encode writes for the result. Every other
// file is ErrDamaged or ErrVersion, with a sentence that says what is wrong. The digest finds accidents and careless
// edits; it does not prove who wrote the file.
func Decode(kinds []resource.Kind, file []byte) (Saved, error) {
	if len(file) > MaxFile {
		return Saved{}, damaged("it has %d bytes; a plan file has at most %d", len(file), MaxFile)
	}
	var version struct {
		FormatVersion *string   `json:"format_version"`
		Rows          textBytes `json:"resource_changes"`
	}
	if err := json.Unmarshal(file, &version); err != nil {
		return Saved{}, syntaxError(file, err)
	}
	switch v := version.FormatVersion; {
	case v == nil:
		return Saved{}, damaged("it has no format_version, so it is not a plan of muster")
	case *v != FormatVersion:
		return Saved{}, fmt.Errorf("%w: its format_version is %.20q; this muster reads %q",
			ErrVersion, *v, FormatVersion)
	}
	if frame := len(file) - int(version.Rows); frame > maxFrame {
		return Saved{}, damaged("it has %d bytes besides its rows; a plan file has at most %d", frame, maxFrame)
	}
	s, err := decode(kinds, file)
	if err == nil {
		return s, nil
	}
	// A key that stands twice explains the file best, whatever else is wrong with it.
	if key := duplicateKey(file[:min(len(file), maxFrame)]); key != "" {
		return Saved{}, damaged("it holds the key %.80q twice in one object", key)
	}
	return Saved{}, err
}

func decode(kinds []resource.Kind, file []byte) (Saved, error) {
	dec := json.NewDecoder(bytes.NewReader(file))
	dec.DisallowUnknownFields()
	var doc document
	if err := dec.Decode(&doc); err != nil {
		return Saved{}, jsonError(err)
	}
	created, err := time.Parse(time.RFC3339, doc.Created)
	if err != nil {
		return Saved{}, damaged("created is %.40q, which is not a time such as 2006-01-02T15:04:05Z", doc.Created)
	}
	s := Saved{
		Created: created.UTC(), MusterVersion: doc.MusterVersion, Servers: doc.Servers, ACL: doc.ACL,
		SessionTimeout: doc.SessionTimeout, ConfigDigest: doc.ConfigDigest,
		Plan: plan.Plan{
			ID: doc.ID, Stack: doc.Stack, Home: doc.Home, Ensemble: doc.Ensemble, Roots: doc.Roots,
			Unlisted: doc.Unlisted, Unindexed: doc.Unindexed, Partial: !doc.Complete,
		},
	}
	if doc.TLS != nil {
		s.TLS = *doc.TLS
	}
	if err := s.check(); err != nil {
		return Saved{}, damaged("%w", err)
	}
	if s.Plan.Rows, err = rows(kinds, doc); err != nil {
		return Saved{}, err
	}
	if err := doc.checkDigest(file); err != nil {
		return Saved{}, err
	}
	same := &comparer{rest: file}
	if err := s.write(same, kinds, doc.Digest); err != nil || len(same.rest) > 0 {
		return Saved{}, damaged("its text is not as plan wrote it (a key was added, left out, moved or formatted anew)")
	}
	return s, nil
}

// check refuses values outside the rows that are invalid. An apply with an invalid name could change znodes that are
// not muster's.
func (s Saved) check() error {
	const token = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	if id := s.Plan.ID; id == "" || len(id) > 64 || strings.Trim(id, token) != "" {
		return fmt.Errorf("id: %.80q is not 1 to 64 letters, digits, '_' and '-'", id)
	}
	if err := resource.CheckName("stack", s.Plan.Stack); err != nil {
		return fmt.Errorf("stack: %w", err)
	}
	if s.Plan.Home != "" {
		if err := resource.CheckHome(s.Plan.Home); err != nil {
			return fmt.Errorf("home: %w", err)
		}
	}
	for _, root := range slices.Concat(s.Plan.Roots, s.Plan.Unlisted) {
		if err := resource.CheckRoot(root); err != nil {
			return fmt.Errorf("roots: %w", err)
		}
	}
	if t := s.SessionTimeout; t != 0 && (t < resource.MinSessionTimeout || t > resource.MaxSessionTimeout) {
		return fmt.Errorf("session_timeout: %s is not between %s and %s",
			t, resource.MinSessionTimeout, resource.MaxSessionTimeout)
	}
	return nil
}

// rows decodes and checks every row. The rows must have the order of a plan and different paths.
func rows(kinds []resource.Kind, doc document) ([]plan.Row, error) {
	w := plan.Want{Stack: doc.Stack, Home: doc.Home}
	var rs []plan.Row
	paths := map[string]bool{}
	file := &rowReader{rest: doc.Rows}
	dec := json.NewDecoder(file)
	file.row = dec
	if first, err := dec.Token(); err != nil || first != json.Delim('[') {
		return nil, damaged("resource_changes has the wrong type")
	}
	for i := 0; dec.More(); i++ {
		c, err := nextRow(dec)
		if err != nil {
			return nil, err
		}
		r, err := c.row(kinds)
		if err == nil {
			kind, _ := kindNamed(kinds, c.Type) // c.row found it
			err = c.check(r, kind, w)
		}
		if isJSONError(err) {
			return nil, jsonError(err)
		}
		if err != nil {
			return nil, damaged("row %.200q: %w", c.Address, err)
		}
		if paths[r.Path] {
			return nil, damaged("two rows have the path %.200q", r.Path)
		}
		paths[r.Path] = true
		if i > 0 && plan.CompareRows(rs[i-1], r) > 0 {
			return nil, damaged("row %.200q is out of order", c.Address)
		}
		rs = append(rs, r)
	}
	return rs, nil
}

// The maximum size of a row, and of a file without its rows, in bytes. The largest rows are those of a job with 20,000
// live workers.
const (
	maxRow   = 8 << 20
	maxFrame = 4 << 20
)

// textBytes is how many bytes a JSON value has.
type textBytes int

func (n *textBytes) UnmarshalJSON(text []byte) error {
	*n = textBytes(len(text))
	return nil
}

// rowReader gives the decoder of rows no more than it needs for one row, and fails before a row is too large. So no
// more than a row is copied.
type rowReader struct {
	rest []byte
	read int64
	row  *json.Decoder
}

func (r *rowReader) Read(p []byte) (int, error) {
	if r.read-r.row.InputOffset() > maxRow {
		return 0, fmt.Errorf("a row has more than %d bytes", maxRow)
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest, r.read = r.rest[n:], r.read+int64(n)
	return n, nil
}

// nextRow decodes a row.
func nextRow(dec *json.Decoder) (change, error) {
	var text json.RawMessage
	if err := dec.Decode(&text); err != nil {
		return change{}, jsonError(err)
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	var c change
	if err := strict.Decode(&c); err != nil {
		return change{}, jsonError(err)
	}
	return c, nil
}

// checkDigest compares the digest with the file. It refuses a file with another layout than Encode's.
func (d document) checkDigest(file []byte) error {
	at := digestAt(file)
	if at+len(noDigest) > len(file) || string(file[at:at+len(noDigest)]) != d.Digest {
		return damaged("its digest is not where plan wrote it: the file was formatted anew or edited")
	}
	sum := sha256.New()
	sum.Write(file[:at])
	sum.Write([]byte(noDigest))
	sum.Write(file[at+len(noDigest):])
	if hex.EncodeToString(sum.Sum(nil)) != d.Digest {
		return damaged("its digest does not match its content: the file was edited or damaged after plan wrote it")
	}
	return nil
}

// comparer is a writer that fails if it gets other bytes than those of rest.
type comparer struct{ rest []byte }

func (c *comparer) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(c.rest, p) {
		return 0, ErrDamaged
	}
	c.rest = c.rest[len(p):]
	return len(p), nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}

// syntaxError explains why file is not one JSON object.
func syntaxError(file []byte, err error) error {
	var at *json.SyntaxError
	if !errors.As(err, &at) {
		return jsonError(err)
	}
	dec := json.NewDecoder(bytes.NewReader(file))
	var first json.RawMessage
	switch first := dec.Decode(&first); {
	case len(bytes.TrimSpace(file)) == 0:
		return damaged("it is empty")
	case first == nil:
		return damaged("something follows the end of the plan, at byte %d", dec.InputOffset()+1)
	case errors.Is(first, io.ErrUnexpectedEOF):
		return damaged("it ends in the middle: it was cut short")
	}
	return damaged("it is not JSON: %v, at byte %d", at, at.Offset)
}

// isJSONError reports whether err is encoding/json's error about an unknown key or a wrong type.
func isJSONError(err error) bool {
	return err != nil &&
		(errors.As(err, new(*json.UnmarshalTypeError)) || strings.HasPrefix(err.Error(), "json: unknown field "))
}

// jsonError explains why valid JSON is not a plan file.
func jsonError(err error) error {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		if mismatch.Field == "" {
			return damaged("it holds a JSON %s, not a plan", mismatch.Value)
		}
		return damaged("%s has the wrong type: a JSON %s", mismatch.Field, mismatch.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return damaged("it holds the unknown key %s", name)
	}
	return damaged("%w", err)
}

// duplicateKey finds a key that stands twice in one object of the start of valid JSON, in any case of its letters; ""
// if there is none.
func duplicateKey(file []byte) string {
	dec := json.NewDecoder(bytes.NewReader(file))
	dec.UseNumber()
	type level struct {
		keys  map[string]bool // nil: an array
		value bool            // the next string is a value
	}
	var stack []level
	for {
		token, err := dec.Token()
		if err != nil {
			return ""
		}
		top := len(stack) - 1
		if key, ok := token.(string); ok && top >= 0 && stack[top].keys != nil && !stack[top].value {
			if stack[top].keys[strings.ToLower(key)] {
				return key
			}
			stack[top].keys[strings.ToLower(key)] = true
			stack[top].value = true
			continue
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			stack = stack[:top]
			continue
		}
		if top >= 0 {
			stack[top].value = false
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, level{keys: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, level{})
		}
	}
}
