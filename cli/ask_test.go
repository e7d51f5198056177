package cli_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"muster/member"
	"muster/sim/rig"
)

// groupTest is a group "shop" in a root of its own: leaders main and spare, cron nightly.
type groupTest struct {
	fixture
	t *testing.T
}

func newGroupTest(t *testing.T) groupTest {
	t.Helper()
	f := newFixture(t, 0, "")
	f.write(t, 0, `
group "shop" {
  root   = "`+f.root+`"
  settle = "1s"
  leader "main" {}
  leader "spare" {
    versions = ">= 2.0"
  }
  cron "nightly" {
    schedule = "0 2 * * *"
  }
}
`)
	g := groupTest{f, t}
	g.expect(0, "", "apply", "--yes")
	return g
}

// run runs a command in the directory of the configuration.
func (g groupTest) run(args ...string) outcome {
	g.t.Helper()
	env := []string{"MUSTER_SERVERS=" + servers.Connect(), "USER=ann"}
	return run(g.t, env, append([]string{"-C", g.dir}, args...)...)
}

// expect runs a command and checks its code, and that it printed a text.
func (g groupTest) expect(code int, text string, args ...string) outcome {
	g.t.Helper()
	got := g.run(args...)
	if got.code != code || !strings.Contains(got.stdout+got.stderr, text) {
		g.t.Errorf("%q: %d, want %d and %q:\n%s%s", args, got.code, code, text, got.stdout, got.stderr)
	}
	return got
}

// until runs a command until it prints a text.
func (g groupTest) until(text string, args ...string) {
	g.t.Helper()
	var got outcome
	for late := time.Now().Add(2 * time.Minute); time.Now().Before(late); {
		if got = g.run(args...); strings.Contains(got.stdout, text) {
			return
		}
	}
	g.t.Fatalf("%q never printed %q:\n%s%s", args, text, got.stdout, got.stderr)
}

