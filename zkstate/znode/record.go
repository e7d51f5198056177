package znode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/apply/history"
	"muster/resource"
)

// The format of a Record is the number of the layout of everything below .muster that belongs to its resource. It is
// the lowest that has all that is declared: see resource.Formatted.

// maxJSON is the maximum size of a JSON body, in bytes.
const maxJSON = 256 << 10

// ErrFormat means that a muster with another layout wrote the Record. Do not change the resource; use that version.
var ErrFormat = errors.New("record of another format")

// A Record is one JSON object: the format, the declaration under the name of its kind, the fields that the Records of
// all kinds have, and the others.

// headField is one field that the Records of all kinds have, by its name in JSON.
type headField struct {
	key string
	to  any
}

func headFields(r *resource.Record) []headField {
	return []headField{
		{"stack", &r.Stack}, {"home", &r.Home}, {"generation", &r.Generation}, {"state", (*string)(&r.State)},
		{"by", &r.By}, {"applied", &r.Applied}, {"op", &r.Op}, {"digest", &r.Digest}, {"acl", &r.ACL},
	}
}

// decode decodes a value that is valid JSON and valid UTF-8. Most are strings without escapes.
func (f headField) decode(value json.RawMessage) error {
	if text, ok := f.to.(*string); ok && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		*text = string(value[1 : len(value)-1])
		return nil
	}
	return json.Unmarshal(value, f.to)
}

const keyFormat = "format"

// EncodeRecord encodes a Record, with its Body unchanged and with all of Extra. Equal Records have equal bytes.
func EncodeRecord(r resource.Record) ([]byte, error) {
	if err := checkRecord(r); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	head, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	head = head[1 : len(head)-1] // without the braces
	body := fmt.Appendf(nil, "{%q:%d,%q:%s,%s",
		keyFormat, resource.FormatOf(r.Declaration), r.Declaration.Kind().Name, r.Body, head)
	for _, key := range slices.Sorted(maps.Keys(r.Extra)) {
		name, _ := json.Marshal(key) // a string always encodes
		body = fmt.Appendf(body, ",%s:%s", name, r.Extra[key])
	}
	body = append(body, '}')
	if len(body) > maxJSON {
		return nil, fmt.Errorf("record: %w", tooLargeError{len(body), maxJSON})
	}
	return body, nil
}

// DecodeRecord decodes and checks the Record of a kind. DecodeRecordAt also checks its path.
func DecodeRecord(kind resource.Kind, data []byte) (resource.Record, error) {
	var r resource.Record
	switch err := decodeRecord(kind, data, &r); {
	case errors.Is(err, ErrFormat):
		return resource.Record{}, err
	case err != nil:
		return resource.Record{}, fmt.Errorf("record: %w", err)
	}
	return r, nil
}

func decodeRecord(kind resource.Kind, data []byte, r *resource.Record) error {
	if err := checkJSON(data, maxJSON); err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return resource.PlainJSON(err)
	}
	format, err := readFormat(fields[keyFormat], max(1, kind.Formats))
	if err != nil {
		return err
	}
	for _, f := range headFields(r) {
		if fields[f.key] == nil {
			continue
		}
		if err := f.decode(fields[f.key]); err != nil {
			return fmt.Errorf("%s: %w", f.key, resource.PlainJSON(err))
		}
		delete(fields, f.key)
	}
	if r.Body = fields[kind.Name]; r.Body == nil {
		return fmt.Errorf("it declares no %s", kind.Name)
	}
	if r.Body[0] != '{' {
		return fmt.Errorf("%s is no JSON object", kind.Name)
	}
	if r.Declaration, err = kind.Decode(r.Body, ""); err != nil {
		return fmt.Errorf("%s.%w", kind.Name, err)
	}
	if needs := resource.FormatOf(r.Declaration); format != needs {
		return fmt.Errorf("%s: it is %d, and the %s needs %d", keyFormat, format, kind.Name, needs)
	}
	delete(fields, keyFormat)
	delete(fields, kind.Name)
	if len(fields) > 0 {
		r.Extra = fields
	}
	return checkRecord(*r)
}

