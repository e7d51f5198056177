package golden

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/plan"
	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/resource/job"
	"muster/resource/testkind"
)

// lamps is the plan of the lamps that lampPlan declares and observes, beside a job.
const lamps = `muster plan · stack etl · 5 declared, 5 found

+   lamp.new       create                         lamps.hcl:1
      path          /r/new
      watts         40
      because       no lamp znode

-/+ lamp.brighter  replace (delete, then create)
      watts         40 -> 60
      because       nobody has joined yet (a reader that joins first wins)

~   lamp.other     update in place
      colour        white -> red
      because       only what may change during a run differs

!   lamp.taken     blocked: a job has this name
      to proceed    choose another name or root

!   lamp.used      blocked: 2 are reading
      watts         40 -> 60  cannot change while they run
      to proceed    muster terminate used && muster apply
                    or apply again after the run

?   /r/gone        left running                   not declared
      because       owned by stack etl, 1 are reading
      to proceed    muster terminate /r/gone, or apply again after the run

  create        lamp.new
  replace       lamp.brighter
  update        lamp.other
  blocked       lamp.taken
  blocked       lamp.used
  left running  /r/gone
Plan: 1 to create, 1 to replace, 0 to delete, 1 to update; 2 blocked, 1 left running, 0 unchanged.
`

// lampPlan makes the plan of declared and observed lamps.
func lampPlan(t *testing.T) plan.Plan {
	t.Helper()
	lamp := func(name, colour string, watts int) testkind.Lamp {
		return testkind.Lamp{
			Common: resource.Common{Name: name, Root: "/r", Address: "lamp." + name}, Colour: colour, Watts: watts,
		}
	}
	found := func(d resource.Declaration, live int) resource.Observed {
		rec := resource.Record{Stack: "etl", Generation: "g", State: resource.StateOpen, Op: "o"}
		if err := rec.Declare(d); err != nil {
			t.Fatal(err)
		}
		return resource.Observed{Record: &rec, Live: live}
	}
	created := lamp("new", "white", 40)
	created.At = "lamps.hcl:1"
	taken := job.Default()
	taken.Name, taken.Root, taken.Workers = "taken", "/r", 1
	want := plan.Want{Stack: "etl", Declared: []resource.Declaration{
		created, lamp("brighter", "white", 60), lamp("other", "red", 40), lamp("taken", "white", 40),
		lamp("used", "white", 60),
	}}
	have := plan.State{Found: map[string]resource.Observed{
		"/r/brighter": found(lamp("brighter", "white", 40), 0), "/r/other": found(lamp("other", "white", 40), 3),
		"/r/taken": found(taken, 0), "/r/used": found(lamp("used", "white", 40), 2),
		"/r/gone": found(lamp("gone", "red", 1), 1),
	}}
	checkLaws(t, want, have)
	p := plan.Diff(want, have)
	p.ID = "p1"
	return p
}

// TestPlanOfAnotherKind: the packages that make, save and show plans work with any kind.
func TestPlanOfAnotherKind(t *testing.T) {
	p := lampPlan(t)
	var text strings.Builder
	if err := report.Plan(&text, p, report.Options{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(lamps, text.String()); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
	kinds := []resource.Kind{job.Kind(), testkind.Kind()}
	file, err := planfile.Encode(kinds, planfile.Saved{Plan: p})
	if err != nil {
		t.Fatal(err)
	}
	saved, err := planfile.Decode(kinds, file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(p, saved.Plan, cmpopts.EquateEmpty(), everyFact()); d != "" {
		t.Errorf("plan (-written +read):\n%s", d)
	}
	if _, err := planfile.Decode(kinds[:1], file); err == nil {
		t.Error("a muster that does not know the kind reads the file")
	}
}

// TestNobodyKnowsTheTestKind: only tests import the test kind.
func TestNobodyKnowsTheTestKind(t *testing.T) {
	const format = `{{.ImportPath}} {{join .Imports " "}}`
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", format, "../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, " muster/resource/testkind") {
			t.Errorf("a package that is no test imports the test kind: %s", line)
		}
	}
}