// join joins as a member that holds what it is given, and hands it over when it is asked to.
func (g groupTest) join(identity, version string, can ...string) *member.Member {
	g.t.Helper()
	s := rig.Dial(g.t, 10*time.Second, servers.Addrs()...)
	m, err := member.Join(g.t.Context(), s, member.Config{
		Root: g.root, Group: "shop", Identity: identity, Version: version, Can: can, Address: "127.0.0.1:7000",
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { m.Leave() })
	for _, duty := range can {
		go holdFor(m, duty)
	}
	return m
}

// holdFor takes a duty whenever it is given to a member, until its membership ends.
func holdFor(m *member.Member, duty string) {
	for {
		h, err := m.Take(context.Background(), duty)
		if err != nil {
			return
		}
		select {
		case <-h.HandOver():
			h.Release(context.Background())
		case <-h.Context().Done():
		}
	}
}

func TestStatusOfOneGroup(t *testing.T) {
	t.Parallel()
	g := newGroupTest(t)
	got := g.expect(0, "next: muster member --group shop --root "+g.root, "status", "shop")
	if !strings.Contains(got.stdout, "  ready\n") ||
		!strings.Contains(got.stdout, "\nnightly  -         -      -    -     -     2") {
		t.Errorf("nobody is live:\n%s", got.stdout)
	}
	g.join("a", "1.9", "main", "spare", "nightly")
	g.until("main     a", "status", "shop")
	g.until("spare: nobody has it: no member can do it (version: 1)", "status", "shop")
	got = g.expect(0, "  degraded\n1 live, ", "status", "shop")
	for _, want := range []string{
		"1 member: 1 of 1.9; the assigner is a", "1.9      a       127.0.0.1:7000",
		"next: muster explain -C " + g.dir + " " + g.root + "/shop/spare",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q:\n%s", want, got.stdout)
		}
	}
	g.join("b", "2.0", "spare")
	g.until("  running\n2 live, 3 of 3 duties held", "status", "shop")
	var doc struct {
		Groups []struct {
			Assigner string
			Members  []struct{ Identity string }
			Duties   []struct {
				Name, Holder string
				Epoch        int64
			} `json:"duty_states"`
		}
	}
	if err := json.Unmarshal([]byte(g.expect(0, "", "status", "shop", "--json").stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Groups) != 1 || doc.Groups[0].Assigner != "a" || len(doc.Groups[0].Members) != 2 ||
		doc.Groups[0].Duties[2].Holder != "b" || doc.Groups[0].Duties[2].Epoch == 0 {
		t.Errorf("%+v", doc)
	}
	g.expect(0, "3 of 3 duties held", "status")
	g.expect(0, "the assigner is a", "explain", "shop")
}

func TestExplainADuty(t *testing.T) {
	t.Parallel()
	g := newGroupTest(t)
	g.expect(0, "no member of the group is live", "explain", "shop/main")
	g.join("a", "1.9", "main", "spare")
	g.until("holder        a (1.9, 127.0.0.1:7000) for ", "explain", "group.shop/main")
	got := g.expect(0, "has a version that does not fit  a (1.9)", "explain", g.root+"/shop/spare")
	if !strings.Contains(got.stdout, "versions      >= 2.0  (main.hcl:") {
		t.Errorf("no origin of a value:\n%s", got.stdout)
	}
	g.expect(74, "no such duty: spar: did you mean spare?", "explain", "shop/spar")
	g.expect(74, "no such group: did you mean shop?", "explain", "shp/spare")
	g.expect(1, "there is no job at ", "explain", g.root+"/shop2")
}

func TestHandoverPauseAndResume(t *testing.T) {
	t.Parallel()
	g := newGroupTest(t)
	g.join("a", "1.9", "main")
	g.until("main     a", "status", "shop")
	g.expect(4, "a has it, and no other member may have it now", "handover", "shop/main")
	g.join("b", "1.9", "main")
	g.until("nobody has it: no member can do it (not listed: 2)", "status", "shop") // the assigner knows b
	g.until("shop/main: ", "handover", "shop/main")
	g.until("main     b", "status", "shop")
	g.expect(0, "shop/main: ", "handover", "shop/main", "--to", "a")
	g.until("main     a", "status", "shop")
	g.expect(0, "main: pinned to a", "status", "shop")
	g.expect(0, "shop/main: not pinned; a has it.", "handover", "shop/main", "--unpin")
	g.expect(0, "shop/main: paused", "pause", "group.shop/main")
	g.until("main: paused by ann@", "status", "shop")
	g.until("main     -", "status", "shop")
	g.expect(0, "resumed; ", "resume", g.root+"/shop/main")
	g.until("main     a", "status", "shop")
}

// TestAskingIsRefused: each refusal has its code and its next step, and nothing is written.
func TestAskingIsRefused(t *testing.T) {
	t.Parallel()
	g := newGroupTest(t)
	g.write(t, 1, "") // the job beside the group
	g.expect(0, "", "apply", "--yes", "--only", "job.*")
	g.join("a", "1.9", "main")
	g.until("main     a", "status", "shop")
	for _, c := range []struct {
		code int
		text string
		args string
	}{
		{74, "no such group", "pause none/main"},
		{74, "no such group", "pause " + g.root + "/none/main"},
		{74, "did you mean main?", "pause shop/mian"},
		{64, `"shop" is not GROUP/DUTY`, "pause shop"},
		{64, "is a job, and has no duties", "pause " + g.root + "/j0/main"},
		{4, "z is not live", "handover shop/main --to z"},
		{4, "a does not list it", "handover shop/nightly --to a"},
		{64, "--unpin takes the pin away", "handover shop/main --to a --unpin"},
		{64, "leaves the assigner no time", "resume shop/main --timeout 0s"},
		{64, "needs one duty", "resume"},
	} {
		got := g.expect(c.code, c.text, strings.Fields(c.args)...)
		if !strings.Contains(got.stderr, "  next: ") {
			t.Errorf("%s: no next step: %s", c.args, got.stderr)
		}
	}
	if got := g.run("status", "shop"); strings.Contains(got.stdout, "waits for the assigner") {
		t.Errorf("something was written:\n%s", got.stdout)
	}
}

// TestARequestWithoutAAssigner is written down, and done by the first member.
func TestARequestWithoutAAssigner(t *testing.T) {
	t.Parallel()
	g := newGroupTest(t)
	g.expect(4, "no member of the group is live: the first one does it", "pause", "shop/main")
	g.expect(0, "pause of main for ann@", "status", "shop")
	g.join("a", "1.9", "main")
	g.until("main: paused by ann@", "status", "shop")
}

// TestCompletionOfDuties offers duties, and for --to the members that can do one.
func TestCompletionOfDuties(t *testing.T) {
	t.Parallel()
	g := newGroupTest(t)
	g.join("10.0.3.12:7000", "1.9", "main")
	g.until("main     10.0.3.12:7000", "status", "shop")
	for _, c := range []struct{ args, want string }{
		{"pause", "shop/main shop/nightly shop/spare"},
		{"handover shop/m", "shop/main"},
		{"resume " + g.root + "/shop/s", g.root + "/shop/spare"},
		{"explain shop/n", "shop/nightly"},
		{"handover shop/main --to", "10.0.3.12:7000"},
		{"handover shop/spare --to", ""},
	} {
		args := strings.Fields(c.args)
		if len(args) == 1 || args[len(args)-1] == "--to" {
			args = append(args, "")
		}
		var got string
		for late := time.Now().Add(time.Minute); time.Now().Before(late) && got != c.want; { // it waits only a second
			got, _, _ = strings.Cut(g.run(append([]string{"__complete"}, args...)...).stdout, ":4\n")
			got = strings.Join(strings.Fields(got), " ")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
}
