package page

import (
	"strings"

	"muster/report"
	"muster/text"
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
func stepsOf(j report.JobStatus) []step {
	all := steps(report.NextStep(j))
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
	tokens := strings.Split(line[start:], " ")
	end, quoted := 2, false
	for i := 2; i < len(tokens) && !strings.ContainsAny(tokens[i-1][len(tokens[i-1])-1:], ",;"); i++ {
		t := tokens[i]
		if t == "" || tokens[i-1] == "" {
			break
		}
		isArgument := strings.ContainsAny(t[:1], "/-'") || t == strings.ToUpper(t) || quoted
		isValue := strings.HasPrefix(tokens[i-1], "--") && len(tokens[i-1]) > 2 && tokens[i-1] != "--watch"
		if isArgument || isValue {
			end = i + 1
		}
		quoted = quoted != (strings.Count(t, "'")%2 == 1)
	}
	command := strings.Join(tokens[:min(end, len(tokens))], " ")
	after := strings.TrimPrefix(line[start:], command)
	if trimmed := strings.TrimRight(command, ",;"); trimmed != command {
		command, after = trimmed, command[len(trimmed):]+after
	}
	return step{word(line[:start]), word(command), word(after)}
}
