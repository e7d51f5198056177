package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"
)

// pageHTML is the page: style and script are in it, and nothing else is fetched.
//
//go:embed page.html
var pageHTML string

// html is one page that needs nothing but a browser. Without scripts every row is there; with them the rows can be
// filtered.
func (r Run) html() ([]byte, error) {
	t, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, r.view())
	return b.Bytes(), err
}

// view is what the page shows, every text cleaned.
type view struct {
	Title, Stack, Headline, Verdict, Facts string
	ExitCode                               int
	Caveats                                []string
	Problems                               []Problem
	Groups                                 []viewGroup
	Rows                                   []viewRow
}

type viewGroup struct {
	Word, Class string
	Count       int
}

type viewRow struct {
	Symbol, Word, Class, Address, Because, Next, Place string
	Details                                            []viewField
}

type viewField struct{ Key, Value string }

func (r Run) view() view {
	v := view{
		Title: "muster " + r.Command, Stack: clean(r.stack()), Headline: clean(r.headline()), ExitCode: r.ExitCode, Verdict: r.verdict(),
		Facts: clean(r.facts()),
	}
	for _, s := range r.caveats() {
		v.Caveats = append(v.Caveats, clean(s))
	}
	for _, p := range r.Problems {
		p.Code, p.At, p.Summary, p.Detail, p.Next = clean(p.Code), clean(p.At), cleanLines(p.Summary), cleanLines(p.Detail), clean(p.Next)
		v.Problems = append(v.Problems, p)
	}
	for _, g := range r.groups() {
		if len(g.items) == 0 {
			continue
		}
		v.Groups = append(v.Groups, viewGroup{g.word, class(g.items[0].level), len(g.items)})
		for _, it := range g.items {
			v.Rows = append(v.Rows, it.view())
		}
	}
	return v
}

func (it item) view() viewRow {
	row := viewRow{
		Symbol: it.symbol, Word: it.word, Class: class(it.level), Address: clean(it.row.Address()), Because: clean(it.because),
		Next: clean(it.next), Place: clean(it.place()),
	}
	if it.row.Address() != it.row.Path {
		row.Details = append(row.Details, viewField{"path", clean(it.row.Path)})
	}
	for _, f := range it.fields {
		if f.key != "because" && f.key != "to proceed" && f.key != "path" { // they have places of their own
			row.Details = append(row.Details, viewField{clean(f.key), clean(f.value)})
		}
	}
	return row
}

// facts are the line below the title.
func (r Run) facts() string {
	parts := nonEmpty(r.Config, strings.Join(r.Servers, ","))
	if r.Plan != nil && len(r.Plan.Roots) > 0 {
		parts = append(parts, "roots "+strings.Join(r.Plan.Roots, " "))
	}
	if !r.Started.IsZero() {
		parts = append(parts, r.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	if r.Took > 0 {
		parts = append(parts, took(r.Took))
	}
	return strings.Join(append(parts, fmt.Sprintf("muster %s", r.Version)), " · ")
}

func class(l level) string {
	return map[level]string{quiet: "quiet", note: "note", warning: "warning", failure: "failure"}[l]
}
