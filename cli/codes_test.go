package cli_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/zkstate/zkconn"
)

// codeCase is a command that ends with a code, because of one condition or in spite of another.
type codeCase struct {
	code  int
	over  int    // the code of the other condition that holds; 0 if none does
	what  string // the condition, or both
	given string // what was done before, in a shell; the configurations are those of testdata/codes.txtar
	run   string
	with  func(*codeBed) // what is so before the command starts
	steps []step         // what happens while it runs
}

// step waits until the command has printed a text.
type step struct {
	until string
	then  func(*codeBed)
}

// world has a row for each condition of configuration "all": a is replaced, b is another stack's, closed may be read and not be
// written, late is stale and is waited for, new is created.
const world = `
muster apply -q --yes before
muster apply -q --yes theirs
MUSTER_ZK_AUTH=digest:ops:secret muster apply -q --yes --only closed closed
! muster worker -q --root $ROOT --job late --identity w -- sh -c 'exit 9'`

// unwritable is a report that cannot be written and has to be.
const unwritable = "--report-required --report json=nowhere/r.json "

const worker = "muster worker --root $ROOT --advertise 127.0.0.1:7000 --identity w --job "

// codeCases has every code alone, and every two of which one comes before the other.
var codeCases = []codeCase{
	{code: 0, what: "changes, and nobody asked", run: "muster plan one"},
	{code: 0, what: "a blocked job, and nobody asked", given: world, run: "muster plan --only b all"},
	{code: 0, what: "everything applied", run: "muster apply --yes two"},
	{code: 0, what: "no drift", given: "muster apply -q --yes one", run: "muster drift one"},
	{code: 1, what: "a wrong configuration", run: "muster plan wrong"},
	{code: 1, what: "a missing plan file", run: "muster apply nothing.json"},
	{code: 1, what: "a required report that is not written", run: "muster plan " + unwritable + "one"},
	{code: 2, what: "a plan with changes", run: "muster plan --detailed-exitcode one"},
	{code: 2, what: "something was changed", run: "muster apply --yes --detailed-exitcode one"},
	{code: 2, what: "drift", given: "muster apply -q --yes one", run: "muster drift two"},
	{code: 2, what: "an untidy file", run: "muster fmt --check untidy"},
	{code: 3, what: "a plan with a blocked job", given: world, run: "muster plan --detailed-exitcode --only b all"},
	{code: 3, what: "an apply with a blocked job", given: world, run: "muster apply --yes --only b all"},
	{code: 3, what: "an apply with a job that may only be restarting", given: world, run: "muster apply --yes --no-wait --only late all"},
	{code: 3, what: "a check that could not see everything", given: hidden, run: "muster drift one"},
	{code: 3, what: "a status that could not be read", given: hidden, run: "muster status --root $ROOT"},
	{code: 4, what: "a job that moved", given: world, run: "muster apply --yes --only a all", with: (*codeBed).lock, steps: moved},
	{code: 4, what: "workers that do not leave", given: "muster apply -q --yes one", with: (*codeBed).worksForever,
		run: "muster terminate --yes --timeout 1s --stack tests $ROOT/a"},
	{code: 5, what: "a plan applied twice", given: "muster plan --out p.json one && muster apply p.json", run: "muster apply p.json"},
	{code: 5, what: "a plan that is too old", given: "muster plan --out p.json one", run: "muster apply --max-age 0s p.json"},
	{code: 6, what: "another apply", with: (*codeBed).lock, run: "muster apply --yes --lock-timeout 0s one"},
	{code: 6, what: "a check during an apply", with: (*codeBed).lock, run: "muster drift --wait-lock 0s one"},
	{code: 7, what: "a configuration without jobs", run: "muster apply --yes none"},
	{code: 7, what: "more deletes than allowed", given: "muster apply -q --yes two", run: "muster apply --yes --max-delete 0 one"},
	{code: 8, what: "no server", run: "muster plan --servers $NOBODY one"},
	{code: 8, what: "no permission", given: world, run: "muster apply --yes --only closed all"},
	{code: 64, what: "nobody to ask", run: "muster apply one"},
	{code: 64, what: "an unknown flag", run: "muster drift --quick one"},

	{code: 70, what: "the others do not come", given: "muster apply -q --yes one", run: worker + "a --start all --join-timeout 1s -- true"},
	{code: 71, what: "an aborted barrier", given: "muster apply -q --yes one", run: worker + "a -- muster barrier x --timeout 100ms"},
	{code: 72, what: "somebody else is this worker", given: "muster apply -q --yes one", run: worker + "a -- sh -c 'echo works; exec sleep 1000'",
		steps: []step{{"works", (*codeBed).replaceWorker}}},
	{code: 73, what: "a job whose workers have all joined", given: world, run: "muster worker --root $ROOT --job late --identity w2 -- true"},
	{code: 74, what: "a job that nobody created", run: worker + "a --join-timeout 1s -- true"},
	{code: 126, what: "a command that is no program", given: "muster apply -q --yes one", run: worker + "a -- ./one/main.hcl"},
	{code: 127, what: "a command that is not there", given: "muster apply -q --yes one", run: worker + "a -- no-such-command"},
	{code: 137, what: "a command that is killed", given: "muster apply -q --yes one", run: worker + "a -- sh -c 'kill -9 $$'"},

	{code: 129, what: "SIGHUP during an apply", given: world, run: "muster apply --yes --only late all", steps: waits(syscall.SIGHUP)},
	{code: 130, what: "SIGINT during an apply", given: world, run: "muster apply --yes --only late all", steps: waits(syscall.SIGINT)},
	{code: 143, what: "SIGTERM during a check", with: (*codeBed).lock, run: "muster drift one", steps: locked(syscall.SIGTERM)},

	{code: 143, over: 8, what: "SIGTERM, and no permission", given: world, run: "muster apply --yes --only late --only closed all", steps: waits(syscall.SIGTERM)},
	{code: 130, over: 1, what: "SIGINT, and a required report is not written", given: world, run: "muster apply --yes " + unwritable + "--only late all",
		steps: waits(syscall.SIGINT)},
	{code: 129, over: 4, what: "SIGHUP, and a job moved", given: world, run: "muster apply --yes --only late --only a all", with: (*codeBed).lock,
		steps: append(moved, waits(syscall.SIGHUP)...)},
	{code: 130, over: 3, what: "SIGINT, and a job is blocked", given: world, run: "muster apply --yes --only late --only b all", steps: waits(syscall.SIGINT)},
	{code: 143, over: 2, what: "SIGTERM, and something was changed", given: world, run: "muster apply --yes --detailed-exitcode --only late --only new all",
		steps: waits(syscall.SIGTERM)},
	{code: 130, over: 6, what: "SIGINT, waiting for the lock", with: (*codeBed).lock, run: "muster apply --yes one", steps: locked(syscall.SIGINT)},
	{code: 143, over: 5, what: "SIGTERM, and the plan moved", given: world + "\nmuster plan --only a --out p.json all", with: (*codeBed).lock, run: "muster apply p.json",
		steps: []step{{"waiting up to", func(b *codeBed) { b.move(); b.signal(syscall.SIGTERM) }}}},

	{code: 8, over: 1, what: "no server, and a required report is not written", run: "muster drift --servers $NOBODY " + unwritable + "one"},
	{code: 8, over: 4, what: "no permission, and another job moved", given: world, run: "muster apply --yes --only closed --only a all",
		with: (*codeBed).lock, steps: moved},
	{code: 8, over: 4, what: "no permission, and the lock was lost", given: world, run: "muster apply --yes --only closed --only late all",
		steps: []step{{"stale job", (*codeBed).breakLock}}},
	{code: 8, over: 3, what: "no permission, and another job is blocked", given: world, run: "muster apply --yes --only closed --only b all"},
	{code: 8, over: 2, what: "no permission, and something was changed", given: world, run: "muster apply --yes --detailed-exitcode --only closed --only new all"},

	{code: 5, over: 1, what: "a plan applied twice, and a required report is not written", given: "muster plan --out p.json one && muster apply p.json",
		run: "muster apply " + unwritable + "p.json"},
	{code: 5, over: 3, what: "a plan applied twice, and a job is blocked", given: world + "\nmuster plan --only b --only new --out p.json all && ! muster apply p.json",
		run: "muster apply p.json"},
	{code: 6, over: 1, what: "another apply, and a required report is not written", with: (*codeBed).lock,
		run: "muster apply --yes --lock-timeout 0s " + unwritable + "one"},
	{code: 6, over: 2, what: "a check during an apply, and drift", given: "muster apply -q --yes one", with: (*codeBed).lock, run: "muster drift --wait-lock 0s two"},
	{code: 7, over: 1, what: "too many deletes, and a required report is not written", given: "muster apply -q --yes two",
		run: "muster apply --yes --max-delete 0 " + unwritable + "one"},
	{code: 7, over: 2, what: "a plan with changes that a guard does not save", given: "muster apply -q --yes one", run: "muster plan --detailed-exitcode --out p.json none"},
	{code: 7, over: 3, what: "a plan with a blocked job that a guard does not save", given: world, run: "muster plan --detailed-exitcode --max-delete 0 --out p.json two-less"},
	{code: 64, over: 1, what: "nobody to ask, and a required report is not written", run: "muster apply " + unwritable + "one"},

	{code: 1, over: 4, what: "a required report is not written, and a job moved", given: world, run: "muster apply --yes " + unwritable + "--only a all",
		with: (*codeBed).lock, steps: moved},
	{code: 1, over: 4, what: "a required report is not written, and the lock was lost", given: world, run: "muster apply --yes " + unwritable + "--only late all",
		steps: []step{{"stale job", (*codeBed).breakLock}}},
	{code: 1, over: 3, what: "a required report is not written, and a job is blocked", given: world, run: "muster apply --yes " + unwritable + "--only b all"},
	{code: 1, over: 2, what: "a required report is not written, and there is drift", given: "muster apply -q --yes one", run: "muster drift " + unwritable + "two"},

	{code: 4, over: 3, what: "a job moved, and another is blocked", given: world, run: "muster apply --yes --only a --only b all", with: (*codeBed).lock, steps: moved},
	{code: 4, over: 2, what: "a job moved, and another was changed", given: world, run: "muster apply --yes --detailed-exitcode --only a --only new all",
		with: (*codeBed).lock, steps: moved},
	{code: 3, over: 2, what: "an apply changed something, and a job is blocked", given: world, run: "muster apply --yes --detailed-exitcode --only b --only new all"},
	{code: 2, over: 3, what: "a plan with changes and a blocked job", given: world, run: "muster plan --detailed-exitcode --only b --only new all"},
	{code: 2, over: 3, what: "drift, and a check that could not see everything", given: hidden, run: "muster drift two"},
}

