package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"muster/text"
)

// pageHTML is the template of the page. It holds its style and its script, so that a browser fetches nothing else.
//
//go:embed page.html
var pageHTML string

// html writes one page. It shows every row without scripts; its script filters them.
func (r Run) html() ([]byte, error) {
	t, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, r.htmlPage())
	return b.Bytes(), err
}

// htmlPage is the data of the template. Every text in it is escaped for control characters.
type htmlPage struct {
	Title, Stack, Headline, Verdict, Facts string
	Actor, CI, Commit, URL                 string // of an apply
	ExitCode                               int
	Caveats                                []string
	Problems                               []Problem
	Groups                                 []htmlGroup
	Rows                                   []htmlRow
}

type htmlGroup struct {
	Word, Class string
	Count       int
}

type htmlRow struct {
	Symbol, Word, Class, Address, Because, Next, Place string
	Count                                              int // how many rows it stands for
	Changes                                            []htmlField
	Equal                                              []htmlField // if it stands for several: their addresses, paths
	Details                                            []htmlField
}

type htmlField struct{ Key, Value string }

func (r Run) htmlPage() htmlPage {
	v := htmlPage{
		Title: "muster " + r.Command, Stack: text.Escape(r.stack()), Headline: text.Escape(r.headline()),
		ExitCode: r.ExitCode, Verdict: r.verdict(), Facts: text.Escape(r.facts()),
	}
	v.Actor, v.CI = text.Escape(r.asked()), text.Escape(cmp.Or(r.Who.CI, "this run"))
	v.Commit, v.URL = text.Escape(r.Who.Commit), r.Who.URL
	for _, s := range r.caveats() {
		v.Caveats = append(v.Caveats, text.Escape(s))
	}
	for _, p := range r.Problems {
		p.Code, p.At, p.Next = text.Escape(p.Code), text.Escape(p.At), text.Escape(p.Next)
		p.Summary, p.Detail = text.EscapeLines(p.Summary), text.EscapeLines(p.Detail)
		v.Problems = append(v.Problems, p)
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
		Symbol: it.symbol, Word: it.word, Class: class(it.level), Address: text.Escape(it.name()),
		Because: text.Escape(it.because), Next: text.Escape(it.next), Place: text.Escape(it.place()),
		Count: it.count(),
	}
	for _, c := range it.changes {
		row.Changes = append(row.Changes, htmlField{text.Escape(c.key), text.Escape(c.value)})
	}
	for _, e := range it.equal {
		row.Equal = append(row.Equal, htmlField{text.Escape(e.row.Address()), text.Escape(e.row.Path)})
	}
	if it.row.Address() != it.row.Path && len(it.equal) == 0 {
		row.Details = append(row.Details, htmlField{"path", text.Escape(it.row.Path)})
	}
	for _, f := range it.fields {
		if slices.Contains(it.changes, f) || f.key == keysKey {
			continue // shown outside the details
		}
		if f.key != "because" && f.key != toProceed && f.key != "path" { // the row shows these elsewhere
			row.Details = append(row.Details, htmlField{text.Escape(f.key), text.Escape(f.value)})
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
	return strings.Join(append(parts, fmt.Sprintf("muster %s", r.Version)), " · ")
}

func class(l level) string {
	return map[level]string{quiet: "quiet", note: "note", warning: "warning", failure: "failure"}[l]
}
