package spec

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"muster/text"
)

// Severity of a diagnostic.
type Severity string

// An Error leaves no Config; a Warning does.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Diagnostic is one finding about the source. Its JSON form is an interface for tools: fields are added, never
// renamed.
type Diagnostic struct {
	Severity Severity  `json:"severity"`
	Code     string    `json:"code"` // never reused for another meaning
	Summary  string    `json:"summary"`
	Detail   string    `json:"detail,omitempty"`
	In       string    `json:"in,omitempty"`      // the block it is about: job "ingest"
	Address  string    `json:"address,omitempty"` // of the job, where it is about one
	Range    *Range    `json:"range,omitempty"`   // nil: about the directory as a whole
	Snippet  *Snippet  `json:"snippet,omitempty"`
	Note     string    `json:"note,omitempty"` // stands behind the carets: "this is 4.5"
	Values   []Value   `json:"values,omitempty"`
	Help     string    `json:"help,omitempty"` // what to do
	Related  []Related `json:"related,omitempty"`
}

// Range is a part of a source file. The file name is relative to the configuration directory; a value that was not in
// a file has a name such as "--var base" or "MUSTER_VAR_base".
type Range struct {
	Filename string `json:"filename"`
	Start    Pos    `json:"start"`
	End      Pos    `json:"end"` // exclusive
}

// Pos counts lines and columns (grapheme clusters) from 1, bytes from 0.
type Pos struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Byte   int `json:"byte"`
}

// Snippet is the first source line of a Range, and the bytes of it that the range covers. Of a very long line it is
// the part around the range.
type Snippet struct {
	Code  string `json:"code"`
	Start int    `json:"highlight_start_offset"`
	End   int    `json:"highlight_end_offset"`
}

// Value is something that the expression used.
type Value struct {
	Traversal string `json:"traversal"` // var.base
	Statement string `json:"statement"` // is 3
	From      string `json:"from"`      // prod.auto.vars.hcl:2
}

// Related is another place that the finding is about.
type Related struct {
	Range   Range    `json:"range"`
	Snippet *Snippet `json:"snippet,omitempty"`
	Message string   `json:"message"` // first declared here
}

// hideSource leaves out what the finding shows of the source, which may be a password: reports are kept.
func (d *Diagnostic) hideSource() { d.Snippet, d.Note, d.Values = nil, "", nil }

// Diagnostics are sorted by file and position.
type Diagnostics []Diagnostic

// HasErrors reports whether any of ds is an Error.
func (ds Diagnostics) HasErrors() bool {
	return slices.ContainsFunc(ds, func(d Diagnostic) bool { return d.Severity == Error })
}

// findings collects diagnostics while sources are read.
type findings struct {
	sources map[string][]byte
	list    []*Diagnostic
	dropped int // of the findings, beyond maxFindings
}

// The most findings that are collected, and of these those that are returned. One line can be wrong for every instance
// of a for_each, which is one finding in the end.
const (
	maxFindings = maxInstances + 1_000
	maxReturned = 1_000
)

// add records a finding. The caller may still fill in the rest.
func (f *findings) add(code string, rng *hcl.Range, format string, args ...any) *Diagnostic {
	d := &Diagnostic{Severity: Error, Code: code, Summary: fmt.Sprintf(format, args...)}
	if rng != nil {
		d.Range, d.Snippet = f.place(*rng)
	}
	if len(f.list) == maxFindings {
		f.dropped++
		return d
	}
	f.list = append(f.list, d)
	return d
}

func (f *findings) relate(d *Diagnostic, rng hcl.Range, message string) {
	r, snippet := f.place(rng)
	d.Related = append(d.Related, Related{*r, snippet, message})
}

// maxSnippet is how many bytes of a line are kept before and behind the start of a finding: a generated file can be
// one line with many findings.
const maxSnippet = 1000

// place converts a range of the parser and cuts its first line out of the source.
func (f *findings) place(rng hcl.Range) (*Range, *Snippet) {
	r := &Range{Filename: rng.Filename, Start: Pos(rng.Start), End: Pos(rng.End)}
	src := f.sources[rng.Filename]
	if rng.Start.Byte > len(src) || rng.Start.Byte < 0 || rng.Start.Line < 1 || len(src) == 0 {
		return r, nil
	}
	from, to := lineAt(src, rng.Start.Byte)
	line := strings.TrimSuffix(string(src[from:to]), "\r")
	start := min(rng.Start.Byte-from, len(line))
	end := min(max(rng.End.Byte-from, start), len(line))
	return r, &Snippet{Code: line, Start: start, End: end}
}

// lineAt returns the start and end of the line that holds an offset. Of a long line it returns the part that is kept.
func lineAt(src []byte, at int) (from, to int) {
	from, to = max(0, at-maxSnippet), min(len(src), at+maxSnippet)
	if i := bytes.LastIndexByte(src[from:at], '\n'); i >= 0 {
		from += i + 1
	}
	if i := bytes.IndexByte(src[at:to], '\n'); i >= 0 {
		to = at + i
	}
	for from < at && !utf8.RuneStart(src[from]) {
		from++
	}
	for to > at && to < len(src) && !utf8.RuneStart(src[to]) {
		to--
	}
	return from, to
}

// sorted returns the findings in source order, each once. One line of source that is wrong for many instances of a
// for_each is one finding, which names the others.
func (f *findings) sorted() Diagnostics {
	type key struct {
		code, summary, in string
		rng               Range
	}
	first := map[key]*Diagnostic{}
	others := map[*Diagnostic][]string{}
	var ds []*Diagnostic
	for _, d := range f.list {
		k := key{code: d.Code, in: d.In, rng: *cmp.Or(d.Range, &Range{})}
		if d.Address == "" || d.Range == nil {
			k.summary = d.Summary
		}
		if prev := first[k]; prev == nil {
			first[k] = d
			ds = append(ds, d)
		} else if d.Address != prev.Address {
			others[prev] = append(others[prev], d.Address)
		}
	}
	out := make(Diagnostics, 0, len(ds))
	for _, d := range ds {
		if also := slices.Compact(others[d]); len(also) > 0 {
			d.Detail = join(d.Detail, "the same for "+text.List(also, 3))
		}
		out = append(out, *d)
	}
	slices.SortStableFunc(out, compare)
	cut := max(0, len(out)-maxReturned)
	if more := cut + f.dropped; more > 0 {
		return append(out[:len(out)-cut], Diagnostic{
			Severity: Error, Code: codeTooLarge, Summary: fmt.Sprintf("there are %d more findings", more),
			Help: "mend the first ones, then try again",
		})
	}
	return out
}

func compare(a, b Diagnostic) int {
	ra, rb := cmp.Or(a.Range, &Range{}), cmp.Or(b.Range, &Range{})
	return cmp.Or(
		cmp.Compare(ra.Filename, rb.Filename),
		cmp.Compare(ra.Start.Line, rb.Start.Line),
		cmp.Compare(ra.Start.Byte, rb.Start.Byte),
		cmp.Compare(a.Code, b.Code),
	)
}

// join writes one sentence behind another. Either may be empty.
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
