package page

import (
	"embed"
	"html/template"
	"io"
	"net/url"
	"strings"
	"time"

	"muster/text"
)

// assets are the files that the page loads.
//
//go:embed assets
var assets embed.FS

//go:embed templates
var templateFiles embed.FS

func parseTemplates() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"iso":       func(t time.Time) string { return t.UTC().Truncate(time.Second).Format(time.RFC3339) },
		"thousands": text.Thousands,
		"stamp":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") },
	}).ParseFS(templateFiles, "templates/*.html"))
}

// frame is what the document shows besides the fragments.
type frame struct {
	Title   string
	View    View
	At      time.Time
	Version uint64
	Here    string // the URL of the page
}

// document writes the whole page, as it is shown without JavaScript.
func (v *views) document(w io.Writer, r Request, shown Rendered) error {
	outer := v.html("document", frame{shown.Title, r.View, shown.At, shown.Version, r.URL()})
	children := map[string][]Fragment{}
	for _, f := range shown.Fragments {
		children[f.In] = append(children[f.In], f)
	}
	return writeSlots(w, outer, children)
}

// writeSlots writes html with the fragments in their slots. Only our templates can make a slot: text is escaped, so
// that it has no ">".
func writeSlots(w io.Writer, html string, children map[string][]Fragment) error {
	const mark = " data-slot>"
	for {
		before, after, found := strings.Cut(html, mark)
		if !found {
			_, err := io.WriteString(w, html)
			return err
		}
		if _, err := io.WriteString(w, before+mark); err != nil {
			return err
		}
		for _, f := range children[slotID(before)] {
			if err := writeSlots(w, f.HTML, children); err != nil {
				return err
			}
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
		html = after
	}
}

// slotID is the id of the tag with which html ends. It is the last attribute but data-slot.
func slotID(html string) string {
	const attribute = `id="`
	i := strings.LastIndex(html, attribute)
	if i < 0 {
		return ""
	}
	return strings.TrimSuffix(html[i+len(attribute):], `"`)
}

// URL is the path and the query of the page that shows r.
func (r Request) URL() string {
	u := url.URL{Path: "/"}
	switch r.View {
	case Resource:
		u.Path = "/resource" + r.Path
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

// parseRequest is the request of a URL, without what its view does not use; false if there is no such page.
func parseRequest(u *url.URL) (Request, bool) {
	q := u.Query()
	path, isResource := strings.CutPrefix(u.Path, "/resource/")
	switch {
	case isResource:
		return Request{View: Resource, Path: "/" + path}, path != ""
	case u.Path == "/history":
		return Request{View: History, Stack: q.Get("stack")}, true
	}
	return Request{
		View: Overview, Filter: strings.TrimSpace(q.Get("q")), Status: q.Get("status"), Kind: q.Get("kind"),
		Stack: q.Get("stack"), Sort: q.Get("sort"),
	}, u.Path == "/"
}

// resourceURL is the URL of the page of a resource.
func resourceURL(path string) string { return Request{View: Resource, Path: path}.URL() }
