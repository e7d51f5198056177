package plan_test

import (
	"slices"
	"testing"

	"muster/plan"
	"muster/resource"
	"muster/resource/group"
)

// shop is a group of two duties, changed by the edits.
func shop(edits ...func(*group.Group)) *group.Group {
	g := group.Default()
	g.Name, g.Root, g.Address, g.At = "a", "/jobs", "group.a", "groups.hcl:3"
	g.Add(group.NewDuty(group.Leader, "main"))
	g.Add(cron("report"))
	for _, edit := range edits {
		edit(&g)
	}
	return &g
}

func cron(name string) group.Duty {
	d := group.NewDuty(group.Cron, name)
	d.Schedule = "@daily"
	return d
}

// without removes a duty.
func without(name string) func(*group.Group) {
	return func(g *group.Group) {
		g.Duties = slices.DeleteFunc(slices.Clone(g.Duties), func(d group.Duty) bool { return d.Name == name })
	}
}

func with(d group.Duty) func(*group.Group) { return func(g *group.Group) { g.Add(d) } }

func protectGroup(g *group.Group) { g.Lifecycle.Protect = true }

// applied is an observation of a group as stack applied it.
func applied(g *group.Group, edits ...func(*resource.Observed)) *resource.Observed {
	rec := resource.Record{Stack: stack, Generation: "g1", State: resource.StateOpen, Op: "op1"}
	copied := *g
	copied.At = ""
	if err := rec.Declare(copied); err != nil {
		panic(err) // a group always encodes
	}
	o := &resource.Observed{Record: &rec}
	for _, edit := range edits {
		edit(o)
	}
	return o
}

func members(live, held int) func(*resource.Observed) {
	return func(o *resource.Observed) { o.Live, o.Counts = live, group.Counts(held, 0, 0) }
}

func lose(beyondRepair string, parts ...resource.Part) func(*resource.Observed) {
	return func(o *resource.Observed) { o.Lost, o.BeyondRepair = parts, beyondRepair }
}

func saved(all ...resource.Saved) func(*resource.Observed) {
	return func(o *resource.Observed) { o.Saved = all }
}

// groupRow is the row of a group that is declared or not, and observed or not.
func groupRow(declared resource.Declaration, found *resource.Observed) (plan.Row, plan.Plan) {
	w, s := plan.Want{Stack: stack, TakeOver: []string{"old"}}, plan.State{Found: map[string]resource.Observed{}}
	if declared != nil {
		w.Declared = []resource.Declaration{declared}
	}
	if found != nil {
		s.Found[path] = *found
	}
	p := plan.Diff(w, s)
	return p.Rows[0], p
}

