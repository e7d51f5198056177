package report

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"muster/text"
)

// annotations is how many of one kind GitHub shows for a step.
const annotations = 10

// github writes workflow commands: an annotation for each problem and each item that deserves attention, in the file and
// line of its declaration, the most serious first. Beyond what GitHub shows, the last of a kind counts the rest.
func (r Run) github() []byte {
	of := map[string][]annotation{}
	add := func(command string, a annotation) { of[command] = append(of[command], a) }
	for _, p := range r.Problems {
		command := "error"
		if p.Warning {
			command = "warning"
		}
		text := strings.Join(nonEmpty(p.Summary, p.Detail, nextLine(p.Next)), "\n")
		add(command, annotation{p.At, strings.TrimSpace("muster " + r.Command + " " + p.Code), text})
	}
	items, _ := r.items()
	for _, it := range items {
		command := map[level]string{failure: "error", warning: "warning", note: "notice"}[it.level]
		if command == "" {
			continue
		}
		at := ""
		if it.row.New != nil {
			at = it.row.At()
		}
		text := strings.Join(nonEmpty(it.row.Address()+": "+it.because, nextLine(it.next)), "\n")
		add(command, annotation{at, "muster " + r.Command + ": " + it.word + " " + it.row.Address(), text})
	}
	for _, s := range r.caveats() {
		add("warning", annotation{"", "muster " + r.Command, s})
	}
	var b bytes.Buffer
	for _, command := range []string{"error", "warning", "notice"} {
		all := of[command]
		if command == "notice" { // the counts come with every run
			all = append([]annotation{{"", "muster " + r.Command, r.headline()}}, all...)
		}
		if more := len(all) - annotations; more > 0 {
			all = append(all[:annotations-1:annotations-1], annotation{"", "muster " + r.Command,
				fmt.Sprintf("%d more, which the other reports name", more+1)})
		}
		for _, a := range all {
			a.write(&b, command, r.Dir)
		}
	}
	return b.Bytes()
}

// annotation is one message of a workflow command.
type annotation struct{ at, title, text string }

func (a annotation) write(b *bytes.Buffer, command, dir string) {
	b.WriteString("::" + command + " ")
	if file, line := split(a.at); file != "" {
		if !path.IsAbs(file) {
			file = path.Join(dir, file)
		}
		fmt.Fprintf(b, "file=%s,", property(file))
		if line != "" {
			fmt.Fprintf(b, "line=%s,", property(line))
		}
	}
	fmt.Fprintf(b, "title=%s::%s\n", property(a.title), message(a.text))
}

// message escapes what would end a workflow command. Line breaks within it are ours; all other control characters are
// shown.
func message(s string) string {
	return strings.NewReplacer("%", "%25", "\n", "%0A").Replace(text.EscapeLines(s))
}

// property escapes also what would end a property.
func property(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(message(s))
}

func nextLine(command string) string {
	if command == "" {
		return ""
	}
	return "Next: " + command
}

func nonEmpty(all ...string) []string {
	var some []string
	for _, s := range all {
		if s != "" {
			some = append(some, s)
		}
	}
	return some
}
