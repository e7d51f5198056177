package report

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strings"

	"muster/plan"
	"muster/text"
)

// MaxMarkdown is the maximum size of a markdown report, in bytes. GitHub accepts 65,536 characters, and the tool that
// posts the report may add some.
const MaxMarkdown = 60_000

// markdown writes a comment for a pull request: counts, then names, then folded details. If these do not fit, it leaves
// out details first, then names, and the names of what is or would be deleted last. The first line is hidden: a
// tool can find an older comment by it and replace that.
func (r Run) markdown() ([]byte, error) {
	var head bytes.Buffer
	fmt.Fprintf(&head, "<!-- muster:%s:%s -->\n### muster %s", marker(r.Command), marker(r.stack()), r.Command)
	if s := r.stack(); s != "" {
		head.WriteString(" of stack " + code(s))
	}
	fmt.Fprintf(&head, "\n\n**%s** (exit code %d: %s)\n", prose(r.headline()), r.ExitCode, r.verdict())
	r.writeWho(&head)
	categories := r.categories()
	writeCounts(&head, categories)
	writeCaveats(&head, r.caveats())
	writeProblems(&head, r.Problems)
	head.WriteString(namesWithin(categories, MaxMarkdown-head.Len()))
	writeDetails(&head, categories, MaxMarkdown-head.Len())
	return head.Bytes(), nil
}

// writeWho says who asked for an apply, with a link to the run of the pipeline.
func (r Run) writeWho(b *bytes.Buffer) {
	if r.asked() == "" {
		return
	}
	b.WriteString("\nBy " + prose(r.asked()))
	if r.Who.URL != "" {
		// The brackets of an address end it, and nothing else in it is markup.
		address := strings.NewReplacer("<", "%3C", ">", "%3E", " ", "%20").Replace(r.Who.URL)
		fmt.Fprintf(b, " in [%s](<%s>)", prose(cmp.Or(r.Who.CI, "this run")), address)
	}
	if r.Who.Commit != "" {
		b.WriteString(", commit " + code(r.Who.Commit))
	}
	b.WriteString("\n")
}

// The size that a page may have after its caveats, and after its problems. The rest is for names and details.
const (
	untilCaveats  = 10_000
	untilProblems = 30_000
)

// writeCaveats writes as many caveats as fit, and counts the rest.
func writeCaveats(b *bytes.Buffer, caveats []string) {
	for i, s := range caveats {
		line := "\n> " + prose(s) + "\n"
		if b.Len()+len(line) > untilCaveats {
			fmt.Fprintf(b, "\n> and %s\n", text.Count(len(caveats)-i, "more restriction"))
			return
		}
		b.WriteString(line)
	}
}

func writeCounts(b *bytes.Buffer, categories []category) {
	if len(categories) == 0 {
		return
	}
	b.WriteString("\n|")
	for _, c := range categories {
		b.WriteString(" " + c.word + " |")
	}
	b.WriteString("\n|" + strings.Repeat("---:|", len(categories)) + "\n|")
	for _, c := range categories {
		fmt.Fprintf(b, " %d |", c.count())
	}
	b.WriteString("\n")
}

// writeProblems writes as many problems as fit, and counts the rest. It cuts a long text.
func writeProblems(b *bytes.Buffer, problems []Problem) {
	const most, longest = 20, 1_000
	for i, p := range problems {
		kind := map[bool]string{true: "warning", false: "error"}[p.Warning]
		switch {
		case p.Policy != "":
			kind = p.Policy + " " + map[bool]string{true: "advises against it", false: "denies it"}[p.Warning]
		case p.Code != "":
			kind += "[" + p.Code + "]"
		}
		at := p.At
		if strings.Contains(p.Detail, at) {
			at = "" // the detail names the place
		}
		lines := text.NonEmpty(kind+": "+p.Summary, at, p.Detail, nextLine(p.Next))
		problem := text.EscapeLines(strings.Join(lines, "\n"))
		if len(problem) > longest {
			problem = strings.ToValidUTF8(problem[:longest], "") + " ..."
		}
		block := "\n" + fenced("", problem)
		if i == most || b.Len()+len(block) > untilProblems {
			fmt.Fprintf(b, "\n%s more, which the other reports name.\n", text.Count(len(problems)-i, "problem"))
			return
		}
		b.WriteString(block)
	}
}

// writeDetails writes the blocks of a plan's text into a fold, as many as fit into room bytes.
func writeDetails(b *bytes.Buffer, categories []category, room int) {
	const frame = 120
	var blocks strings.Builder
	shown, fence := 0, 3
	var left []plan.Row // without details
	for _, c := range categories {
		for _, it := range c.items {
			if it.level == quiet {
				continue
			}
			if len(left) == 0 {
				block := detailsOf(it)
				fence = max(fence, longestRun(block)+1)
				if blocks.Len()+len(block)+2*fence+frame <= room {
					blocks.WriteString(block)
					shown += it.count()
					continue
				}
			}
			left = append(left, it.rows()...)
		}
	}
	title := "Details"
	switch {
	case shown == 0 && len(left) == 0:
		return
	case shown == 0:
		fmt.Fprintf(b, "\nNo room for details of %s.\n", countRows(left))
		return
	case len(left) > 0:
		title = fmt.Sprintf("Details of the first %d; no room for %d more", shown, len(left))
	}
	body := fenced("diff", strings.TrimRight(blocks.String(), "\n"))
	fmt.Fprintf(b, "\n<details><summary>%s</summary>\n\n%s\n</details>\n", title, body)
}

