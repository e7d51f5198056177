package report

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"strings"

	"muster/text"
)

// github writes workflow commands: an annotation for each problem and each item that needs attention, at the file and
// line of its declaration, the most serious first. If GitHub does not show all of a kind, the last one counts the rest.
func (r Run) github() ([]byte, error) {
	const most = 10 // annotations of one kind that GitHub shows for a step
	byCommand := map[string][]annotation{}
	add := func(command string, a annotation) { byCommand[command] = append(byCommand[command], a) }
	for _, p := range r.Problems {
		command := "error"
		if p.Warning {
			command = "warning"
		}
		text := strings.Join(text.NonEmpty(p.Summary, p.Detail, nextLine(p.Next)), "\n")
		add(command, annotation{p.At, strings.TrimSpace("muster " + r.Command + " " + cmp.Or(p.Policy, p.Code)), text})
	}
	items, _ := r.items()
	for _, it := range joinEqual(items) {
		command := map[level]string{failure: "error", warning: "warning", note: "notice"}[it.level]
		if command == "" {
			continue
		}
		text := strings.Join(text.NonEmpty(it.summary()+": "+it.because, nextLine(it.next)), "\n")
		add(command, annotation{it.row.At(), "muster " + r.Command + ": " + it.word + " " + it.name(), text})
	}
	for _, s := range r.caveats() {
		add("warning", annotation{"", "muster " + r.Command, s})
	}
	var b bytes.Buffer
	for _, command := range []string{"error", "warning", "notice"} {
		all := byCommand[command]
		if command == "notice" { // every run has the line of counts
			all = append([]annotation{{"", "muster " + r.Command, r.headline()}}, all...)
		}
		if more := len(all) - most; more > 0 {
			all = append(all[:most-1:most-1], annotation{"", "muster " + r.Command,
				fmt.Sprintf("%d more, which the other reports name", more+1)})
		}
		for _, a := range all {
			a.write(&b, command, r.Dir)
		}
	}
	return b.Bytes(), nil
}

// annotation is one message of a workflow command.
type annotation struct{ at, title, text string }

func (a annotation) write(b *bytes.Buffer, command, dir string) {
	b.WriteString("::" + command + " ")
	if file, line := splitPlace(a.at); file != "" {
		if !path.IsAbs(file) {
			file = path.Join(dir, file)
		}
		fmt.Fprintf(b, "file=%s,", escapeProperty(file))
		if line != "" {
			fmt.Fprintf(b, "line=%s,", escapeProperty(line))
		}
	}
	fmt.Fprintf(b, "title=%s::%s\n", escapeProperty(a.title), escapeMessage(a.text))
}

// escapeMessage escapes a message of a workflow command. It keeps line breaks and shows other control characters.
func escapeMessage(s string) string {
	return strings.NewReplacer("%", "%25", "\n", "%0A").Replace(text.EscapeLines(s))
}

func escapeProperty(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escapeMessage(s))
}

func nextLine(command string) string {
	if command == "" {
		return ""
	}
	return "Next: " + command
}
