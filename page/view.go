package page

import (
	"crypto/sha256"
	"encoding/hex"
	"html/template"
	"net/url"
	"strings"
	"time"

	"muster/text"
)

// Rendered is what a request shows.
type Rendered struct {
	Title     string
	At        time.Time // of the board
	Version   uint64    // of the view, which the server counts; the page tells it when it asks for the stream
	Fragments []Fragment
	Missing   bool // what it is about is not there
}

// Fragment is one element of the page, which is replaced when its HTML has changed.
type Fragment struct {
	ID   string // of the element
	In   string // id of the element whose child it is; siblings are in order
	HTML string // the element, escaped; the begin tag of a place for other fragments ends in " data-slot>"
}

// views render boards. They are safe for many goroutines.
type views struct {
	templates *template.Template
	rows      cache[rowKey]
	cells     cache[cellKey]
}

func newViews() *views { return &views{templates: parseTemplates()} }

// render says what a request shows. d is the resource of r.Path; nil if it is not there, or not read.
func (v *views) render(r Request, b *Board, d *Detail) Rendered {
	p := &painter{views: v, request: r, board: b}
	p.add("source-slot", "source", struct {
		Servers   word
		Connected bool
		At        time.Time
	}{word(b.Servers), b.Connected, b.At})
	title := "muster"
	switch r.View {
	case Resource:
		title = text.Visible(r.Path) + " – muster"
		p.resource(d)
	case History:
		title = "History – muster"
		p.history()
	default:
		if n := p.overview(); n > 0 {
			title = "(" + text.Thousands(n) + ") muster"
		}
	}
	return Rendered{Title: title, At: b.At, Fragments: p.fragments, Missing: p.missing}
}

// painter collects the fragments of one view.
type painter struct {
	*views
	request   Request
	board     *Board
	fragments []Fragment
	missing   bool // what it is about
}

// main is the slot of the sections.
const mainSlot = "main"

// add adds an element to the slot in. Its template has its id, unless the data do.
func (p *painter) add(in, name string, data any) {
	id := name
	if d, ok := data.(interface{ fragmentID() string }); ok {
		id = d.fragmentID()
	}
	p.fragments = append(p.fragments, Fragment{id, in, p.views.html(name, data)})
}

// html executes a template.
func (v *views) html(name string, data any) string {
	var b strings.Builder
	if err := v.templates.ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // a template that does not fit its data, which the tests show
	}
	return strings.TrimSpace(b.String())
}

// word is text of any origin. Templates show what is not printable in it as escapes.
type word string

// String implements fmt.Stringer, which package template uses.
func (w word) String() string { return text.Visible(string(w)) }

// words are all as word.
func words(all []string) []word {
	shown := make([]word, len(all))
	for i, s := range all {
		shown[i] = word(s)
	}
	return shown
}

// hashID is an id for an element that stands for something with a name of any origin. Nobody can choose two names that
// have one id.
func hashID(prefix string, names ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	return prefix + "-" + hex.EncodeToString(sum[:9])
}

// parseTime reads a time of a Record.
func parseTime(s string) time.Time {
	t, _ := time.Parse(time.RFC3339, s)
	return t
}

// webURL is s if a browser may follow it: a URL of the web. Others are only text.
func webURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return ""
	}
	return u.String()
}
