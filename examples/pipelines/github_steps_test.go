package pipelines_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestANewPlanIsShownAndKept(t *testing.T) {
	for _, c := range []struct {
		code      string
		env       []string
		want      int
		said, out string
	}{
		{code: "0", out: "muster-plan-attempt-1"},
		{code: "2", env: []string{"GITHUB_EVENT_NAME=pull_request", "PR=12"}, out: "muster-plan-pr-12-attempt-1"},
		{code: "3", env: []string{"MAX_DELETE=50", "GITHUB_RUN_ATTEMPT=2"}, out: "muster-plan-attempt-2"},
		{code: "1", want: 1},
		{code: "8", want: 8},
		{code: "7", want: 7, said: "gh workflow run muster.yml -f action=apply -f max_delete=N"},
		{code: "0", env: []string{"MAX_DELETE=5 --only x"}, want: 1, said: "is not a number"},
		{code: "0", env: []string{"GITHUB_EVENT_NAME=pull_request"}, want: 1, said: "no number of the pull request"},
		{code: "0", env: []string{"STACK=etl"}, want: 1, said: "The plan is not of stack etl"},
	} {
		t.Run(fmt.Sprint(c.code, c.env), func(t *testing.T) {
			t.Parallel()
			g := newGitHub(t)
			g.env = append(g.env, "GITHUB_EVENT_NAME=workflow_dispatch", "CODE="+c.code)
			out, code := g.run("plan", c.env...)
			if code != c.want || !strings.Contains(out, c.said) || !strings.Contains(g.read("summary"), c.said) {
				t.Errorf("code %d, want %d and %q\n%s", code, c.want, c.said, out)
			}
			if got := strings.TrimSpace(g.read("output")); strings.TrimPrefix(got, "artifact=") != c.out {
				t.Errorf("the plan is kept as %q, want %q", got, c.out)
			}
			calls := g.read("calls")
			if strings.Contains(calls, "api ") || strings.Contains(calls, "apply ") {
				t.Errorf("a new plan needs no answers, and applies nothing:\n%s", calls)
			}
			if want := strings.HasPrefix(strings.Join(c.env, ""), "MAX_DELETE=50"); want !=
				strings.Contains(calls, "--max-delete 50") {
				t.Errorf("--max-delete: %v\n%s", !want, calls)
			}
		})
	}
}

// TestApplyNamesTheWayOn: each code comes through, and the page of the run says what to do.
func TestApplyNamesTheWayOn(t *testing.T) {
	const byHand = "gh workflow run muster.yml -f action=apply"
	for code, said := range map[int]string{
		0: "", 3: byHand, 4: byHand, 5: byHand, 6: "Run the failed job again", 8: byHand, 1: byHand, 143: byHand,
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			g := newGitHub(t)
			g.writePlan(plan)
			out, got := g.run("apply", fmt.Sprint("CODE=", code))
			if got != code || !strings.Contains(g.read("summary"), said) || (said == "") == strings.Contains(out, "::error") {
				t.Errorf("code %d\n%s\n%s", got, out, g.read("summary"))
			}
			if !strings.Contains(g.read("summary"), "### muster plan") {
				t.Errorf("the page of the run has no report:\n%s", g.read("summary"))
			}
		})
	}
}

func TestDriftNamesTheWayOn(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	out, code := g.run("drift", "CODE=2")
	if code != 2 || !strings.Contains(out, "gh workflow run muster.yml -f action=apply") {
		t.Errorf("code %d\n%s", code, out)
	}
}

// A comment on pull request 12, of the number id.
func comment(id int, kind, body string) string {
	return fmt.Sprintf(`{"id": %d, "user": {"type": "%s"}, "body": "%s"}`, id, kind, body)
}