func detailsOf(it item) string {
	var b strings.Builder
	pg := newPage(&b, Options{Width: 100})
	pg.blocks([]item{it})
	_ = pg.flush() // a strings.Builder returns no error
	return b.String()
}

// code is s as a code span, in which nothing is markup, a mention or a link.
func code(s string) string {
	s = text.Escape(s)
	fence := strings.Repeat("`", longestRun(s)+1)
	if s == "" || strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") || s[0] == ' ' {
		s = " " + s + " "
	}
	return fence + s + fence
}

func fenced(language, text string) string {
	fence := strings.Repeat("`", max(3, longestRun(text)+1))
	return fence + language + "\n" + text + "\n" + fence + "\n"
}

// longestRun is the length of the longest run of backticks in s.
func longestRun(s string) int {
	longest := 0
	for _, run := range strings.FieldsFunc(s, func(c rune) bool { return c != '`' }) {
		longest = max(longest, len(run))
	}
	return longest
}

// prose is s as text in which nothing is markup, a mention or a reference to an issue.
func prose(s string) string {
	return strings.NewReplacer(
		"&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "@<!-- -->", "#", "#<!-- -->", `\`, `\\`, "|", `\|`,
		"`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "~", `\~`, "$", `\$`,
	).Replace(text.Escape(s))
}

// marker is s as one word for an HTML comment, which must not hold two hyphens in a row.
func marker(s string) string {
	var b strings.Builder
	for _, c := range text.Escape(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '.',
			c == '-' && !strings.HasSuffix(b.String(), "-"):
			b.WriteRune(c)
		default:
			fmt.Fprintf(&b, "=%x", c)
		}
	}
	return strings.TrimSuffix(b.String(), "-")
}

// namesWithin lists the items that need attention in at most room bytes, one paragraph for each category. It uses the
// most detailed form that fits.
func namesWithin(categories []category, room int) string {
	const forDetails, forNote = 2_000, 100 // what the details of a few jobs need, and a note that they have no room
	for _, f := range []nameForm{{changes: true, because: true}, {changes: true}, {}} {
		if names := namesOf(categories, f, math.MaxInt); len(names)+forDetails <= room {
			return names
		}
	}
	return namesOf(categories, nameForm{}, room-forNote)
}

// nameForm says what is written besides names.
type nameForm struct{ changes, because bool }

// namesOf names the first hundred items of each category, as far as there is room, and counts the rest. What is or
// would be deleted is named before all others.
func namesOf(categories []category, f nameForm, room int) string {
	const most = 100
	for _, c := range categories {
		room -= len(heading(c)) + 2*len(andMore(c.count(), true))
	}
	lines, named := make([]strings.Builder, len(categories)), make([]int, len(categories))
	for _, deletes := range []bool{true, false} {
		for i, c := range categories {
			left := 0
			for _, it := range c.items {
				if it.level == quiet || it.row.Deletes() != deletes {
					continue
				}
				line := bullet(it, f)
				if named[i] == most || len(line) > room {
					left += it.count()
					continue
				}
				named[i]++
				room -= len(line)
				lines[i].WriteString(line)
			}
			lines[i].WriteString(andMore(left, deletes))
		}
	}
	var b strings.Builder
	for i, c := range categories {
		if lines[i].Len() > 0 {
			b.WriteString(heading(c) + lines[i].String())
		}
	}
	return b.String()
}

func heading(c category) string { return fmt.Sprintf("\n**%s (%d)**\n\n", c.word, c.count()) }

// bullet is one item: its name, what changes, and why. Items that are equal always say what changes.
func bullet(it item, f nameForm) string {
	line := "- " + code(it.row.Address())
	if block, _, _ := it.instance(); len(it.equal) > 0 {
		line = "- " + text.Thousands(it.count()) + " × " + code(block+`["…"]`)
	}
	var what []string
	if len(it.changes) > 0 && (f.changes || len(it.equal) > 0) {
		what = append(what, code(it.changesText()))
	}
	if f.because && it.because != "" {
		what = append(what, prose(it.because))
	}
	if len(what) > 0 {
		line += ": " + strings.Join(what, "; ")
	}
	return line + "\n"
}

// andMore is the line that counts what is not named. That of what is or would be deleted stands out.
func andMore(n int, deletes bool) string {
	line := fmt.Sprintf("and %d more, which the json report names", n)
	switch {
	case n == 0:
		return ""
	case deletes:
		line = "**" + line + "**"
	}
	return "- " + line + "\n"
}
