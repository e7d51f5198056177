package faults

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"muster/resource/queue"
	"muster/zkstate/znode"
)

// record is one line of results.
type record struct {
	Index   int64   `json:"index"`
	Attempt int     `json:"attempt"`
	Exit    *int    `json:"exit"`
	Result  *string `json:"result"`
	Base64  *string `json:"base64"`
	Error   string  `json:"error"`
}

// text is the result, and whether there is one.
func (r record) text() (string, bool) {
	if r.Result != nil {
		return *r.Result, true
	}
	if r.Base64 != nil {
		body, err := base64.StdEncoding.DecodeString(*r.Base64)
		return string(body), err == nil
	}
	return "", false
}

// finding is what somebody found who got the results of a batch.
type finding struct {
	Batch    string   `json:"batch"`
	Done     int      `json:"done"`
	Dead     int      `json:"dead"`
	Again    int      `json:"again"`  // tasks that were not at their first attempt
	Digest   string   `json:"digest"` // of all lines, sorted
	Problems []string `json:"problems"`
}

const maxProblems = 10

// check reads the results of a batch, and compares them with what they must be: each task once, its result the right
// one, and dead who is meant to be.
func check(b batch, in io.Reader) (finding, error) {
	f := finding{Batch: b.id()}
	problem := func(format string, args ...any) {
		if len(f.Problems) < maxProblems {
			f.Problems = append(f.Problems, b.id()+": "+fmt.Sprintf(format, args...))
		}
	}
	seen := make([]bool, b.tasks)
	var lines []string
	lineReader := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := lineReader.ReadString('\n')
		if err == io.EOF && line == "" {
			break
		}
		if err != nil {
			return f, fmt.Errorf("%s: %w after %d lines", b.id(), err, len(lines))
		}
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return f, fmt.Errorf("%s: %w: %.200q", b.id(), err, line)
		}
		lines = append(lines, line)
		if r.Index < 0 || r.Index >= int64(b.tasks) {
			problem("there is no task %d", r.Index)
			continue
		}
		i := int(r.Index)
		if seen[i] {
			problem("task %d is there twice", i)
		}
		seen[i] = true
		result, ok := r.text()
		switch {
		case ok != (b.kind(i) != poison):
			problem("task %d, which is %q: a result is %t: %.500s", i, b.kind(i), ok, line)
		case ok && result != answer(b.payload(i)):
			problem("task %d has the result %.50q, not %.50q", i, result, answer(b.payload(i)))
		}
		if ok {
			f.Done++
		} else {
			f.Dead++
		}
		if r.Attempt > 1 {
			f.Again++
		}
	}
	for i, ok := range seen {
		if !ok {
			problem("task %d is not there", i)
		}
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	f.Digest = hex.EncodeToString(sum[:])
	return f, nil
}

// note appends a finding to a file with one write, so that those of several processes stay whole.
func note(path string, found finding) error {
	body, err := json.Marshal(found)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(body, '\n'))
	return err
}

// readLedger reads the findings of all watchers by batch. A batch may be there twice, if both are equal.
func readLedger(path string) (found map[string]finding, twice int, problems []string, err error) {
	body, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, 0, nil, err
	}
	found = map[string]finding{}
	for line := range strings.Lines(string(body)) {
		var f finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			return nil, 0, nil, fmt.Errorf("%q: %w", line, err)
		}
		before, ok := found[f.Batch]
		if ok {
			twice++
			if before.Digest != f.Digest {
				problems = append(problems, fmt.Sprintf("%s: its watchers got different results: %+v, %+v", f.Batch, before, f))
			}
		}
		found[f.Batch] = f
		problems = append(problems, f.Problems...)
	}
	return found, twice, problems, nil
}

// TestTheCheckFinds: what a soak would miss if it were not found here.
func TestTheCheckFinds(t *testing.T) {
	b := batch{seed: 1, n: 1, tasks: 20} // its first task is meant to die
	var right []string
	for i := range b.tasks {
		line := fmt.Sprintf(`{"index":%d,"attempt":1,"result":%q}`, i, answer(b.payload(i)))
		if b.kind(i) == poison {
			line = fmt.Sprintf(`{"index":%d,"attempt":1,"dead":true,"error":"x"}`, i)
		}
		right = append(right, line)
	}
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"all is well":      {right, ""},
		"one is missing":   {right[:19], "task 19 is not there"},
		"one is twice":     {append(right[:20:20], right[7]), "task 7 is there twice"},
		"another batch's":  {append(right[:20:20], `{"index":20,"result":"x"}`), "there is no task 20"},
		"a wrong result":   {append(right[:19:19], `{"index":19,"result":"x"}`), "task 19 has the result"},
		"an innocent dies": {append(right[:19:19], `{"index":19,"dead":true,"error":"x"}`), "task 19, which is"},
		"poison lives":     {append([]string{`{"index":0,"result":"x"}`}, right[1:]...), "task 0, which is"},
	} {
		found, err := check(b, strings.NewReader(strings.Join(c.lines, "\n")+"\n"))
		if err != nil {
			t.Error(err)
		}
		if got := strings.Join(found.Problems, "; "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}

// verify checks what happened.
func (k *soakRun) verify() {
	found, twice, problems, err := readLedger(k.dir + "/ledger")
	if err != nil {
		k.t.Fatal(err)
	}
	ended, err := k.ended()
	if err != nil {
		k.t.Fatal(err)
	}
	total := finding{}
	for _, b := range k.batches {
		end, ok := ended[b.id()]
		if !ok {
			problems = append(problems, b.id()+" has not ended")
			continue
		}
		how := map[queue.Results]znode.EndState{
			queue.ResultsWatcher: znode.EndCollected, queue.ResultsSubmitter: znode.EndCollected,
			queue.ResultsDiscard: znode.EndDiscarded,
		}[b.results()]
		if _, keep := b.results().Keep(); keep {
			how = znode.EndCancelled
		}
		if end.How != how || end.Done+end.Dead != int64(b.tasks) || end.Dead != int64(b.dead()) {
			problems = append(problems, fmt.Sprintf("%s, of which %d are meant to die, ended as %+v", b.id(), b.dead(), end))
		}
		f, ok := found[b.id()]
		if b.results() != queue.ResultsWatcher {
			f, ok = k.received[b.id()]
			problems = append(problems, f.Problems...)
		}
		if !ok && b.results() != queue.ResultsDiscard {
			problems = append(problems, "nobody got the results of "+b.id())
		}
		total.Done, total.Dead, total.Again = total.Done+f.Done, total.Dead+f.Dead, total.Again+f.Again
	}
	if s, err := k.state(); err != nil || len(s.Batches)+len(s.Processes) > 0 || len(s.Unread) > 0 {
		problems = append(problems, fmt.Sprintf("left in ZooKeeper: %+v, %v", s, err))
	}
	slices.Sort(problems)
	const most = 30
	for _, p := range problems[:min(len(problems), most)] {
		k.t.Error(p)
	}
	k.t.Logf("results: %d done, %d dead, %d after more than one attempt; %d batches were watched twice; %d problems",
		total.Done, total.Dead, total.Again, twice, len(problems))
}
