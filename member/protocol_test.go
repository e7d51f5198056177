package member_test

import (
	"context"
	"errors"
	"flag"
	"regexp"
	"testing"
	"time"

	"muster/member"
	"muster/member/ticks"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/znode"
)

var update = flag.Bool("update", false, "rewrite the dump in docs/protocol/groups.md")

// The dump of a real group in docs/protocol/groups.md is between these lines.
const (
	protocolPage = "../docs/protocol/groups.md"
	dumpBegins   = "<!-- go test ./member -run Dump -update writes what follows -->\n"
	dumpEnds     = "<!-- end of the dump -->\n"
)

// maskedInGroups are times, epochs and what else differs from run to run.
func maskedInGroups() []rig.Mask {
	return []rig.Mask{
		{What: regexp.MustCompile(`/apps/\.muster/run/[0-9a-f]{32}`), With: `R`},
		{
			What: regexp.MustCompile(`"(tick|started|ended|since|asked|last_success)":"[^"]*"`),
			With: `"$1":"2026-11-20T21:00:00Z"`,
		},
		{What: regexp.MustCompile(`"epoch":\d+`), With: `"epoch":4294967338`},
		{What: regexp.MustCompile(`"until":\d+`), With: `"until":1795208401000`},
	}
}

// TestDumpOfAGroup compares the dump in docs/protocol/groups.md with what a member does in a real group: it sends these
// writes, and the server holds these znodes then.
//
// The assigner lets a member that has resigned wait for a second. On a busy machine that may be over before the znodes
// are read. Then it is done again.
func TestDumpOfAGroup(t *testing.T) {
	t.Parallel()
	var d *rig.Dump
	for range 5 {
		t.Run("attempt", func(t *testing.T) { d = dumpGroup(t) })
		if t.Failed() || *update || d.IsIn(t, protocolPage, dumpBegins, dumpEnds) {
			break
		}
	}
	if !t.Failed() {
		d.Page(t, protocolPage, dumpBegins, dumpEnds, *update)
	}
}

func dumpGroup(t *testing.T) *rig.Dump {
	f := &fixture{t: t, group: group.Default(), s: dial(t)}
	d := rig.NewDump(t, f.s, maskedInGroups(), "/.muster", "/apps")
	d.HideVersion("/assigner$")
	f.group.Root, f.group.Name, f.group.Address, f.group.Settle = "/apps", "shop", "group.shop", 0
	f.group.Add(group.NewDuty(group.Leader, "coordinator"))
	report := group.NewDuty(group.Cron, "report")
	report.Schedule = "0 0 29 2 *"
	f.group.Add(report)
	f.applyAs("etl")
	d.Moment("After `apply`")

	f.join("a", "2.1.0")
	f.until("a to decide", func() bool { return f.exists("assigner") && f.memory().Size == 0 })
	proxy := newProxy(t)
	sent := rig.RecordWrites(proxy)
	b := f.joinIn(dial(t, proxy.Addr()), f.config("b", "2.1.0", "coordinator", "report"))
	f.until("b to be given both", func() bool { return len(f.seats()["b"]) == 2 })
	d.Calls("The member `a`, which can do nothing, has joined, and is the assigner. Now `b` joins", sent.Take())
	d.Moment("The assigner has given both duties to `b`")

	h := f.take(b, "coordinator")
	d.Calls("`b` takes `coordinator`. The mzxid of the set is the epoch", sent.Take())
	f.save(h)
	d.Calls("`b` saves a value, opens an operation, does a step of it, and closes it", sent.Take())
	d.Moment("Then there is")

	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- b.RunTicks(ctx, "report", func(context.Context, member.Run) member.Ended {
			return member.Ended{Result: ticks.Succeeded, Tail: []byte("3 reports\n"), ByItself: true}
		})
	}()
	f.until("a cursor", func() bool { return f.exists("duty/report/cursor") })
	d.Calls("`b` takes `report`, compares its clock, and begins with a cursor that is now", sent.Take())
	n, err := member.AskRun(t.Context(), dial(t, proxy.Addr()), "/apps", "shop", "report", "ann@deploy-1")
	f.must(err)
	f.until("the run to be over", func() bool {
		runs, err := member.Runs(t.Context(), f.s, "/apps", f.generation(), "report", 1)
		return err == nil && len(runs) == 1 && runs[0].Asked == n && runs[0].State == znode.TickDone
	})
	d.Calls("An operator asks for a run of `report`; `b` claims it, and writes how it ended", sent.Take())
	d.Moment("Then there is")

	_, err = member.SendAsk(t.Context(), dial(t, proxy.Addr()), "/apps", "shop", znode.Ask{
		Do: znode.AskPause, Duty: "coordinator", By: "ann@deploy-1",
	})
	f.must(err)
	rig.Receive(t, h.HandOver(), "the hand-over")
	f.must(h.Release(t.Context()))
	d.Calls("An operator pauses `coordinator`; its seat names it no longer, and `b` gives it back", sent.Take())
	leave()
	if err := rig.Receive(t, ended, "the end of report"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	d.Calls("`b` ends its cron: it gives the duty back in its last decision", sent.Take())
	d.Moment("Then there is")

	h = f.take(b, "report")
	sent.Take()
	f.must(h.Resign(t.Context(), true, "no space left on device"))
	f.until("the assigner to remember it", func() bool { return len(f.memory().Failures["report"]) > 0 })
	d.Calls("Later `b` has taken `report` again, and resigns", sent.Take())
	d.Moment("The assigner has decided, and remembers it")
	f.must(b.Leave())
	f.until("b to be gone", func() bool { return len(f.seats()) == 1 && len(f.memory().Failures) == 0 })
	d.Calls("`b` leaves", sent.Take())
	d.Moment("At the end there is")
	return d
}

// applyAs creates the group as a stack.
func (f *fixture) applyAs(stack string) {
	f.t.Helper()
	store, err := zkstate.NewStore(f.s, zkstate.Config{
		Stack: stack, By: "ann@deploy-1", At: time.Date(2026, 11, 20, 21, 0, 0, 0, time.UTC),
		Kinds: []zkstate.Kind{zkstate.Group()},
	})
	f.must(err)
	f.store = store
	f.must(store.Commit(f.t.Context(), plan.Row{Path: f.group.Path(), New: f.group, Reason: plan.NotThere}))
}

// save saves a value, and does an operation of one step.
func (f *fixture) save(h *member.Hold) {
	f.t.Helper()
	f.must(h.Put(f.t.Context(), "at", []byte("page 17")))
	op, err := h.Open(f.t.Context(), "publish", "5891b5b522d5df08", false)
	f.must(err)
	step, err := op.Step(f.t.Context(), "upload", []string{"site"})
	f.must(err)
	f.must(step.Finish(f.t.Context(), []byte("ok")))
	f.must(op.Close(f.t.Context()))
}

// exists reports whether there is this znode of the generation.
func (f *fixture) exists(below string) bool {
	f.t.Helper()
	_, there, err := f.s.Exists(f.t.Context(), resource.Join(f.run(""), below))
	return err == nil && there
}
