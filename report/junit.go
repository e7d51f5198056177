package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/text"
)

// junit writes a run as tests: a suite for each file of declarations, a test case for each job. Blocked, refused,
// failed and drifted jobs are failures. Jobs that were not evaluated are skipped. A problem of the whole run is an
// error. Unmanaged znodes have no test.
func (r Run) junit() ([]byte, error) {
	doc := testSuites{Name: text.Escape("muster " + r.Command), Time: seconds(r.Took)}
	items, _ := r.items()
	cases := slices.Concat(r.problemCases(), r.policyCases(), r.jobCases(items))
	doc.fill(cases, r.whoProperties())
	return doc.bytes()
}

// Tested is one run of a test of a configuration.
type Tested struct {
	Name    string
	At      string // "prod/jobs.test.hcl:3"
	Took    time.Duration
	Failure string // why it failed; empty: it has passed
}

// Tests writes what became of the tests of a configuration as JUnit, with a suite for each file.
func Tests(results []Tested, took time.Duration) ([]byte, error) {
	doc := testSuites{Name: "muster test", Time: seconds(took)}
	var cases []testCase
	for _, r := range results {
		file, line := splitPlace(r.At)
		c := testCase{
			suite: text.Escape(file), Class: text.Escape(file), Name: text.Escape(r.Name), File: text.Escape(file),
			Line: text.Escape(line), Time: seconds(r.Took),
		}
		if r.Failure != "" {
			first, _, _ := strings.Cut(r.Failure, "\n")
			c.Failure = &testResult{Type: "failed", Message: text.Escape(first), Text: text.EscapeLines(r.Failure)}
		}
		cases = append(cases, c)
	}
	doc.fill(cases, nil)
	return doc.bytes()
}

// fill adds cases, those of a suite one after the other. whole is about the run, and stands in the first suite.
func (doc *testSuites) fill(cases []testCase, whole *properties) {
	for _, c := range cases {
		if len(doc.Suites) == 0 || doc.Suites[len(doc.Suites)-1].Name != c.suite {
			doc.Suites = append(doc.Suites, testSuite{Name: c.suite})
			if len(doc.Suites) == 1 { // that of the whole run
				doc.Suites[0].Properties = whole
			}
		}
		s := &doc.Suites[len(doc.Suites)-1]
		s.Cases = append(s.Cases, c)
		s.add(c)
		doc.add(c)
	}
}

func (doc *testSuites) bytes() ([]byte, error) {
	body, err := xml.MarshalIndent(doc, "", "  ")
	return slices.Concat([]byte(xml.Header), body, []byte("\n")), err
}

// whoProperties say who asked for an apply; nil for other runs.
func (r Run) whoProperties() *properties {
	if r.asked() == "" {
		return nil
	}
	all := []property{{"actor", text.Escape(r.asked())}}
	for _, p := range []property{{"ci", r.Who.CI}, {"commit", r.Who.Commit}, {"url", r.Who.URL}} {
		if p.Value != "" {
			all = append(all, property{p.Name, text.Escape(p.Value)})
		}
	}
	return &properties{all}
}

type testSuites struct {
	XMLName xml.Name `xml:"testsuites"`
	Name    string   `xml:"name,attr"`
	tally
	Time   string      `xml:"time,attr"`
	Suites []testSuite `xml:"testsuite"`
}

type testSuite struct {
	Name string `xml:"name,attr"`
	tally
	Properties *properties `xml:"properties"`
	Cases      []testCase  `xml:"testcase"`
}

type properties struct {
	All []property `xml:"property"`
}

type property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type tally struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Errors   int `xml:"errors,attr"`
	Skipped  int `xml:"skipped,attr"`
}

type testCase struct {
	suite   string
	Class   string      `xml:"classname,attr"`
	Name    string      `xml:"name,attr"`
	File    string      `xml:"file,attr,omitempty"`
	Line    string      `xml:"line,attr,omitempty"`
	Time    string      `xml:"time,attr,omitempty"`
	Failure *testResult `xml:"failure"`
	Error   *testResult `xml:"error"`
	Skipped *testResult `xml:"skipped"`
}

