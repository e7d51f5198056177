package page

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/apply/history"
	"muster/resource/queue"
	"muster/text"
	"muster/view"
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
	rows      cache[row]
	cells     cache[cell]
}

func newViews() *views {
	return &views{templates: template.Must(template.New("").Funcs(template.FuncMap{
		"iso":        func(t time.Time) string { return t.UTC().Truncate(time.Second).Format(time.RFC3339) },
		"thousands":  text.Thousands,
		"tasks":      func(n int64) string { return text.Thousands(int(n)) },
		"size":       text.Size,
		"visible":    func(v any) string { return text.Visible(fmt.Sprint(v)) },
		"plural":     text.Plural,
		"id":         hashID,
		"text":       func(s *string) string { return *s },
		"at":         func(t *time.Time) time.Time { return *cmp.Or(t, &time.Time{}) },
		"unix":       func(seconds int64) time.Time { return time.Unix(seconds, 0) },
		"shape":      shape,
		"meter":      meterOf,
		"parse":      parseTime,
		"stackURL":   func(stack string) string { return Request{View: Overview, Stack: stack}.URL() },
		"historyURL": func(stack string) string { return Request{View: History, Stack: stack}.URL() },
		"stamp":      func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") },
	}).ParseFS(templateFiles, "templates/*.html"))}
}

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
	case Batch:
		title = text.Visible(r.Path+"/"+r.Batch) + " – muster"
		p.batch(d)
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

func (p *painter) add(in, name string, data any) { p.addHTML(in, p.views.html(name, data)) }

// addHTML adds an element to the slot in. Its id is its first attribute.
func (p *painter) addHTML(in, html string) {
	_, rest, _ := strings.Cut(html, `id="`)
	id, _, _ := strings.Cut(rest, `"`)
	p.fragments = append(p.fragments, Fragment{id, in, html})
}

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

// hashID is an id for an element that stands for something with a name of any origin. Nobody can choose two names that
// have one id.
func hashID(prefix string, names ...any) string {
	all := text.Each(names, func(n any) string { return fmt.Sprint(n) })
	sum := sha256.Sum256([]byte(strings.Join(all, "\x00")))
	return prefix + "-" + hex.EncodeToString(sum[:9])
}

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

// Board is what is known now, of everything that is shown. It is not changed once it is made.
type Board struct {
	At              time.Time // when it was read
	Servers         string    // of ZooKeeper, as they were given
	Connected       bool      // if not, everything is as it was at At
	Roots, Unlisted []string  // Unlisted: roots that cannot be listed, and why
	Unindexed       string    // why not all stacks are known; empty: they are
	Stacks          []Stack
	Resources       []view.Resource // of all kinds, by path
	History         []history.Found // the newest first, of the shown stacks
	Planned         *Planned        // nil: there is no configuration, or no plan yet

	last map[string]history.Found // by stack, also of stacks that are not shown
}

func (b *Board) resource(path string) (view.Resource, bool) {
	i, ok := slices.BinarySearchFunc(b.Resources, path, func(j view.Resource, path string) int {
		return strings.Compare(j.Path, path)
	})
	if !ok {
		return view.Resource{}, false
	}
	return b.Resources[i], true
}

// Stack is a stack that is shown.
type Stack struct {
	Name  string
	Roots []string
	Last  *history.Found // nil: not known
	Held  []string       // what muster reconcile leaves as it is, a line each
}

// Detail is one resource that somebody looks at.
type Detail struct {
	view.Resource
	Problem string // why the rest could not be read; empty if it was
	// Batch is the one batch of the queue that somebody looks at, as ZooKeeper has it; nil: none, or it is not there.
	Batch *view.BatchDetail

	asked          // of a queue: what Redis knows
	charts []chart // of a job or a queue: its last hour
	link   *link   // the session in which it was read
}

// BatchProgress is one unfinished batch of a queue, as ZooKeeper and Redis have it.
type BatchProgress struct {
	view.BatchRow
	PerSecond float64 // tasks that ended lately, by second; 0: none, or not known
	Watcher   string  // identity of the watcher that has it
}

// Hand is how many tasks of a batch a process has.
type Hand struct {
	Process, Batch string
	Tasks          int
}

// DeadTask is a task that is not tried again.
type DeadTask struct {
	Batch           string
	Index           int64
	Attempt, Deaths int
	Died            time.Time
	Reason          string
	Payload         string // its begin
}