// TestActionTableOfGroups: everything but name and root may change while members are live, a group is deleted only
// after a while without members, and never replaced.
func TestActionTableOfGroups(t *testing.T) {
	live, none := members(3, 2), members(0, 0)
	const data = "what was in it is not known"
	for _, c := range []struct {
		name   string
		reason plan.Reason
		new    *group.Group
		old    *resource.Observed
	}{
		{"missing", plan.NotThere, shop(), nil},
		{"foreign", plan.IsForeign, shop(), foreign()},
		{"unreadable", plan.IsUnreadable, shop(), unreadable()},
		{"a_job_has_the_name", plan.OtherKind, shop(), recorded(declared(), counts(4, 0, 0))},
		{"a_classic_job_has_the_name", plan.OtherKind, shop(), classic(4, 0)},
		{"other_stack", plan.OtherStack, shop(), applied(shop(), owner("x"), live)},
		{"taken_over_live", plan.OwnerDiffers, shop(), applied(shop(), owner("old"), live)},
		{"equal_live", plan.Equal, shop(), applied(shop(), live)},
		{"equal_degraded", plan.Equal, shop(), applied(shop(), members(3, 0))},
		{"equal_with_nobody_live", plan.Equal, shop(), applied(shop(), none)},
		{"changed_live", plan.MutableDiffers, shop(with(cron("b"))), applied(shop(), live)},
		{"changed_with_nobody_live", plan.MutableDiffers, shop(without("main")), applied(shop(), none)},
		{"protected_and_changed", plan.MutableDiffers, shop(protectGroup), applied(shop(), live)},
		{"stopping", plan.MembersStopping, shop(), applied(shop(), live, terminating)},
		{"stopping_undeclared", plan.MembersStopping, nil, applied(shop(), live, terminating)},
		{"terminated", plan.TerminatedKept, shop(), applied(shop(), none, terminating)},
		{"terminated_and_protected", plan.TerminatedKept, shop(protectGroup), applied(shop(), none, terminating)},
		{"terminated_undeclared", plan.Undeclared, nil, applied(shop(), none, terminating)},
		{"undeclared", plan.Undeclared, nil, applied(shop(), none)},
		{"undeclared_protected", plan.IsProtected, nil, applied(shop(protectGroup), none)},
		{"undeclared_live", plan.UndeclaredLive, nil, applied(shop(), live)},
		{"stranger_blocks_a_delete", plan.StrangerChildren, nil, applied(shop(), none, strangers("notes"))},
		{"gate_lost", plan.IsDamaged, shop(), applied(shop(), live, lose("", resource.PartGate))},
		{"folder_lost_live", plan.IsDamaged, shop(), applied(shop(), live, lose(data, "duty"))},
		{"folder_lost", plan.IsDamaged, shop(), applied(shop(), none, lose(data, "duty"))},
		{"generation_lost", plan.IsDamaged, shop(), applied(shop(), live, lose(data, resource.PartGeneration))},
		{"generation_lost_undeclared", plan.IsDamaged, nil, applied(shop(), none, lose(data, resource.PartGeneration))},
		{"record_lost_without_a_copy", plan.DamagedBeyondRepair, shop(),
			&resource.Observed{Lost: []resource.Part{resource.PartRecord}, BeyondRepair: "two generations are open"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var declared resource.Declaration
			if c.new != nil {
				declared = *c.new
			}
			r, _ := groupRow(declared, c.old)
			if r.Reason != c.reason {
				t.Errorf("%s, want %s", r.Reason, c.reason)
			}
			if r.Stale() != (c.name == "undeclared") {
				t.Errorf("apply waits for its grace: %v", r.Stale())
			}
		})
	}
}

// TestLoss: a row says what goes with it, and counts as a delete then. A section whose name begins like another one is
// not taken for it.
func TestLoss(t *testing.T) {
	main := resource.Saved{Section: "leader.main", Keys: 1, Bytes: 8 << 10, Open: []string{"checkpoint"}}
	report := resource.Saved{Section: "cron.report", Keys: 2, Bytes: 4000}
	eu := resource.Saved{Section: "cron.report.eu", Keys: 1, Bytes: 1}
	all := saved(report, eu, main)
	has := shop(with(cron("report.eu")))
	for _, c := range []struct {
		name    string
		new     *group.Group
		old     *resource.Observed
		deletes bool
		text    string
	}{
		{"delete", nil, applied(has, all), true, "4 keys, 12 KiB, 1 open operation: " +
			"leader.main (1 key, 8 KiB, open operation checkpoint), cron.report (2 keys, 4 KiB), " +
			"cron.report.eu (1 key, 1 byte)"},
		{"delete_of_nothing", nil, applied(has), true, ""},
		{"left_running", nil, applied(has, all, members(1, 1)), false, ""},
		{"equal", has, applied(has, all), false, ""},
		{"duty_removed", shop(without("report"), with(cron("report.eu"))), applied(has, all, members(3, 3)), true,
			"cron.report (2 keys, 4 KiB)"},
		{"duty_with_nothing_saved_removed", shop(without("main"), with(cron("report.eu"))), applied(has, saved(report)),
			false, ""},
		{"duty_changed", shop(with(cron("report.eu")), protectGroup), applied(has, all), false, ""},
		{"repair", shop(), applied(has, all, lose("", resource.PartGate)), false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var declared resource.Declaration
			if c.new != nil {
				declared = *c.new
			}
			r, _ := groupRow(declared, c.old)
			if r.Deletes() != c.deletes || r.LossText() != c.text {
				t.Errorf("%s: deletes %v, loses %q", r.Title(), r.Deletes(), r.LossText())
			}
		})
	}
}

