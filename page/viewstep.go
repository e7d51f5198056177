package page

import (
	"strings"

	"muster/report"
	"muster/text"
	"muster/view"
)

// step is a next step, with its command apart.
type step struct{ Before, Command, After word }

// steps splits what report says that one can do next: one step for each thing that can be done.
func steps(next string) []step {
	if next == "" {
		return nil
	}
	var all []step
	for _, line := range report.StepLines(next, 1) {
		all = append(all, splitStep(line))
	}
	return all
}

// stepsOf are the next steps for j. Those for batches that failed are only here: status prints them as what is amiss.
func stepsOf(j view.Resource) []step {
	all := steps(j.NextStep())
	if j.Queue == nil {
		return all
	}
	if lost := j.Queue.Lost; len(lost) > 0 {
		all = append(all, step{Before: word("submit " + text.List(lost, 3) + " again with the same --id")})
	}
	if failed := j.Queue.Failed; len(failed) > 0 {
		batch := text.ShellWord(j.Path + "/" + failed[0])
		all = append(all, step{"", word("muster batch " + batch), " says why watchers failed"},
			step{"", word("muster retry " + batch), " lets them try again"})
	}
	return all
}

// splitStep finds the command in a sentence: "muster", the name of the command, and all up to its last flag, path or
// placeholder.
func splitStep(line string) step {
	start := strings.Index(line, "muster ")
	if start < 0 {
		return step{Before: word(line)}
	}
	words := shellWords(line[start:])
	end := min(2, len(words))
	for i := end; i < len(words) && !strings.HasSuffix(words[i-1], ",") && !strings.HasSuffix(words[i-1], ";"); i++ {
		w, before := words[i], words[i-1]
		isArgument := w != "" && strings.ContainsAny(w[:1], "/-'") || w == strings.ToUpper(w)
		isValue := strings.HasPrefix(before, "--") && before != "--" && before != "--watch"
		if isArgument || isValue {
			end = i + 1
		}
	}
	command := strings.Join(words[:end], " ")
	after := strings.TrimPrefix(line[start:], command)
	if trimmed := strings.TrimRight(command, ",;"); trimmed != command {
		command, after = trimmed, command[len(trimmed):]+after
	}
	return step{word(line[:start]), word(command), word(after)}
}

// shellWords splits s at its spaces, but not at those that text.ShellWord has quoted.
func shellWords(s string) []string {
	var words []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\'':
			quoted = !quoted
		case s[i] == '\\' && !quoted:
			i++
		case s[i] == ' ' && !quoted:
			words, start = append(words, s[start:i]), i+1
		}
	}
	return append(words, s[start:])
}
