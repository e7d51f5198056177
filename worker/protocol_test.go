package worker_test

import (
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

var update = flag.Bool("update", false, "rewrite the dump in docs/protocol/jobs.md")

// The dump of a real job in docs/protocol/jobs.md is between these lines.
const (
	protocolPage = "../docs/protocol/jobs.md"
	dumpBegins   = "<!-- go test ./worker -run Dump -update writes what follows -->\n"
	dumpEnds     = "<!-- end of the dump -->\n"
)

// TestDumpInTheProtocol compares the dump in docs/protocol/jobs.md with what two workers leave in a real server, from
// apply until they have completed.
func TestDumpInTheProtocol(t *testing.T) {
	t.Parallel()
	d := newDump(t)
	j := d.apply()
	d.moment("After `apply`")
	first, second := d.joinBoth(j)
	d.moment("Both workers have joined, and the roll is written")
	d.values(first)
	d.moment("Worker 0 has published a value under the key `peer`, and advertised another address")
	d.barriers(first, second)
	d.moment("Round 0 of the barrier `loaded` was released. At round 1 worker 1 did not arrive in time")
	d.attempts(first, second)
	d.moment("At the barrier `trained`, which has attempts, the first one was aborted and the second released")
	complete(t, first)
	if err := second.Leave(t.Context(), worker.End{Signal: "TERM"}); err != nil {
		t.Fatal(err)
	}
	d.moment("Worker 0 has completed, and worker 1 was stopped")
	complete(t, d.join(j, "w-1", "10.0.0.3"))
	d.moment("Worker 1 came back from another address and completed as the last one: the job is reset")

	page, err := os.ReadFile(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(page), dumpBegins)
	was, tail, ends := strings.Cut(rest, dumpEnds)
	if !found || !ends {
		t.Fatalf("%s has no place for the dump", protocolPage)
	}
	switch got := d.String(); {
	case got == was:
	case *update:
		if err := os.WriteFile(protocolPage, []byte(head+dumpBegins+got+dumpEnds+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: the dump is not what the server holds: go test ./worker -run Dump -update\n%s",
			protocolPage, firstDifference(was, got))
	}
}

// dump writes down what changes in a server from moment to moment.
type dump struct {
	strings.Builder
	t       *testing.T
	session *zkconn.Session
	was     map[string]string // what was written of each znode
	names   map[string]string // a fixed name for each random one
}

func newDump(t *testing.T) *dump {
	t.Helper()
	d := &dump{t: t, session: dial(t), was: map[string]string{}, names: map[string]string{}}
	for _, path := range slices.Backward(d.list()) { // of an earlier test in this server
		if err := d.session.Delete(t.Context(), path, -1); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// apply creates the job as stack etl.
func (d *dump) apply() job.Job {
	d.t.Helper()
	j := declare(2, func(j *job.Job) { j.Root, j.Name, j.Address = "/jobs", "pair", "job.pair" })
	store, err := zkstate.NewStore(d.session, zkstate.Config{
		Stack: "etl", By: "ann@deploy-1", At: time.Date(2026, 11, 20, 21, 0, 0, 0, time.UTC),
		Kinds: []zkstate.Kind{zkstate.Job()},
	})
	if err == nil {
		err = store.Commit(d.t.Context(), plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere})
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return j
}

func (d *dump) join(j job.Job, identity, ip string) *worker.Member {
	d.t.Helper()
	m, err := worker.Join(d.t.Context(), dial(d.t), worker.Config{
		Root: j.Root, Job: j.Name, Identity: identity, Info: znode.Worker{IP: ip, Port: 9000}, Run: "2026-11-20",
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return m
}

// joinBoth returns when everything is written that follows a join.
func (d *dump) joinBoth(j job.Job) (first, second *worker.Member) {
	d.t.Helper()
	first, second = d.join(j, "w-0", "10.0.0.1"), d.join(j, "w-1", "10.0.0.2")
	for _, path := range []string{
		j.Path(), znode.Live(j.Root, j.Name, "w-0"), znode.Live(j.Root, j.Name, "w-1"),
	} {
		rig.Await(d.t, path+" is written", func() bool {
			stat, _, err := d.session.Exists(d.t.Context(), path)
			return err == nil && stat.Version == 1
		})
	}
	return first, second
}

// barriers takes both through one round, and lets the next one be aborted.
func (d *dump) barriers(first, second *worker.Member) {
	d.t.Helper()
	ctx, b := d.t.Context(), worker.Barrier{Name: "loaded"}
	passed := make(chan error, 1)
	go func() { passed <- first.Barrier(ctx, b) }()
	next := znode.Attempt(first.Job.Root, first.Generation, b.Name, 1, 1)
	rig.Await(d.t, "worker 0 has arrived and made the next round", func() bool {
		_, made, err := d.session.Exists(ctx, next)
		return err == nil && made
	})
	if err := second.Barrier(ctx, b); err != nil {
		d.t.Fatal(err)
	}
	if err := <-passed; err != nil {
		d.t.Fatal(err)
	}
	b.Timeout = 50 * time.Millisecond
	if err := first.Barrier(ctx, b); err == nil {
		d.t.Fatal("worker 0 passed alone")
	}
}

// values publishes a value and another address.
func (d *dump) values(m *worker.Member) {
	d.t.Helper()
	err := m.Publish(d.t.Context(), "peer", []byte("10.0.0.1:7000"))
	if err == nil {
		err = m.Advertise(d.t.Context(), "pair-0.example", 9100)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// attempts lets one attempt at a round be aborted, and takes both through the next.
func (d *dump) attempts(first, second *worker.Member) {
	d.t.Helper()
	ctx, b := d.t.Context(), worker.Barrier{Name: "trained", Retry: true, Timeout: 50 * time.Millisecond}
	if err := first.Barrier(ctx, b); err == nil {
		d.t.Fatal("worker 0 passed alone")
	}
	b.Timeout = patience
	passed := make(chan error, 1)
	go func() { passed <- first.Barrier(ctx, b) }()
	arrival := znode.Arrival(znode.Attempt(first.Job.Root, first.Generation, b.Name, 0, 2), 0)
	rig.Await(d.t, "worker 0 has arrived at the second attempt", func() bool {
		_, arrived, err := d.session.Exists(ctx, arrival)
		return err == nil && arrived
	})
	if err := second.Barrier(ctx, b); err != nil {
		d.t.Fatal(err)
	}
	if err := <-passed; err != nil {
		d.t.Fatal(err)
	}
}

// list lists everything below the job's root and the home, parents first.
func (d *dump) list() []string {
	d.t.Helper()
	var all []string
	var walk func(path string)
	walk = func(path string) {
		names, _, err := d.session.Children(d.t.Context(), path)
		if err != nil {
			d.t.Fatal(err)
		}
		slices.Sort(names)
		all = append(all, path)
		for _, name := range names {
			walk(resource.Join(path, name))
		}
	}
	for _, top := range []string{"/.muster", "/jobs"} {
		if _, there, err := d.session.Exists(d.t.Context(), top); err != nil {
			d.t.Fatal(err)
		} else if there {
			walk(top)
		}
	}
	return all
}

// moment writes down what was created, changed or deleted since the moment before.
func (d *dump) moment(title string) {
	d.t.Helper()
	now, records := map[string]string{}, map[string]string{}
	var text strings.Builder
	for _, path := range d.list() {
		body, stat, err := d.session.Get(d.t.Context(), path)
		if err != nil {
			d.t.Fatal(err)
		}
		line := fmt.Sprintf("%s  v%d", d.fixed(path), stat.Version)
		if stat.EphemeralOwner != 0 {
			line += "  ephemeral"
		}
		content := d.content(body)
		if strings.Contains(path, "/.muster/job/") {
			records[content] = path
		} else if record := records[content]; content != "" && record != "" {
			content = "    the bytes of " + record + "\n"
		}
		now[path] = line + "\n" + content
		if now[path] != d.was[path] {
			text.WriteString(now[path])
		}
	}
	fmt.Fprintf(d, "%s:\n\n```\n", title)
	for _, path := range slices.Sorted(maps.Keys(d.was)) {
		parent := path[:strings.LastIndexByte(path, '/')]
		if _, orphan := now[parent]; now[path] == "" && (orphan || d.was[parent] == "") {
			fmt.Fprintf(d, "%s  deleted\n", d.fixed(path))
		}
	}
	fmt.Fprintf(d, "%s```\n\n", text.String())
	d.was = now
}

// content is a body in indented lines: as text, or in hexadecimal.
func (d *dump) content(body []byte) string {
	const width = 104
	text := strings.ReplaceAll(d.fixed(string(body)), "\n", `\n`)
	for _, b := range body {
		if b != '\n' && (b < ' ' || b > '~') {
			text = "hex " + hex.EncodeToString(body)
			break
		}
	}
	var lines strings.Builder
	for text != "" {
		n := min(width, len(text))
		lines.WriteString("    " + text[:n] + "\n")
		text = text[n:]
	}
	return lines.String()
}

var (
	randomName = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	completion = regexp.MustCompile(`"completed":"[^"]*"`)
)

// fixed replaces what differs from run to run: random names, in the order in which they come, and the present time.
func (d *dump) fixed(s string) string {
	s = completion.ReplaceAllString(s, `"completed":"2026-11-20T23:10:00Z"`)
	return randomName.ReplaceAllStringFunc(s, func(random string) string {
		if d.names[random] == "" {
			d.names[random] = strings.Repeat(fmt.Sprintf("%02x", 0xa1+len(d.names)), 16)
		}
		return d.names[random]
	})
}

func firstDifference(was, got string) string {
	before, after := strings.Split(was, "\n"), strings.Split(got, "\n")
	for i, line := range after {
		if i >= len(before) || before[i] != line {
			return fmt.Sprintf("first difference, line %d of the dump: %s", i+1, line)
		}
	}
	return "the page has more lines than there are"
}
