package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"muster/docs"
	"muster/exitcode"
	"muster/text"
)

// explainedWord is what "explain --json" prints of a state, the code of a diagnostic, or an exit code.
type explainedWord struct {
	FormatVersion string `json:"format_version"`
	Word          string `json:"word"`
	Text          string `json:"text"` // markdown
}

// explainWord explains what is no job: the code of a diagnostic, an exit code, or a state. ok is false if arg is none
// of them. A job of such a name is explained by its address or path.
func explainWord(arg string) (page string, ok bool) {
	if page, err := docs.Diagnostics.ReadFile("diagnostics/" + arg + ".md"); err == nil {
		return string(page), true
	}
	if code, err := strconv.Atoi(arg); err == nil && code >= 0 && code <= 255 {
		return explainExit(code), true
	}
	page, ok = states()[arg]
	return page, ok
}

// states are the sections of docs/states.md, by their headings.
func states() map[string]string {
	all := map[string]string{}
	for _, section := range strings.Split(docs.States, "\n## ")[1:] {
		word, _, _ := strings.Cut(section, "\n")
		all[word] = "# " + strings.TrimSpace(section) + "\n"
	}
	return all
}

// explainExit says what an exit code means, and what to do then.
func explainExit(code int) string {
	row, ok := exitcode.Of(code)
	name := row.Name
	if n := code - exitcode.Signal; row.Codes != nil && row.Codes[0] == exitcode.Signal && n > 0 {
		name = fmt.Sprintf("%s: %d, %s", name, n, unix.SignalName(syscall.Signal(n)))
	}
	if !ok {
		return fmt.Sprintf("# Exit code %d\n\nIt is none of muster's: it is that of the command that a worker, a member,\n"+
			"an executor or a watcher ran, or of a script.\n", code)
	}
	text := fmt.Sprintf("# Exit code %d: %s\n\n%s\n", code, name, broken(row.Meaning+"."))
	if row.Remedy != "" {
		text += "\n## What to do\n\n" + broken(row.Remedy+".") + "\n"
	}
	return text + "\ndocs/exit-codes.md says which code comes first when two hold.\n"
}

// broken returns s in lines of at most 80 columns, broken at spaces.
func broken(s string) string {
	var b strings.Builder
	col := 0
	for _, word := range strings.Fields(s) {
		switch n := text.Width(word); {
		case col == 0:
			col = n
		case col+1+n > helpWidth:
			b.WriteByte('\n')
			col = n
		default:
			b.WriteByte(' ')
			col += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}

// wordsToExplain lists the states, and the exit codes of muster, for completion.
func wordsToExplain() []string {
	var all []string
	for word := range states() {
		all = append(all, word)
	}
	for _, row := range exitcode.Table() {
		for _, code := range row.Codes {
			all = append(all, strconv.Itoa(code))
		}
	}
	slices.Sort(all)
	return all
}