// TestTheCommentOfTheStackIsReplaced: not the last comment, nor one of a person or of another stack.
func TestTheCommentOfTheStackIsReplaced(t *testing.T) {
	const marker = "<!-- muster:plan:etl-prod -->"
	ours := comment(5, "Bot", marker+`\n### muster plan`)
	others := strings.Join([]string{
		comment(6, "User", marker+`\nlook at this`), comment(7, "Bot", "<!-- muster:plan:etl -->"),
		comment(8, "Bot", "<!-- muster:plan:etl-prod-2 -->"), comment(9, "Bot", "> "+marker), comment(10, "Bot", ""),
		`{"id": 11, "user": null, "body": null}`,
	}, ", ")
	const post = "--method POST repos/octo/etl/issues/12/comments "
	const patch = "--method PATCH repos/octo/etl/issues/comments/"
	for what, c := range map[string]struct {
		comments string
		writes   []string
	}{
		"no comment":  {"[]", []string{post}},
		"others":      {"[" + others + "]", []string{post}},
		"ours":        {"[" + ours + ", " + others + "]", []string{patch + "5 "}},
		"on page two": {"[" + others + "][" + ours + "]", []string{patch + "5 "}},
		"two of ours": {"[" + ours + ", " + strings.Replace(ours, "5", "15", 1) + "]", []string{
			patch + "5 ", "--method DELETE repos/octo/etl/issues/comments/15",
		}},
		"no answer":        {"", nil},
		"null":             {"null", nil},
		"a message":        {`{"message": "Not Found"}`, nil},
		"not a number":     {strings.Replace("["+ours+"]", "5", `"5/../6"`, 1), nil},
		"half a list":      {"[" + ours, nil},
		"a page of GitHub": {"<html>Unicorn!</html>", nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := newGitHub(t)
			g.answer("comments", c.comments)
			out, code := g.comment("### muster plan of stack\n")
			if (code != 0) != (c.writes == nil) {
				t.Errorf("code %d\n%s", code, out)
			}
			calls := g.read("calls")
			for _, want := range c.writes {
				if !strings.Contains(calls, want) {
					t.Errorf("no %s\n%s", want, calls)
				}
			}
			if got := strings.Count(calls, "--method"); got != len(c.writes) {
				t.Errorf("%d writes, want %d\n%s", got, len(c.writes), calls)
			}
		})
	}
}

// comment runs the step comment on pull request 12 after a plan with this report.
func (g *github) comment(report string) (string, int) {
	g.t.Helper()
	g.writePlan(plan)
	if err := os.WriteFile(filepath.Join(g.temp, "muster", "plan.md"), []byte(report), 0o644); err != nil {
		g.t.Fatal(err)
	}
	return g.run("comment", "GITHUB_EVENT_NAME=pull_request", "PR=12")
}

// TestTheCommentBeginsWithTheMarker: also if the report could not name the stack.
func TestTheCommentBeginsWithTheMarker(t *testing.T) {
	for report, stack := range map[string]string{
		"<!-- muster:plan:etl-prod -->\n### muster plan": "etl-prod", "<!-- muster:plan: -->\n### muster plan": "etl-prod",
		"<!-- muster:plan:a-=2db -->\n### muster plan": "a--b",
	} {
		t.Run(stack, func(t *testing.T) {
			t.Parallel()
			g := newGitHub(t)
			g.env = append(g.env, "STACK="+stack)
			out, code := g.comment(report)
			marker := "<!-- muster:plan:" + strings.Replace(stack, "--", "-=2d", 1) + " -->\n### muster plan"
			if body := g.read("body"); code != 0 || !strings.HasPrefix(body, marker) || !strings.Contains(body, head) ||
				!strings.Contains(body, "(https://github.com/octo/etl/actions/runs/88)") {
				t.Errorf("code %d\n%s\n%s", code, out, body)
			}
		})
	}
}

type job struct {
	If          string
	Needs       string
	Environment string
	Concurrency struct{ Group string }
	Permissions map[string]string
	Outputs     map[string]string
	Env         map[string]string
	Steps       []struct {
		Uses, Run, If, ID string
		With, Env         map[string]string
	}
}

