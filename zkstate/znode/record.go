package znode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"muster/apply/history"
	"muster/resource"
)

// recordFormat is the number of the layout of everything below .muster, not only of the Record. It changes only if a
// muster that does not know the new layout would do harm.
const recordFormat = 1

// maxJSON is the maximum size of a JSON body, in bytes.
const maxJSON = 256 << 10

// ErrFormat means that a muster with another layout wrote the Record. Do not change the resource; use that version.
var ErrFormat = errors.New("record of another format")

// recordHead holds the fields that the Records of all kinds have. A Record is one JSON object: the format, the
// declaration under the name of its kind, these fields, and the others.
type recordHead struct {
	Stack      string         `json:"stack"`
	Home       string         `json:"home"`
	Generation string         `json:"generation"`
	State      resource.State `json:"state"`
	By         string         `json:"by,omitempty"`
	Applied    string         `json:"applied,omitempty"`
	Op         string         `json:"op"`
	Digest     string         `json:"digest"`
	ACL        []string       `json:"acl,omitempty"`
}

// headField is one field of recordHead by its name in JSON.
type headField struct {
	key string
	to  any
}

func (h *recordHead) fields() []headField {
	return []headField{
		{"stack", &h.Stack}, {"home", &h.Home}, {"generation", &h.Generation}, {"state", (*string)(&h.State)},
		{"by", &h.By}, {"applied", &h.Applied}, {"op", &h.Op}, {"digest", &h.Digest}, {"acl", &h.ACL},
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

// keyFormat is the key of the format.
const keyFormat = "format"

// EncodeRecord encodes a Record, with its Body unchanged and with all of Extra. Equal Records have equal bytes.
func EncodeRecord(r resource.Record) ([]byte, error) {
	if err := checkRecord(r); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	head, err := json.Marshal(recordHead{
		r.Stack, r.Home, r.Generation, r.State, r.By, r.Applied, r.Op, r.Digest, r.ACL,
	})
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	headFields := head[1 : len(head)-1] // without the braces
	body := fmt.Appendf(nil, "{%q:%d,%q:%s,%s",
		keyFormat, recordFormat, r.Declaration.Kind().Name, r.Body, headFields)
	for _, key := range slices.Sorted(maps.Keys(r.Extra)) {
		name, _ := json.Marshal(key) // a string always encodes
		body = fmt.Appendf(body, ",%s:%s", name, r.Extra[key])
	}
	body = append(body, '}')
	if len(body) > maxJSON {
		return nil, tooLarge("record", len(body))
	}
	return body, nil
}

// DecodeRecord decodes and checks the Record of a kind. DecodeRecordAt also checks its path.
func DecodeRecord(kind resource.Kind, data []byte) (resource.Record, error) {
	r, err := decodeRecord(kind, data)
	if err == nil {
		err = checkRecord(r)
	}
	switch {
	case errors.Is(err, ErrFormat):
		return resource.Record{}, err
	case err != nil:
		return resource.Record{}, fmt.Errorf("record: %w", err)
	}
	return r, nil
}

func decodeRecord(kind resource.Kind, data []byte) (resource.Record, error) {
	if err := checkJSON(data); err != nil {
		return resource.Record{}, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return resource.Record{}, err
	}
	if err := checkFormat(fields[keyFormat]); err != nil {
		return resource.Record{}, err
	}
	var head recordHead
	for _, f := range head.fields() {
		if fields[f.key] == nil {
			continue
		}
		if err := f.decode(fields[f.key]); err != nil {
			return resource.Record{}, fmt.Errorf("%s: %w", f.key, err)
		}
		delete(fields, f.key)
	}
	body := fields[kind.Name]
	if body == nil {
		return resource.Record{}, fmt.Errorf("it declares no %s", kind.Name)
	}
	d, err := kind.Decode(body, "")
	if err != nil {
		return resource.Record{}, fmt.Errorf("%s.%w", kind.Name, err)
	}
	delete(fields, keyFormat)
	delete(fields, kind.Name)
	r := resource.Record{
		Declaration: d, Stack: head.Stack, Home: head.Home, Generation: head.Generation, State: head.State, By: head.By,
		Applied: head.Applied, Op: head.Op, Digest: head.Digest, ACL: head.ACL, Body: body,
	}
	if len(fields) > 0 {
		r.Extra = fields
	}
	return r, nil
}

// checkFormat checks the value of the format. It comes first: in another layout the other fields may have other types.
func checkFormat(value json.RawMessage) error {
	var format *int
	if value != nil {
		if err := json.Unmarshal(value, &format); err != nil {
			return fmt.Errorf("%s: %w", keyFormat, err)
		}
	}
	switch {
	case format == nil:
		return errors.New("it has no format")
	case *format != recordFormat:
		return fmt.Errorf("%w: it has format %d, this muster knows %d", ErrFormat, *format, recordFormat)
	}
	return nil
}

// DecodeRecordAt is DecodeRecord for the resource at path. It refuses a Record with another path, so that a copied
// Record cannot lead to a write elsewhere.
func DecodeRecordAt(kind resource.Kind, path string, data []byte) (resource.Record, error) {
	r, err := DecodeRecord(kind, data)
	if err == nil && r.Declaration.ID().Path() != path {
		return resource.Record{}, fmt.Errorf("record: it belongs to %q", r.Declaration.ID().Path())
	}
	return r, err
}

// NamedGeneration is the generation that a Record names, also one of a kind or with fields that this muster does not
// know; empty if data is no such thing.
func NamedGeneration(data []byte) string {
	var head struct {
		Generation string `json:"generation"`
	}
	if checkJSON(data) != nil || json.Unmarshal(data, &head) != nil {
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
	if err := CheckToken(r.Generation); err != nil {
		return fmt.Errorf("generation: %w", err)
	}
	return nil
}

// encodeJSON encodes v, within maxJSON. what names it in errors.
func encodeJSON(what string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(data) > maxJSON {
		return nil, tooLarge(what, len(data))
	}
	return data, nil
}

func tooLarge(what string, size int) error {
	return fmt.Errorf("%s: %d bytes are more than the %d allowed", what, size, maxJSON)
}

// decodeJSON decodes one JSON object into v, if it is not larger than maxJSON. what names it in errors.
func decodeJSON(what string, data []byte, v any) error {
	err := checkJSON(data)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// checkJSON refuses a body that is empty, too large or not UTF-8.
func checkJSON(data []byte) error {
	switch {
	case len(data) == 0:
		return errors.New("it is empty")
	case len(data) > maxJSON:
		return fmt.Errorf("%d bytes are more than the %d allowed", len(data), maxJSON)
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
	// what names it in errors.
	what() string
}

// Encode checks a body and encodes it.
func Encode[T any, P body[T]](v T) ([]byte, error) {
	p := P(&v)
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.what(), err)
	}
	return encodeJSON(p.what(), v)
}

// Decode decodes a body and checks it. It ignores fields that it does not know.
func Decode[T any, P body[T]](data []byte) (T, error) {
	var v, none T
	p := P(&v)
	if err := decodeJSON(p.what(), data, p); err != nil {
		return none, err
	}
	if err := p.check(); err != nil {
		return none, fmt.Errorf("%s: %w", p.what(), err)
	}
	return v, nil
}

// DecodeAny is Decode of what may be empty: then it is nil.
func DecodeAny[T any, P body[T]](data []byte) (*T, error) {
	if len(data) == 0 {
		return nil, nil
	}
	v, err := Decode[T, P](data)
	if err != nil {
		return nil, err
	}
	return &v, nil
}

func (Present) what() string       { return "member" }
func (Seat) what() string          { return "seat" }
func (DutyTaken) what() string     { return "duty" }
func (Holder) what() string        { return "holder" }
func (Resignation) what() string   { return "resignation" }
func (Ask) what() string           { return "request" }
func (Journal) what() string       { return "journal" }
func (StepRecord) what() string    { return "step" }
func (Opening) what() string       { return "operation" }
func (QueueProcess) what() string  { return "process" }
func (QueueSeat) what() string     { return "seat" }
func (BatchManifest) what() string { return "batch" }
func (BatchEnd) what() string      { return "ended batch" }
func (Health) what() string        { return "health" }
func (StateTotal) what() string    { return "state" }
func (TickCursor) what() string    { return "cursor" }
func (TickRecord) what() string    { return "run" }
func (Claim) what() string         { return "claim" }
func (Round) what() string         { return "round" }
func (Index) what() string         { return "index of a stack" }
func (Mark) what() string          { return "mark" }
func (AskLog) what() string        { return "log of requests" }

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

// entryPrefix is that of the entries of a history. ZooKeeper appends ten digits.
const entryPrefix = "h-"

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

// EncodeEntry encodes an entry, its times in UTC and in whole seconds.
func EncodeEntry(e Entry) ([]byte, error) {
	if err := e.Check(); err != nil {
		return nil, fmt.Errorf("entry of a history: %w", err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // six bytes for each & of an address
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("entry of a history: %w", err)
	}
	body := bytes.TrimSpace(b.Bytes())
	if len(body) > history.MaxEntry {
		return nil, fmt.Errorf("entry of a history: %d bytes are more than the %d allowed", len(body), history.MaxEntry)
	}
	return body, nil
}

// DecodeEntry decodes an entry and checks it. It ignores fields that it does not know.
func DecodeEntry(data []byte) (Entry, error) {
	if len(data) > history.MaxEntry {
		return Entry{}, fmt.Errorf("entry of a history: %d bytes are more than the %d allowed",
			len(data), history.MaxEntry)
	}
	var e Entry
	if err := decodeJSON("entry of a history", data, &e); err != nil {
		return Entry{}, err
	}
	if err := e.Check(); err != nil {
		return Entry{}, fmt.Errorf("entry of a history: %w", err)
	}
	return e, nil
}