type testResult struct {
	Type    string `xml:"type,attr,omitempty"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (c *tally) add(t testCase) {
	c.Tests++
	switch {
	case t.Failure != nil:
		c.Failures++
	case t.Error != nil:
		c.Errors++
	case t.Skipped != nil:
		c.Skipped++
	}
}

// problemCases returns one test that fails if the run has problems, and a skipped one for each caveat.
func (r Run) problemCases() []testCase {
	name := "muster " + r.Command
	whole := testCase{suite: name, Class: name, Name: "configuration and connection"}
	for _, p := range r.Problems {
		if p.Warning || p.Policy != "" {
			continue
		}
		lines := text.NonEmpty(strings.TrimSpace(p.At+" "+p.Code), p.Summary, p.Detail, nextLine(p.Next))
		if whole.Error == nil {
			whole.Error = &testResult{Type: cmp.Or(text.Escape(p.Code), "error"), Message: text.EscapeLines(p.Summary)}
		} else {
			whole.Error.Text += "\n\n"
		}
		whole.Error.Text += text.EscapeLines(strings.Join(lines, "\n"))
	}
	cases := []testCase{whole}
	for _, s := range r.caveats() {
		s = text.Escape(s)
		cases = append(cases, testCase{suite: name, Class: name, Name: s, Skipped: &testResult{Message: s}})
	}
	return cases
}

// policyCases returns one test for each policy. One that only advises is skipped.
func (r Run) policyCases() (cases []testCase) {
	for _, name := range r.Policies {
		c := testCase{suite: "policies", Class: "policies", Name: text.Escape(name)}
		for _, p := range r.Judged {
			message := text.Escape(p.Summary)
			switch {
			case p.Policy != name:
			case p.Warning && c.Skipped != nil:
				c.Skipped.Message += "; " + message
			case p.Warning:
				c.Skipped = &testResult{Message: message}
			case c.Failure == nil:
				c.Failure = &testResult{Type: "denied", Message: message, Text: text.EscapeLines(p.Detail)}
			default:
				c.Failure.Text += "\n\n" + text.EscapeLines(p.Summary+"\n"+p.Detail)
			}
		}
		cases = append(cases, c)
	}
	return cases
}

// jobCases returns one test for each job, also if there are two findings about it.
func (r Run) jobCases(items []item) []testCase {
	at := map[string]int{}
	var cases []testCase
	for _, it := range items {
		if it.verdict == passed && it.row.New == nil && it.level == quiet {
			continue // unmanaged
		}
		i, ok := at[it.row.Path]
		if !ok {
			i = len(cases)
			at[it.row.Path] = i
			cases = append(cases, r.jobCase(it))
		}
		cases[i].result(it)
	}
	slices.SortStableFunc(cases, func(a, b testCase) int {
		return cmp.Or(cmp.Compare(a.suite, b.suite), cmp.Compare(a.Name, b.Name))
	})
	return cases
}

func (r Run) jobCase(it item) testCase {
	class := text.Escape(cmp.Or(r.stack(), "muster"))
	c := testCase{suite: "not declared", Class: class, Name: text.Escape(it.row.Address())}
	if it.row.New != nil {
		file, line := splitPlace(it.row.At())
		c.suite, c.File, c.Line = text.Escape(cmp.Or(file, "declared")), text.Escape(file), text.Escape(line)
	}
	if it.outcome != nil {
		c.Time = seconds(it.outcome.Took)
	}
	return c
}

// result adds the result of one item to its test. A failure replaces a skip.
func (c *testCase) result(it item) {
	var lines []string
	for _, f := range it.fields {
		lines = append(lines, text.Escape(fmt.Sprintf("%-14s  %s", f.Key, f.Value)))
	}
	res := &testResult{
		Type: it.word, Message: text.Escape(it.word + ": " + it.because), Text: strings.Join(lines, "\n"),
	}
	switch {
	case it.verdict == failed && c.Failure != nil:
		c.Failure.Message += "; " + res.Message
		c.Failure.Text += "\n\n" + res.Text
	case it.verdict == failed:
		c.Failure, c.Skipped = res, nil
	case it.verdict == skipped && c.Failure == nil:
		c.Skipped = &testResult{Message: res.Message}
	}
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
