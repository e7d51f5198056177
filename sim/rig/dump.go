package rig

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/dev/fault"
	"muster/resource"
	"muster/zkstate/zkconn"
)

// Dump writes down, for a page, what changes in a server from moment to moment, and what somebody sends to it. What
// differs from run to run is masked: random names get fixed ones, in the order in which they come.
type Dump struct {
	strings.Builder
	t       testing.TB
	session *zkconn.Session
	tops    []string          // what is listed
	was     map[string]string // what was written of each znode
	names   map[string]string // a fixed name for each random one
	masks   []Mask
	hidden  []*regexp.Regexp // paths of which the version is left out
}

// Mask is what takes the place of what differs otherwise.
type Mask struct {
	What *regexp.Regexp
	With string
}

// NewDump begins a dump of these folders. It deletes what an earlier test has left in them.
func NewDump(t testing.TB, s *zkconn.Session, masks []Mask, tops ...string) *Dump {
	t.Helper()
	d := &Dump{
		t: t, session: s, tops: tops, masks: masks, was: map[string]string{}, names: map[string]string{},
	}
	for _, path := range slices.Backward(d.list()) {
		if err := s.Delete(t.Context(), path, -1); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// HideVersion leaves the versions of znodes with such paths out: how often they are written depends on time.
func (d *Dump) HideVersion(paths string) { d.hidden = append(d.hidden, regexp.MustCompile(paths)) }

// list lists everything below the folders, parents first.
func (d *Dump) list() []string {
	d.t.Helper()
	var all []string
	var walk func(path string)
	walk = func(path string) {
		names, _, err := d.session.Children(d.t.Context(), path)
		if err != nil {
			d.t.Fatal(err)
		}
		slices.Sort(names)
		all = append(all, path)
		for _, name := range names {
			walk(resource.Join(path, name))
		}
	}
	for _, top := range d.tops {
		if _, there, err := d.session.Exists(d.t.Context(), top); err != nil {
			d.t.Fatal(err)
		} else if there {
			walk(top)
		}
	}
	return all
}

// Moment writes down what was created, changed or deleted since the moment before.
func (d *Dump) Moment(title string) {
	d.t.Helper()
	now, records := map[string]string{}, map[string]string{}
	var text strings.Builder
	for _, path := range d.list() {
		body, stat, err := d.session.Get(d.t.Context(), path)
		if err != nil {
			d.t.Fatal(err)
		}
		line := d.Fixed(path)
		if !slices.ContainsFunc(d.hidden, func(r *regexp.Regexp) bool { return r.MatchString(path) }) {
			line += fmt.Sprintf("  v%d", stat.Version)
		}
		if stat.EphemeralOwner != 0 {
			line += "  ephemeral"
		}
		content := d.content(body, "    ")
		if strings.Contains(path, "/.muster/job/") || strings.Contains(path, "/.muster/group/") ||
			strings.Contains(path, "/.muster/queue/") {
			records[content] = path
		} else if record := records[content]; content != "" && record != "" {
			content = "    the bytes of " + record + "\n"
		}
		now[path] = line + "\n" + content
		if now[path] != d.was[path] {
			text.WriteString(now[path])
		}
	}
	fmt.Fprintf(d, "%s:\n\n```\n", title)
	for _, path := range slices.Sorted(maps.Keys(d.was)) {
		parent := path[:strings.LastIndexByte(path, '/')]
		if _, orphan := now[parent]; now[path] == "" && (orphan || d.was[parent] == "") {
			fmt.Fprintf(d, "%s  deleted\n", d.Fixed(path))
		}
	}
	fmt.Fprintf(d, "%s```\n\n", text.String())
	d.was = now
}

// Calls writes down what somebody has sent.
func (d *Dump) Calls(title string, calls []string) {
	fmt.Fprintf(d, "%s:\n\n```\n", title)
	for _, call := range calls {
		lines := strings.Split(call, "\n")
		for i, line := range lines {
			indent := "  "
			if i == 0 {
				indent = ""
			}
			for _, part := range cut(d.Fixed(line), 102) {
				d.WriteString(indent + part + "\n")
				indent = "      "
			}
		}
	}
	d.WriteString("```\n\n")
}

// cut is a text in pieces of at most n bytes.
func cut(text string, n int) (pieces []string) {
	for len(text) > n {
		pieces, text = append(pieces, text[:n]), text[n:]
	}
	return append(pieces, text)
}

// content is a body in indented lines: as text, or in hexadecimal.
func (d *Dump) content(body []byte, indent string) string {
	if len(body) == 0 {
		return ""
	}
	return indent + strings.Join(cut(d.Fixed(printable(body)), 104), "\n"+indent) + "\n"
}

// printable is a body as text, or in hexadecimal.
func printable(body []byte) string {
	for _, b := range body {
		if b != '\n' && (b < ' ' || b > '~') {
			return "hex " + hex.EncodeToString(body)
		}
	}
	return strings.ReplaceAll(string(body), "\n", `\n`)
}

var randomName = regexp.MustCompile(`\b[0-9a-f]{32}\b`)

// Fixed replaces what differs from run to run.
func (d *Dump) Fixed(s string) string {
	for _, m := range d.masks {
		s = m.What.ReplaceAllString(s, m.With)
	}
	return randomName.ReplaceAllStringFunc(s, func(random string) string {
		if d.names[random] == "" {
			d.names[random] = strings.Repeat(fmt.Sprintf("%02x", 0xa1+len(d.names)), 16)
		}
		return d.names[random]
	})
}

// place is what a file has before, between and after two lines of it.
func place(t testing.TB, file, begins, ends string) (head, was, tail string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(page), begins)
	was, tail, ended := strings.Cut(rest, ends)
	if !found || !ended {
		t.Fatalf("%s has no place for the dump", file)
	}
	return head, was, tail
}

// IsIn reports whether the dump is in a file between two lines of it.
func (d *Dump) IsIn(t testing.TB, file, begins, ends string) bool {
	t.Helper()
	_, was, _ := place(t, file, begins, ends)
	return d.String() == was
}

// Page compares the dump with what is in a file between two lines of it, and writes it there if update is set.
func (d *Dump) Page(t testing.TB, file, begins, ends string, update bool) {
	t.Helper()
	head, was, tail := place(t, file, begins, ends)
	switch got := d.String(); {
	case got == was:
	case update:
		if err := os.WriteFile(file, []byte(head+begins+got+ends+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: the dump is not what the servers hold: run its test with -update\n%s", file,
			firstDifference(was, got))
	}
}

func firstDifference(was, got string) string {
	before, after := strings.Split(was, "\n"), strings.Split(got, "\n")
	for i, line := range after {
		if i >= len(before) || before[i] != line {
			return fmt.Sprintf("first difference, line %d of the dump: %s", i+1, line)
		}
	}
	return "the page has more lines than there are"
}

// Writes are the requests that change something, as text, of all clients of a proxy. One goroutine takes them.
type Writes struct {
	mu  sync.Mutex
	all []string
}

// RecordWrites records what goes through a proxy from now on.
func RecordWrites(p *fault.Proxy) *Writes {
	w := &Writes{}
	p.BeforeSend(func(op int32, req []byte) bool {
		if text := writeText(op, req); text != "" {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.all = append(w.all, text)
		}
		return false // no fault
	})
	return w
}

// Take returns what was written since the last call.
func (w *Writes) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

const (
	opCheck = 13
	opClose = -11
)

// writeText is a request as text; empty if it changes nothing.
func writeText(op int32, req []byte) string {
	r := &reader{req}
	switch op {
	case fault.OpMulti:
		var ops []string
		for {
			op := r.int()
			done := r.bytes(1)
			r.int()
			if len(done) == 0 || done[0] != 0 {
				return "multi\n" + strings.Join(ops, "\n")
			}
			ops = append(ops, r.operation(op))
		}
	case fault.OpCreate, fault.OpSetData, fault.OpDelete:
		return r.operation(op)
	case opClose:
		return "close the session"
	}
	return ""
}

// reader reads the fields of a request; zero values where it is too short.
type reader struct{ left []byte }

func (r *reader) bytes(n int) []byte {
	n = min(max(n, 0), len(r.left))
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

func (r *reader) int() int32 {
	b := r.bytes(4)
	if len(b) < 4 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b))
}

func (r *reader) buffer() []byte { return r.bytes(int(r.int())) }

// operation is one operation as text.
func (r *reader) operation(op int32) string {
	path := string(r.buffer())
	switch op {
	case opCheck:
		return fmt.Sprintf("check %s %d", path, r.int())
	case fault.OpDelete:
		return fmt.Sprintf("delete %s %d", path, r.int())
	case fault.OpSetData:
		body := printable(r.buffer())
		return strings.TrimRight(fmt.Sprintf("set %s %d %s", path, r.int(), body), " ")
	case fault.OpCreate:
		body := printable(r.buffer())
		for range r.int() { // its ACL
			r.int()
			r.buffer()
			r.buffer()
		}
		kind := map[int32]string{1: " ephemeral", 2: " sequential", 3: " ephemeral sequential"}[r.int()]
		return strings.TrimRight(fmt.Sprintf("create %s%s %s", path, kind, body), " ")
	}
	return fmt.Sprint("operation ", op)
}