// TestDriftOfGroups: what the findings say of groups.
func TestDriftOfGroups(t *testing.T) {
	for _, c := range []struct {
		name       string
		old        *resource.Observed
		found, why string
		next       string
	}{
		{"degraded", applied(shop(), members(3, 1)), "degraded", "3 live, 1 of 2 duties held",
			"muster status a names the duties that nobody holds"},
		{"nobody_live", applied(shop(), members(0, 0)), "", "", ""},
		{"missing", nil, "missing", "no group znode", "muster apply"},
		{"foreign", foreign(), "foreign", "a znode is there that is not a group: 12 bytes that are no roll",
			"choose another name or root, or remove the znode yourself; muster explain group.a shows it"},
		{"classic", classic(4, 0), "foreign", "made by classic workers, stale", "choose another name or root"},
		{"terminating", applied(shop(), members(0, 0), terminating), "pending",
			"its members were asked to stop; nobody can join before the next apply", "muster apply"},
		{"damaged", applied(shop(), lose("what was in it is not known", "duty")), "damaged",
			"deleted by hand: duty; what was in it is not known", "muster apply"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, p := groupRow(*shop(), c.old)
			fs := p.Drift(nil).Findings
			if c.found == "" {
				if len(fs) > 0 {
					t.Errorf("findings: %v", lines(fs))
				}
				return
			}
			if len(fs) != 1 || string(fs[0].Kind) != c.found || fs[0].Because() != c.why || fs[0].Proceed() != c.next {
				t.Errorf("findings %q, next %q", lines(fs), fs[0].Proceed())
			}
		})
	}
}

// TestIgnoredFieldsOfADuty: a drift ignore covers one field of a duty, or all of them.
func TestIgnoredFieldsOfADuty(t *testing.T) {
	changed := shop(func(g *group.Group) { g.Duties[1].Keep, g.Duties[1].Retries = 30, 5 })
	_, p := groupRow(*changed, applied(shop(), members(3, 2)))
	for field, left := range map[string]int{
		"cron.report.keep": 1, "cron.report": 0, "cron": 0, "cron.rep": 2, "leader": 2,
	} {
		d := p.Drift([]resource.Ignore{{Address: "group.a", Fields: []string{field}}})
		n := 0
		for _, f := range d.Findings {
			n += len(f.Changes)
		}
		if n != left {
			t.Errorf("with %s ignored, %d fields have drifted, want %d", field, n, left)
		}
	}
}

// TestDeletions: guards count what is lost inside a group as they count what is deleted as a whole.
func TestDeletions(t *testing.T) {
	row := func(declared resource.Declaration, found *resource.Observed) plan.Row {
		r, _ := groupRow(declared, found)
		return r
	}
	some := saved(resource.Saved{Section: "leader.main", Keys: 1})
	gone, gutted := row(nil, applied(shop())), row(*shop(without("main")), applied(shop(), some))
	goneJob, same := row(nil, recorded(declared())), row(*shop(), applied(shop(), some))
	for want, rows := range map[string][]plan.Row{
		"":                           {same},
		"2 jobs":                     {goneJob, same, goneJob},
		"1 group and 1 job":          {goneJob, gone},
		"what was saved in 2 groups": {gutted, gutted},
		"1 group and 2 jobs, and what was saved in 1 group": {gone, goneJob, gutted, goneJob, same},
	} {
		if got := plan.DeletionsText(rows); got != want {
			t.Errorf("deleted is %q, want %q", got, want)
		}
	}
	if n := len(plan.Deletions([]plan.Row{gone, same, gutted, goneJob})); n != 3 {
		t.Errorf("%d rows delete something", n)
	}
}
