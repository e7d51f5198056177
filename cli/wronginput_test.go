package cli_test

import (
	"strings"
	"testing"
)

// TestUnknownDuty: each command that names a duty says that there is none, and what to do.
func TestUnknownDuty(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}
cron "report" {
  schedule = "@daily"
}`)
	f.duty("main", obedient)
	f.duty("report", "exit 0")
	f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("begins a", 1)
	for name, c := range map[string]struct {
		code int
		text string
		args []string
	}{
		"handover":    {74, "no such duty: mian: did you mean main?", []string{"handover", "shop/mian"}},
		"unpin":       {74, "no such duty: mian", []string{"handover", "shop/mian", "--unpin"}},
		"handover_to": {4, "ghost is not live", []string{"handover", "shop/main", "--to", "ghost"}},
		"pause":       {74, "no such duty: mian", []string{"pause", "shop/mian"}},
		"resume":      {74, "no such duty: mian", []string{"resume", "shop/mian"}},
		"run":         {74, "no such duty: reprot: did you mean report?", []string{"run", "shop/reprot"}},
		"run_leader":  {64, "is a leader", []string{"run", "shop/main"}},
		"explain":     {74, "no such duty: mian", []string{"explain", "shop/mian"}},
		"follow":      {74, "no such duty", []string{"follow", "shop/mian"}},
		"follow_once": {74, "no such duty", []string{"follow", "shop/mian", "--once"}},
		"follow_gone": {74, "no such group", []string{"follow", "shpo/main"}},
		"state":       {74, "no such duty: mian", []string{"state", "list", "--group", "shop", "--duty", "mian"}},
		"state_get":   {74, "no such duty: mian", []string{"state", "get", "--group", "shop", "--duty", "mian", "key"}},
		"no_duty":     {64, "GROUP/DUTY", []string{"pause", "shop"}},
		"no_group":    {74, "no such group: did you mean shop?", []string{"pause", "shpo/main"}},
	} {
		cmd := f.command(servers.Connect(), append(c.args, "--root", f.root)...)
		if got := result(cmd); got.code != c.code || !strings.Contains(got.stderr, c.text) || got.stdout != "" {
			t.Errorf("%s: code %d, want %d and %q\n%s%s", name, got.code, c.code, c.text, got.stdout, got.stderr)
		} else if !strings.Contains(got.stderr, "\n  next: ") {
			t.Errorf("%s: no next step\n%s", name, got.stderr)
		}
	}
	if strings.Contains(f.logged(), "ends a") {
		t.Error("the holder was disturbed")
	}
}