// hidden is a job of which nothing can be read.
const hidden = `
muster apply -q --yes one
MUSTER_ZK_AUTH=digest:ops:secret muster apply -q --yes --only hidden hidden`

// moved changes job a while the apply waits for the lock.
var moved = []step{{"waiting up to", func(b *codeBed) { b.move(); b.unlock() }}}

// waits sends a signal while the apply waits for the grace of a stale job.
func waits(sig syscall.Signal) []step {
	return []step{{"stale job", func(b *codeBed) { b.signal(sig) }}}
}

// locked sends a signal while the command waits for the lock.
func locked(sig syscall.Signal) []step {
	return []step{{"waiting up to", func(b *codeBed) { b.signal(sig) }}}
}

// TestPoint11ExitCodes runs the real binary: a code alone as it is, then both kinds of pipe that docs/exit-codes.md shows; two at once in
// the strict one.
func TestPoint11ExitCodes(t *testing.T) {
	pipes := map[string]string{
		"as_it_is":        "%s",
		"set_-o_pipefail": "set -euo pipefail\n%s | cat\necho went on",
		"PIPESTATUS":      "set -eu\n%s | cat\nexit \"${PIPESTATUS[0]}\"",
	}
	beside, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: servers.Addrs(), Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { beside.Close() }) // after all that run side by side
	for _, c := range codeCases {
		for pipe, script := range pipes {
			if c.over > 0 && pipe != "set_-o_pipefail" {
				continue
			}
			name := fmt.Sprintf("%d_%s_%s", c.code, strings.NewReplacer(" ", "_", ",", "").Replace(c.what), pipe)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newCodeBed(t, beside)
				code, text := b.end(c, fmt.Sprintf(script, c.run))
				if code != c.code {
					t.Fatalf("code %d, want %d\n%s", code, c.code, text)
				}
				if went := strings.Contains(text, "went on"); pipe == "set_-o_pipefail" && went != (code == 0) {
					t.Errorf("the script went on: %v, after code %d\n%s", went, code, text)
				}
			})
		}
	}
}