// Request says what is shown. It is parsed from a URL.
type Request struct {
	View   View
	Path   string // of a resource; of a batch, that of its queue
	Batch  string // id
	Filter string // words, each of which is in what is shown
	Status string
	Kind   string
	Stack  string
	Sort   string
}

// View is one of the pages.
type View string

const (
	Overview View = "overview"
	Resource View = "resource"
	Batch    View = "batch"
	History  View = "history"
)

// cache keeps HTML by what it shows. It forgets what was not asked for while as much again was new.
type cache[K comparable] struct {
	lock     sync.Mutex
	now, old map[K]string
}

// maxCached is how many entries a cache has at most, twice.
const maxCached = 40_000

// html is what make makes for key.
func (c *cache[K]) html(key K, make func() string) string {
	c.lock.Lock()
	defer c.lock.Unlock()
	html, ok := c.now[key]
	if ok {
		return html
	}
	if html, ok = c.old[key]; !ok {
		html = make()
	}
	if c.now == nil || len(c.now) >= maxCached {
		c.old, c.now = c.now, map[K]string{}
	}
	c.now[key] = html
	return html
}

// assets are the files that the page loads.
//
//go:embed assets
var assets embed.FS

//go:embed templates
var templateFiles embed.FS

// document writes the whole page, as it is shown without JavaScript.
func (v *views) document(w io.Writer, r Request, shown Rendered) error {
	outer := v.html("document", struct {
		Rendered
		Request
	}{shown, r})
	children := map[string][]Fragment{}
	for _, f := range shown.Fragments {
		children[f.In] = append(children[f.In], f)
	}
	b := bufio.NewWriterSize(w, writeChunk)
	writeSlots(b, outer, children)
	return b.Flush()
}

// writeSlots writes html with the fragments in their slots. Only our templates can make a slot: text is escaped, so
// that it has no ">".
func writeSlots(w *bufio.Writer, html string, children map[string][]Fragment) {
	const mark = " data-slot>"
	for {
		before, after, found := strings.Cut(html, mark)
		w.WriteString(before)
		if !found {
			return
		}
		w.WriteString(mark)
		for _, f := range children[slotID(before)] {
			writeSlots(w, f.HTML, children)
			w.WriteByte('\n')
		}
		html = after
	}
}

// slotID is the id of the tag with which html ends. It is the last attribute but data-slot.
func slotID(html string) string {
	const attribute = `id="`
	return strings.TrimSuffix(html[strings.LastIndex(html, attribute)+len(attribute):], `"`)
}

// URL is the path and the query of the page that shows r.
func (r Request) URL() string {
	u := url.URL{Path: "/"}
	switch r.View {
	case Resource:
		u.Path = "/resource" + r.Path
	case Batch:
		u.Path = "/batch" + r.Path + "/" + r.Batch
	case History:
		u.Path = "/history"
	}
	q := url.Values{}
	for _, f := range []struct{ name, value string }{
		{"q", r.Filter}, {"status", r.Status}, {"kind", r.Kind}, {"stack", r.Stack}, {"sort", r.Sort},
	} {
		if f.value != "" {
			q.Set(f.name, f.value)
		}
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// batchRequest is the request for QUEUE/BATCH.
func batchRequest(at string) (Request, bool) {
	i := strings.LastIndexByte(at, '/')
	r := Request{View: Batch, Path: at[:i], Batch: at[i+1:]}
	return r, i > 0 && queue.CheckBatchID(r.Batch) == nil
}

// parseRequest is the request of a URL, without what its view does not use; false if there is no such page.
func parseRequest(u *url.URL) (Request, bool) {
	q := u.Query()
	path, isResource := strings.CutPrefix(u.Path, "/resource/")
	batch, isBatch := strings.CutPrefix(u.Path, "/batch/")
	switch {
	case isResource:
		return Request{View: Resource, Path: "/" + path}, path != ""
	case isBatch:
		return batchRequest("/" + batch)
	case u.Path == "/history":
		return Request{View: History, Stack: q.Get("stack")}, true
	}
	return Request{
		View: Overview, Filter: strings.TrimSpace(q.Get("q")), Status: q.Get("status"), Kind: q.Get("kind"),
		Stack: q.Get("stack"), Sort: q.Get("sort"),
	}, u.Path == "/"
}
