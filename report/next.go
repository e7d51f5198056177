package report

import (
	"slices"
	"strings"

	"muster/text"
)

// Given is what the user gave and what a command that is printed as a next step has to repeat, by the name of the
// command: "apply", "state list". A command that is not in it repeats nothing.
type Given map[string]Repeat

// Repeat is what one command has to repeat, quoted for a shell.
type Repeat struct {
	Words string // "-C prod --servers zk-1:2181"; may be empty
	Root  string // "--root /jobs/prod"; not repeated if the command names a root, or begins with a path
}

// Paste puts into a next step what each command in it has to repeat, right behind the name of the command: "muster
// apply" becomes "muster apply -C prod". What is in single quotes at the begin of a word is a name, not a command.
func (g Given) Paste(step string) string {
	if len(g) == 0 {
		return step
	}
	var b strings.Builder
	for rest := step; rest != ""; {
		n := wordEnd(rest)
		word, after := rest[:n], rest[n:]
		b.WriteString(word)
		rest = after
		if strings.TrimLeft(word, "(") != "muster" {
			continue
		}
		name, ok := g.commandAt(after)
		if !ok || strings.HasPrefix(after[len(name):], " --help") {
			continue
		}
		rest = after[len(name):]
		b.WriteString(name)
		for _, add := range g[strings.TrimSpace(name)].wordsFor(rest) {
			b.WriteString(" " + add)
		}
	}
	return b.String()
}

// commandAt returns the longest name of a command at the begin of s, with the spaces before its words.
func (g Given) commandAt(s string) (name string, ok bool) {
	for n := 0; strings.HasPrefix(s[n:], " "); {
		n++
		n += strings.IndexFunc(s[n:]+" ", func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') })
		if _, known := g[strings.TrimSpace(s[:n])]; !known || s[n-1] == ' ' {
			break
		}
		name, ok = s[:n], true
	}
	return name, ok
}

// wordsFor lists what to repeat before the arguments that follow the name of a command.
func (r Repeat) wordsFor(arguments string) []string {
	words := nonEmpty(r.Words)
	end := strings.IndexAny(arguments, ";&\n")
	if end < 0 {
		end = len(arguments)
	}
	first := strings.TrimLeft(arguments, " '")
	if r.Root != "" && !strings.HasPrefix(first, "/") && !strings.Contains(arguments[:end], "--root") {
		words = append(words, r.Root)
	}
	return words
}

// wordEnd is the length of the first word of s, with its quoted part, or of the space at its begin.
func wordEnd(s string) int {
	if s[0] == ' ' || s[0] == '\n' {
		return len(s) - len(strings.TrimLeft(s, " \n"))
	}
	n := 0
	for n < len(s) && s[n] == '\'' { // text.ShellWord writes a quote in quotes as '\''
		end := strings.IndexByte(s[n+1:], '\'')
		if end < 0 {
			break
		}
		n += end + 2
		if strings.HasPrefix(s[n:], `\'`) {
			n += 2
		}
	}
	if end := strings.IndexAny(s[n:], " \n"); end >= 0 {
		return n + end
	}
	return len(s)
}

// StepLines splits a next step into lines of at most so many columns: one line for each thing that can be done. It
// never breaks a command, so a line may be longer.
func StepLines(step string, columns int) []string {
	if text.Width(text.Escape(step)) <= columns || !strings.Contains(step, "muster ") {
		return []string{step}
	}
	var lines []string
	start := 0
	for at := 0; at < len(step); {
		n := wordEnd(step[at:])
		word := step[at : at+n]
		at += n
		switch {
		case strings.HasSuffix(word, ";"):
			lines, start = append(lines, strings.TrimSpace(step[start:at-1])), at
		case strings.HasSuffix(word, ",") && strings.HasPrefix(step[at:], " or "):
			lines, start = append(lines, strings.TrimSpace(step[start:at-1])), at
		}
	}
	lines = append(lines, strings.TrimSpace(step[start:]))
	return slices.DeleteFunc(lines, func(s string) bool { return s == "" })
}