// readFormat reads the value of the format, which is known up to this one. It comes first: in another layout the other
// fields may have other types.
func readFormat(value json.RawMessage, known int) (int, error) {
	var format *int
	if value != nil {
		if err := json.Unmarshal(value, &format); err != nil {
			return 0, fmt.Errorf("%s: %w", keyFormat, resource.PlainJSON(err))
		}
	}
	switch {
	case format == nil:
		return 0, errors.New("it has no format")
	case *format < 1 || *format > known:
		return 0, fmt.Errorf("%w: it has format %d, this muster knows %s", ErrFormat, *format, upTo(known))
	}
	return *format, nil
}

func upTo(known int) string {
	if known == 1 {
		return "1"
	}
	return fmt.Sprintf("1 to %d", known)
}

// UnreadableError says that the Record of the resource at Path cannot be read, and why.
type UnreadableError struct {
	Path, Record string // Record is its znode
	Err          error
}

func (e *UnreadableError) Error() string {
	if errors.Is(e.Err, ErrFormat) {
		return fmt.Sprintf("%s: %v", e.Record, e.Err)
	}
	return fmt.Sprintf("%s is damaged: %v", e.Record, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// DecodeRecordAt is DecodeRecord for the resource at path. It refuses a Record with another path, so that a copied
// Record cannot lead to a write elsewhere. The error is an UnreadableError.
func DecodeRecordAt(kind resource.Kind, path string, data []byte) (resource.Record, error) {
	r, err := DecodeRecord(kind, data)
	if err == nil && r.Declaration.ID().Path() != path {
		err = fmt.Errorf("record: it belongs to %q", r.Declaration.ID().Path())
	}
	if err != nil {
		i := strings.LastIndexByte(path, '/')
		return resource.Record{}, &UnreadableError{path, Record(kind.Name, path[:max(i, 0)], base(path)), err}
	}
	return r, nil
}

// NamedGeneration is the generation that a Record names, also one of a kind or with fields that this muster does not
// know; empty if data is no such thing.
func NamedGeneration(data []byte) string {
	var head struct {
		Generation string `json:"generation"`
	}
	if checkJSON(data, maxJSON) != nil || json.Unmarshal(data, &head) != nil {
		return ""
	}
	return head.Generation
}

// checkRecord returns an error that names the JSON field that is invalid.
func checkRecord(r resource.Record) error {
	switch {
	case r.Declaration == nil || r.Body == nil:
		return errors.New("it declares nothing")
	case r.Stack == "":
		return errors.New("stack: it is empty")
	case r.Home == "":
		return errors.New("home: it is empty")
	case r.State != resource.StateOpen && r.State != resource.StateTerminating:
		return fmt.Errorf("state: %q is neither %q nor %q", r.State, resource.StateOpen, resource.StateTerminating)
	}
	return resource.InField("generation", CheckToken(r.Generation))
}

type tooLargeError struct{ size, most int }

func (e tooLargeError) Error() string {
	return fmt.Sprintf("%d bytes are more than the %d allowed", e.size, e.most)
}

func checkJSON(data []byte, most int) error {
	switch {
	case len(data) == 0:
		return errors.New("it is empty")
	case len(data) > most:
		return tooLargeError{len(data), most}
	case !utf8.Valid(data):
		return errors.New("it is not UTF-8")
	}
	return nil
}

// body is what a znode holds as one JSON object: each has a type in this package. P is a pointer to that type.
type body[T any] interface {
	*T
	// check says what is wrong with it. It may bring it into the form in which it is written.
	check() error
}

// nameOf is what errors call a body: its type in words.
func nameOf(body any) string {
	var name strings.Builder
	for i, r := range reflect.TypeOf(body).Elem().Name() {
		if i > 0 && unicode.IsUpper(r) {
			name.WriteByte(' ')
		}
		name.WriteRune(unicode.ToLower(r))
	}
	return name.String()
}

// limited is a body with a limit of its own, in bytes. That of the others is maxJSON.
type limited interface{ most() int }

func mostOf(body any) int {
	if l, ok := body.(limited); ok {
		return l.most()
	}
	return maxJSON
}

// Encode checks a body and encodes it.
func Encode[T any, P body[T]](v T) ([]byte, error) {
	p := P(&v)
	err := p.check()
	var b bytes.Buffer
	if err == nil {
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // six bytes for each & of an address
		err = enc.Encode(p)
	}
	data := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if most := mostOf(p); err == nil && len(data) > most {
		err = tooLargeError{len(data), most}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nameOf(p), err)
	}
	return data, nil
}

// Decode decodes a body and checks it. It ignores fields that it does not know.
func Decode[T any, P body[T]](data []byte) (T, error) {
	var v, none T
	p := P(&v)
	err := checkJSON(data, mostOf(p))
	if err == nil {
		if err = json.Unmarshal(data, p); err != nil {
			err = resource.PlainJSON(err)
		}
	}
	if err == nil {
		err = p.check()
	}
	if err != nil {
		return none, fmt.Errorf("%s: %w", nameOf(p), err)
	}
	return v, nil
}

// DecodeOrZero is Decode of what may be empty: then it is the zero T.
func DecodeOrZero[T any, P body[T]](data []byte) (zero T, _ error) {
	if len(data) == 0 {
		return zero, nil
	}
	return Decode[T, P](data)
}

// required refuses a body whose field is empty. It takes names and values in turn.
func required(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			return fmt.Errorf("it has no %s", pairs[i])
		}
	}
	return nil
}