// TestPoint11EveryExitCodeHasATest compares docs/exit-codes.md with the table above: each code alone, and each two that are ordered there.
func TestPoint11EveryExitCodeHasATest(t *testing.T) {
	doc := read(t, "../docs/exit-codes.md")
	has := func(code, over int) bool {
		return slices.ContainsFunc(codeCases, func(c codeCase) bool { return c.code == code && c.over == over })
	}
	rows := regexp.MustCompile(`(?m)^\| ([0-9n+, ]+) \|`).FindAllStringSubmatch(doc, -1)
	if len(rows) < 17 {
		t.Errorf("only %d rows found", len(rows))
	}
	for _, row := range rows {
		for code := range strings.SplitSeq(row[1], ", ") {
			n, err := strconv.Atoi(strings.Replace(code, "128+n", "137", 1))
			if err != nil {
				t.Errorf("%q is no code", code)
			} else if !has(n, 0) {
				t.Errorf("code %s is documented and has no test", code)
			}
		}
	}
	for _, c := range codeCases {
		code := strconv.Itoa(c.code)
		if c.code == 137 {
			code = `128\+n`
		}
		if !regexp.MustCompile(`(?m)^\| ([0-9n+, ]+, )?` + code + `(, [0-9n+, ]+)? \|`).MatchString(doc) {
			t.Errorf("code %s is tested and not documented", code)
		}
	}
	order := regexp.MustCompile(`When two hold at once: a signal, then ([0-9, ]+), 0\.`).FindStringSubmatch(doc)
	if order == nil {
		t.Fatal("docs/exit-codes.md has no order")
	}
	var first []int
	signals := []int{129, 130, 143}
	for text := range strings.SplitSeq(order[1], ", ") {
		code, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, before := range first {
			if !has(before, code) {
				t.Errorf("%d comes before %d, and no test has both", before, code)
			}
		}
		if !slices.ContainsFunc(signals, func(sig int) bool { return has(sig, code) }) {
			t.Errorf("a signal comes before %d, and no test has both", code)
		}
		first = append(first, code)
	}
	if !has(2, 3) {
		t.Error("of plan and drift 2 comes before 3, and no test has both")
	}
}
