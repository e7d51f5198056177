package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/resource/group"
	"muster/resource/group/schedule"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// ledger is what ZooKeeper has said about the ticks of one cron. Records are kept when the holder has deleted them.
type ledger struct {
	duty    group.Duty
	first   time.Time // the first cursor that was seen: what is after it is accounted for
	cursor  time.Time // the last one
	records map[time.Time]entry
}

// entry is a record.
type entry struct {
	znode.TickRecord
	created int64 // zxid
}

// books are the ledgers of all crons.
type books struct {
	w   *world
	all map[string]*ledger
}

func newBooks(w *world) *books {
	b := &books{w: w, all: map[string]*ledger{}}
	for _, d := range w.group.Duties {
		if d.Type == group.Cron {
			b.all[d.Name] = &ledger{duty: d, records: map[time.Time]entry{}}
		}
	}
	return b
}

// read reads what is new. It must be called before so many runs have ended as the crons keep.
func (b *books) read(ctx context.Context) error {
	s := b.w.session()
	for _, name := range slices.Sorted(maps.Keys(b.all)) {
		if err := b.all[name].read(ctx, s, b.w); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (l *ledger) read(ctx context.Context, s *zkconn.Session, w *world) error {
	body, _, err := s.Get(ctx, znode.Cursor(w.group.Root, w.generation, l.duty.Name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil // nobody has had it
	}
	if err != nil {
		return err
	}
	cursor, err := znode.Decode[znode.TickCursor](body)
	if err != nil {
		return err
	}
	if l.first.IsZero() {
		l.first = cursor.Tick
	}
	if cursor.Tick.Before(l.cursor) {
		return fmt.Errorf("the cursor went back from %s to %s", l.cursor, cursor.Tick)
	}
	l.cursor = cursor.Tick
	names, _, err := s.Children(ctx, znode.Ticks(w.group.Root, w.generation, l.duty.Name))
	if err != nil {
		return err
	}
	for _, name := range names {
		at, err := znode.TickTime(name)
		if err != nil {
			return err
		}
		if old, ok := l.records[at]; ok && old.Final() {
			continue
		}
		body, stat, err := s.Get(ctx, znode.Tick(w.group.Root, w.generation, l.duty.Name, at))
		if errors.Is(err, zkconn.ErrNoNode) {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		r, err := znode.Decode[znode.TickRecord](body)
		if err != nil {
			return err
		}
		l.records[at] = entry{r, stat.Czxid}
	}
	return nil
}

// counts says how many ticks had which fate.
func (l *ledger) counts() map[znode.TickState]int {
	n := map[znode.TickState]int{}
	for at, r := range l.records {
		switch {
		case !at.After(l.first):
		case r.Range():
			n[r.State] += r.Count
		default:
			n[r.State]++
		}
	}
	return n
}

// check holds the ledger against the schedule, and against what the commands wrote: every tick has one fate, and what
// is recorded as run has run.
func (l *ledger) check(runs []run) (problems []string) {
	say := func(format string, args ...any) {
		problems = append(problems, l.duty.Name+": "+fmt.Sprintf(format, args...))
	}
	if l.first.IsZero() {
		return []string{l.duty.Name + ": no cursor was ever seen"}
	}
	fates, more := l.fates()
	problems = append(problems, more...)
	sched, err := schedule.Parse(l.duty.Schedule, l.duty.Timezone)
	if err != nil {
		return append(problems, err.Error())
	}
	ticks := 0
	for at, ok := sched.Next(l.first); ok && !at.After(l.cursor); at, ok = sched.Next(at) {
		ticks++
		if n := fates[at]; n != 1 {
			say("tick %s was accounted for %d times", at.Format(time.TimeOnly), n)
		}
		delete(fates, at)
	}
	for _, at := range slices.SortedFunc(maps.Keys(fates), time.Time.Compare) {
		if at.After(l.first) {
			say("%s is recorded, and is no tick up to the cursor %s", at, l.cursor)
		}
	}
	if ticks == 0 {
		say("it had no tick")
	}
	return append(problems, l.checkRuns(runs)...)
}

// fates counts how often each tick is recorded. A range that is wrong in itself is a problem.
func (l *ledger) fates() (fates map[time.Time]int, problems []string) {
	fates = map[time.Time]int{}
	sched, err := schedule.Parse(l.duty.Schedule, l.duty.Timezone)
	if err != nil {
		return fates, []string{err.Error()}
	}
	for at, r := range l.records {
		if !r.Range() {
			fates[at]++
			continue
		}
		n := 0
		for tick, ok := sched.Next(r.First.Add(-time.Second)); ok && !tick.After(r.Last); tick, ok = sched.Next(tick) {
			fates[tick.UTC()]++
			n++
		}
		if n != r.Count && !r.More || !r.Last.Equal(at) {
			problems = append(problems, fmt.Sprintf("%s: the range %s has %d ticks: %+v", l.duty.Name, at, n, r.TickRecord))
		}
	}
	return fates, problems
}

// checkRuns holds the records against what the commands wrote.
func (l *ledger) checkRuns(runs []run) (problems []string) {
	say := func(format string, args ...any) {
		problems = append(problems, l.duty.Name+": "+fmt.Sprintf(format, args...))
	}
	started, finished := map[time.Time]int{}, map[time.Time]int{}
	for _, r := range runs {
		at, err := time.Parse(time.RFC3339, r.tick)
		if err != nil {
			say("a run without a tick: %+v", r.line)
			continue
		}
		started[at]++
		if r.finished {
			finished[at]++
		}
		if e, ok := l.records[at]; at.After(l.first) && (!ok || e.Range()) {
			say("%s ran at %s, and the record says %q", r.who, at.Format(time.TimeOnly), e.State)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(l.records), time.Time.Compare) {
		r := l.records[at]
		atMostOnce := l.duty.Lost == group.LostSkip && l.duty.Retries == 0
		switch {
		case atMostOnce && started[at] > 1:
			say("tick %s began %d times, and it is to run at most once", at.Format(time.TimeOnly), started[at])
		case r.State == znode.TickDone && finished[at] == 0:
			say("tick %s is recorded as done, and no run of it came to its end", at.Format(time.TimeOnly))
		case l.duty.Lost == group.LostRerun && (r.State == znode.TickLost || r.State == znode.TickFailed):
			say("tick %s is %s, and it is to be run again: %s", at.Format(time.TimeOnly), r.State, r.Because)
		}
	}
	return problems
}

// totals adds up the counts of all crons.
func (b *books) totals() string {
	n := map[znode.TickState]int{}
	for _, l := range b.all {
		for state, count := range l.counts() {
			n[state] += count
		}
	}
	text := ""
	for _, state := range slices.SortedFunc(maps.Keys(n), cmp.Compare[znode.TickState]) {
		text += fmt.Sprintf("%d %s, ", n[state], state)
	}
	return text
}

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
