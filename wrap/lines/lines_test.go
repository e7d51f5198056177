package lines

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/sim/rig"
)

// numbered is the tasks t0, t1, …
func numbered(n int) (payloads, done []string) {
	for i := range n {
		payloads = append(payloads, fmt.Sprintf("t%d", i))
		done = append(done, fmt.Sprintf("done t%d", i))
	}
	return payloads, done
}

// echo is a shell script that answers each line with itself, after what stands before that.
const echo = `echo $$ >>"$DIR/starts"; while IFS= read -r line; do %s
echo "$line"; done`

// lineCrew is a crew with a script that finds a directory in DIR.
func lineCrew(t *testing.T, g *given, lines Format, script string) (*Crew, func() int) {
	t.Helper()
	w := crewOf(t, g, lines, "sh", "-c", script)
	dir := t.TempDir()
	w.Environ = append(w.Environ, "DIR="+dir)
	return w, func() int {
		text, err := os.ReadFile(filepath.Join(dir, "starts"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
}

// TestLines: tasks go to one process, and their answers come in order.
func TestLines(t *testing.T) {
	payloads, done := numbered(5000)
	g := newGiven(t, payloads...)
	w, starts := lineCrew(t, g, Plain, fmt.Sprintf(echo, ""))
	if err := w.runAll(t, 1); err != nil {
		t.Fatal(err)
	}
	g.want(done...)
	if n := starts(); n != 1 {
		t.Errorf("the command was started %d times", n)
	}
}

// TestOneTaskCrashesTheCommand: the tasks around it are done, and only it is charged: twice.
func TestOneTaskCrashesTheCommand(t *testing.T) {
	payloads, done := numbered(1000)
	done[700] = "dead exit 7: bad t700"
	g := newGiven(t, payloads...)
	w, _ := lineCrew(t, g, Plain,
		fmt.Sprintf(echo, `[ "$line" = t700 ] && { echo "bad $line" >&2; exit 7; }`))
	if err := w.runAll(t, 1); err != nil {
		t.Fatal(err)
	}
	g.want(done...)
	if len(g.again) != 2 || g.returned != 0 {
		t.Errorf("failures %q; %d tasks were given back", g.again, g.returned)
	}
}

// TestACommandThatEndsAfterSomeTasks: nothing is charged when it ends well before it has read all.
func TestACommandThatEndsAfterSomeTasks(t *testing.T) {
	payloads, done := numbered(50)
	g := newGiven(t, payloads...)
	w, starts := lineCrew(t, g, Plain,
		`echo $$ >>"$DIR/starts"; for i in 1 2 3 4 5 6 7; do read -r line && echo "$line"; done`)
	if err := w.runAll(t, 1); err != nil {
		t.Fatal(err)
	}
	g.want(done...)
	if len(g.again) != 0 || starts() < 8 {
		t.Errorf("failures %q, %d starts", g.again, starts())
	}
}

// TestTheTimeOfALine: a task that takes too long is charged, and no other.
func TestTheTimeOfALine(t *testing.T) {
	payloads, done := numbered(100)
	done[50] = "dead no answer within 500ms"
	g := newGiven(t, payloads...)
	for _, task := range g.waits {
		task.Timeout = short
	}
	w, _ := lineCrew(t, g, Plain, fmt.Sprintf(echo, `[ "$line" = t50 ] && sleep 1000`))
	if err := w.runAll(t, 1); err != nil {
		t.Fatal(err)
	}
	g.want(done...)
	if len(g.again) != 2 {
		t.Errorf("failures %q", g.again)
	}
}

// TestACancelledLine: the process is ended, and the other tasks are done.
func TestACancelledLine(t *testing.T) {
	payloads, done := numbered(20)
	g := newGiven(t, payloads...)
	sleeper := g.waits[10]
	w, starts := lineCrew(t, g, Plain, fmt.Sprintf(echo, `[ "$line" = t10 ] && { : >"$DIR/sleeps"; sleep 1000; }`))
	dir := strings.TrimPrefix(w.Environ[len(w.Environ)-1], "DIR=")
	ended := make(chan error)
	go func() { ended <- w.Run(t.Context(), 1) }()
	rig.Await(t, "the task sleeps", func() bool {
		_, err := os.Stat(filepath.Join(dir, "sleeps"))
		return err == nil
	})
	g.over[sleeper](errors.New("cancelled"))
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	delete(g.results, 10)
	for i, want := range done {
		if i != 10 && g.results[int64(i)] != want {
			t.Errorf("task %d: %q", i, g.results[int64(i)])
		}
	}
	if len(g.again) != 0 || g.returned != 1 || starts() != 2 {
		t.Errorf("failures %q, %d given back, %d starts", g.again, g.returned, starts())
	}
}

// TestACommandThatClosesItsInput is ended, and another does what it has left.
func TestACommandThatClosesItsInput(t *testing.T) {
	g := newGiven(t, "a", "b")
	script := `read -r x; echo "$x"; exec 0<&-; exec sleep 1000`
	if err := crewOf(t, g, Plain, "sh", "-c", script).runAll(t, 1); err != nil {
		t.Fatal(err)
	}
	g.want("done a", "done b")
	if len(g.again) > 0 {
		t.Errorf("failures %q", g.again)
	}
}

// TestWrongAnswers: a command that does not answer each line with one line ends the executor, or dead tasks say why.
func TestWrongAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		lines  Format
		task   string
		want   string // what becomes of the task
		err    string // with which the executor ends
	}{
		"newline": {"cat", Plain, "a\nb", "dead byte 1 of the task ends a line, " +
			"so it cannot be given to a command of --lines: use --lines=json", ""},
		"greets": {"echo hello; cat", Plain, "a", "", "nobody asked for"},
		"twice":  {`while read -r x; do echo "$x"; echo "$x"; done`, Plain, "a", "", "nobody asked for"},
		"ends":   {"echo no such host >&2; exit 3", Plain, "a", "", "exit 3: no such host"},
		"ends_after_a_line": {
			"read -r x; echo no such host >&2; exit 3", Plain, "a", "dead exit 3: no such host", "",
		},
		"large": {"read -r x; exec tr '\\0' x </dev/zero", Plain, "a",
			"dead the result is larger than max_task, 4KiB", ""},
		"closes_output": {"read -r x || exit; exec 1>&-; exec sleep 1000", Plain, "a",
			"dead the command has closed its standard output, and goes on", ""},
		"not_json": {
			"while read -r x; do echo debug; done", JSON, "a",
			`dead its answer is not understood: it is not JSON: ` +
				`invalid character 'd' looking for beginning of value: "debug"`, "",
		},
		"result": {`read -r x; printf '%s\n' '{"result":"r\n\u00e9"}'; cat`, JSON, "a", "done r\né", ""},
		"value":  {`read -r x; echo '{"result":{"a": [1]}}'; cat`, JSON, "a", `done {"a": [1]}`, ""},
		"base64": {`read -r x; echo '{"base64":"AP8="}'; cat`, JSON, "a", "done \x00\xff", ""},
		"error":  {`while read -r x; do echo '{"error":"no such user"}'; done`, JSON, "a", "dead no such user", ""},
		"never":  {`read -r x; echo '{"error":"no","retry":false}'; cat`, JSON, "a", "dead no", ""},
		"neither": {`while read -r x; do echo '{}'; done`, JSON, "a",
			`dead its answer is not understood: it has neither "result" nor "error": "{}"`, ""},
		"input": {`while read -r x; do printf '{"result":%s}\n' "$x"; done`, JSON, "a<\n",
			`done {"task":"a<\n","batch":"b","index":0,"attempt":1}`, ""},
		"binary_input": {`while read -r x; do printf '{"result":%s}\n' "$x"; done`, JSON, "\xff",
			`done {"base64":"/w==","batch":"b","index":0,"attempt":1}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGiven(t, c.task)
			err := crewOf(t, g, c.lines, "sh", "-c", c.script).runAll(t, 1)
			if c.err == "" {
				if err != nil {
					t.Fatal(err)
				}
				g.want(c.want)
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v", err)
			}
			if len(g.again) > 0 || len(g.waits) != 1 || g.open != 0 {
				t.Errorf("failures %q, %d tasks are back, %d open", g.again, len(g.waits), g.open)
			}
		})
	}
}
