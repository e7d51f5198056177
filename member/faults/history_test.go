package faults

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// line is what a command of a duty wrote about itself.
type line struct {
	what      string        // start, end, stopped (by SIGTERM) or overlap
	at        time.Duration // since this machine started
	pid       int
	duty, who string
	version   string
	epoch     int64
	tick      string // RFC 3339; empty for a leader
	attempt   int
	place     int // in the file
}

// readRuns reads all lines that commands wrote below dir.
func readRuns(dir string) ([]line, error) {
	body, err := os.ReadFile(filepath.Join(dir, "runs"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []line
	for text := range strings.Lines(string(body)) {
		l, err := parseLine(text)
		if err != nil {
			return nil, err
		}
		l.place = len(all)
		all = append(all, l)
	}
	return all, nil
}

func parseLine(text string) (l line, err error) {
	words := strings.Fields(text)
	if len(words) != 9 {
		return l, fmt.Errorf("%q has %d words", text, len(words))
	}
	for i, w := range words {
		if w == "-" {
			words[i] = ""
		}
	}
	number := func(text string) int64 {
		if text == "" {
			return 0
		}
		n, e := strconv.ParseInt(text, 10, 64)
		if e != nil {
			err = e
		}
		return n
	}
	l = line{
		what: words[0], at: time.Duration(number(words[1])), pid: int(number(words[2])), duty: words[3], who: words[4],
		version: words[5], epoch: number(words[6]), tick: words[7], attempt: int(number(words[8])),
	}
	return l, err
}

// run is one run of a command.
type run struct {
	line     // its start
	end      time.Duration
	what     string // its last word; "" if it was killed
	finished bool
}

// runsOf joins starts and ends: the runs of each duty, by start. A command that found another one alive is a problem.
func runsOf(lines []line) (byDuty map[string][]run, problems []string) {
	byDuty = map[string][]run{}
	open := map[string]int{} // by duty and pid
	for _, l := range lines {
		key := fmt.Sprint(l.duty, " ", l.pid)
		switch l.what {
		case "start":
			open[key] = len(byDuty[l.duty])
			byDuty[l.duty] = append(byDuty[l.duty], run{line: l})
		case "overlap":
			problems = append(problems, fmt.Sprintf("%s: %s started it for epoch %d while another command of it lived",
				l.duty, l.who, l.epoch))
		default:
			i, ok := open[key]
			if !ok || byDuty[l.duty][i].epoch != l.epoch {
				problems = append(problems, fmt.Sprintf("%s: an end without a start: %+v", l.duty, l))
				continue
			}
			r := &byDuty[l.duty][i]
			r.end, r.what, r.finished = l.at, l.what, l.what == "end"
			delete(open, key)
		}
	}
	for _, runs := range byDuty {
		slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(a.at, b.at) })
	}
	return byDuty, problems
}

// checkRuns says what is wrong with the runs of a duty: two at once, an epoch that is smaller than one before, or that
// two members have.
func checkRuns(duty string, runs []run) (problems []string) {
	for i, r := range runs[1:] {
		last := runs[i]
		if last.end > r.at {
			problems = append(problems, fmt.Sprintf("%s: %s ran until %s, and %s from %s", duty, last.who, last.end, r.who,
				r.at))
		}
		switch {
		case r.epoch < last.epoch:
			problems = append(problems, fmt.Sprintf("%s: epoch %d of %s after %d of %s", duty, r.epoch, r.who, last.epoch,
				last.who))
		case r.epoch == last.epoch && (r.who != last.who || r.tick == ""):
			problems = append(problems, fmt.Sprintf("%s: epoch %d twice: %s and %s", duty, r.epoch, last.who, r.who))
		}
	}
	return problems
}