type workflow struct {
	On struct {
		Dispatch struct {
			Inputs map[string]struct{ Options []string }
		} `yaml:"workflow_dispatch"`
	} `yaml:"on"`
	Permissions, Env map[string]string
	Jobs             map[string]job
}

// TestTheWorkflowFitsItsScript: it gives each step what the step reads, and hands the plan from job to job by the name
// that the script gives it. Only apply can write to ZooKeeper.
func TestTheWorkflowFitsItsScript(t *testing.T) {
	var w workflow
	body, err := os.ReadFile("github.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(body, &w); err != nil {
		t.Fatal(err)
	}
	needs := map[string][]string{
		"plan": {"GH_TOKEN", "PR", "MAX_DELETE", "MUSTER_ZK_AUTH"}, "comment": {"GH_TOKEN", "PR", "HEAD"},
		"apply": {"MUSTER_ZK_AUTH"}, "drift": {"MUSTER_ZK_AUTH"},
	}
	script := regexp.MustCompile(`^\.github/muster\.sh (\w+)$`)
	for name, j := range w.Jobs {
		for _, s := range j.Steps {
			if s.Run == "" {
				continue
			}
			m := script.FindStringSubmatch(s.Run)
			if m == nil || needs[m[1]] == nil {
				t.Fatalf("%s runs %s", name, s.Run)
			}
			for _, v := range append(needs[m[1]], "DIR", "STACK", "MUSTER_SERVERS") {
				if w.Env[v] == "" && j.Env[v] == "" && s.Env[v] == "" {
					t.Errorf("%s has no %s", s.Run, v)
				}
			}
			writes := strings.Contains(s.Env["MUSTER_ZK_AUTH"], "secrets.MUSTER_ZK_AUTH }}")
			if writes != (m[1] == "apply") || writes && j.Environment != "production" {
				t.Errorf("%s has the user %s in the environment %q", s.Run, s.Env["MUSTER_ZK_AUTH"], j.Environment)
			}
			delete(needs, m[1])
		}
	}
	if len(needs) > 0 {
		t.Errorf("no step runs %v", needs)
	}
	if got := w.On.Dispatch.Inputs["action"].Options; !slices.Equal(got, []string{"plan", "apply", "drift"}) {
		t.Errorf("by hand: %v", got)
	}
	// A group is one of the whole repository: without the name of the file, one stack's plan would cancel another's.
	for _, of := range []string{"github.workflow_ref ", "github.event.pull_request.number ", "github.run_id "} {
		if group := w.Jobs["plan"].Concurrency.Group; !strings.Contains(group, of) {
			t.Errorf("plans of the group %q cancel each other, whatever their %s", group, of)
		}
	}
	w.checkHandOver(t)
}

func (w *workflow) checkHandOver(t *testing.T) {
	t.Helper()
	plan, apply := w.Jobs["plan"], w.Jobs["apply"]
	if apply.Needs != "plan" || strings.Contains(apply.If, "always()") || strings.Contains(apply.If, "cancelled()") {
		t.Errorf("apply runs without a plan: needs %q, if %q", apply.Needs, apply.If)
	}
	const output = "${{ steps.plan.outputs.artifact }}"
	var up, down bool
	for _, s := range slices.Concat(plan.Steps, apply.Steps) {
		switch {
		case strings.HasPrefix(s.Uses, "actions/upload-artifact@"):
			up = s.With["name"] == output && s.With["path"] == "${{ runner.temp }}/muster/plan.json" && s.If == ""
		case strings.HasPrefix(s.Uses, "actions/download-artifact@"):
			down = s.With["name"] == "${{ needs.plan.outputs.artifact }}" && s.With["path"] == "${{ runner.temp }}/muster"
		}
	}
	if !up || !down || plan.Outputs["artifact"] != output || plan.Steps[1].ID != "plan" {
		t.Errorf("the plan is not handed over: %v, %v, %v", up, down, plan.Outputs)
	}
}