func checkSorted(field string, names []string) error {
	for i, name := range names {
		if name == "" || i > 0 && names[i-1] >= name {
			return fmt.Errorf("%s: %q is not sorted, or twice there", field, names)
		}
	}
	return nil
}

// Index is the body of a stack's znode. It lists every root in which the stack owns something, or once did, so that
// muster always finds all of it.
type Index struct {
	Roots []string `json:"roots"` // sorted
}

func (i *Index) check() error {
	slices.Sort(i.Roots)
	i.Roots = append([]string{}, slices.Compact(i.Roots)...)
	for _, root := range i.Roots {
		if err := resource.CheckRoot(root); err != nil {
			return err
		}
	}
	return nil
}

// Mark says who does what. It is the body of a place in the queue for an apply lock, and of an applied plan. Only
// people read it, except Op.
type Mark struct {
	Who   string    `json:"who"`            // user@host
	What  string    `json:"what"`           // the command
	Since time.Time `json:"since"`          // by the clock of Who
	Plan  string    `json:"plan,omitempty"` // id of the saved plan, if there is one
	Op    string    `json:"op,omitempty"`   // random: after a lost reply, the writer recognises its own mark
	// Actor is who asked for it, and URL the run of the pipeline, as in the history.
	Actor string `json:"actor,omitempty"`
	URL   string `json:"url,omitempty"`
}

// String says who holds the lock, since when and for what.
func (m Mark) String() string {
	return fmt.Sprintf("%s holds it since %s (%s)%s", m.Name(), m.Since.Format(time.RFC3339), m.What, m.Link())
}

// Name is who asked for it, and the process that does it, if that is somebody else: "ann (runner@build)".
func (m Mark) Name() string {
	if m.Actor == "" || m.Actor == m.Who {
		return m.Who
	}
	return m.Actor + " (" + m.Who + ")"
}

// Link is the address of the run after a comma, or nothing.
func (m Mark) Link() string {
	if m.URL == "" {
		return ""
	}
	return ", " + m.URL
}

// check cuts its time to whole seconds.
func (m *Mark) check() error {
	m.Since, m.URL = m.Since.UTC().Truncate(time.Second), history.CleanURL(m.URL)
	if m.Who == "" {
		return errors.New("it does not say who")
	}
	return nil
}

// Entry is the body of an entry in the history of a stack.
type Entry struct {
	// Op is random: after a lost reply, the writer recognises its own entry.
	Op string `json:"op"`
	history.Entry
}

// History is the folder of a stack's history.
func History(home, stack string) string { return resource.Join(Stack(home, stack), "history") }

// NewEntry is the path of the sequential znode that takes the next entry.
func NewEntry(home, stack string) string { return resource.Join(History(home, stack), entryPrefix) }

// EntryNumber reads the number from the name or path of an entry. Later entries have larger numbers.
func EntryNumber(name string) (int, error) { return number(name, entryPrefix) }

func (e Entry) check() error { return e.Check() }

func (Entry) most() int { return history.MaxEntry }
