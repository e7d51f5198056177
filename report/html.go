package report

import (
	"bytes"
	_ "embed"
	"html/template"
	"slices"
	"strings"

	"muster/plan"
	"muster/text"
)

// pageHTML is the template of the page. It holds its style and its script, so that a browser fetches nothing else. It
// escapes control characters in every text: line breaks too, or with lines all others.
//
//go:embed page.html
var pageHTML string

// html writes one page. It shows every row without scripts; its script filters them.
func (r Run) html() ([]byte, error) {
	t, err := template.New("page").Funcs(template.FuncMap{"line": text.Escape, "lines": text.EscapeLines}).Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, r.htmlPage())
	return b.Bytes(), err
}

type htmlPage struct {
	Run
	Stack, Headline, Verdict, Facts string
	Actor                           string // of an apply
	Caveats                         []string
	Groups                          []htmlGroup
	Rows                            []htmlRow
}

type htmlGroup struct {
	Word, Class string
	Count       int
}

type htmlRow struct {
	Symbol, Word, Class, Address, Because, Next, Place string
	Count                                              int // how many rows it stands for
	Changes                                            []field
	Equal                                              []plan.Row // if it stands for several
	Details                                            []field
}

func (r Run) htmlPage() htmlPage {
	v := htmlPage{
		Run: r, Stack: r.stack(), Headline: r.headline(), Verdict: r.verdict(), Facts: r.facts(), Actor: r.asked(),
		Caveats: r.caveats(),
	}
	for _, c := range r.categories() {
		if len(c.items) == 0 {
			continue
		}
		v.Groups = append(v.Groups, htmlGroup{c.word, class(c.items[0].level), c.count()})
		for _, it := range c.items {
			v.Rows = append(v.Rows, it.htmlRow())
		}
	}
	return v
}

func (it item) htmlRow() htmlRow {
	row := htmlRow{
		Symbol: it.symbol, Word: it.word, Class: class(it.level), Address: it.name(), Because: it.because, Next: it.next,
		Place: it.place(), Count: it.count(), Changes: it.changes,
	}
	if len(it.equal) > 0 {
		row.Equal = it.rows()
	} else if it.row.Address() != it.row.Path {
		row.Details = append(row.Details, field{"path", it.row.Path})
	}
	for _, f := range it.fields {
		elsewhere := slices.Contains([]string{keysKey, "because", toProceed, "path"}, f.Key)
		if !elsewhere && !slices.Contains(it.changes, f) {
			row.Details = append(row.Details, f)
		}
	}
	return row
}

// facts is the line below the title.
func (r Run) facts() string {
	parts := text.NonEmpty(r.Config, strings.Join(r.Servers, ","))
	if r.Plan != nil && len(r.Plan.Roots) > 0 {
		parts = append(parts, "roots "+strings.Join(r.Plan.Roots, " "))
	}
	if !r.Started.IsZero() {
		parts = append(parts, r.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	if r.Took > 0 {
		parts = append(parts, took(r.Took))
	}
	return strings.Join(append(parts, "muster "+r.Version), " · ")
}

func class(l level) string {
	return map[level]string{quiet: "quiet", note: "note", warning: "warning", failure: "failure"}[l]
}
