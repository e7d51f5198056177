// Package pipelines_test runs what the pipelines run. A stand-in for gh answers for GitHub.
package pipelines_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/sim/needs"
)

const (
	merge = "1111111111111111111111111111111111111111" // the commit as which pull request 12 was merged
	head  = "2222222222222222222222222222222222222222" // the last commit of pull request 12
	other = "3333333333333333333333333333333333333333"

	pull = `{"number": 12, "merged_at": "2026-11-20T10:00:00Z", "merge_commit_sha": "` + merge + `",
		"base": {"ref": "main", "repo": {"full_name": "octo/etl"}},
		"head": {"sha": "` + head + `", "repo": {"full_name": "octo/etl"}}}`
	workflowRun = `{"id": 77, "run_attempt": 3, "event": "pull_request", "head_sha": "` + head + `",
		"path": ".github/workflows/muster.yml", "status": "completed", "conclusion": "success",
		"repository": {"full_name": "octo/etl"}, "head_repository": {"full_name": "octo/etl"}}`
	artifact = `{"name": "muster-plan-pr-12-attempt-3", "expired": false,
		"workflow_run": {"id": 77, "head_sha": "` + head + `"}}`
	plan = `{"stack": "etl-prod", "complete": true, "config_digest": "c0", "digest": "d0"}`
)

// github is a job of the workflow: a folder of answers and the folder that GitHub gives a job.
type github struct {
	t             *testing.T
	answers, temp string
	env           []string
}

// newGitHub answers as after the merge of pull request 12, whose plan was approved.
func newGitHub(t *testing.T) *github {
	needs.Program(t, "jq", "jq")
	g := &github{t: t, answers: t.TempDir(), temp: t.TempDir()}
	g.env = []string{
		"DIR=prod", "STACK=etl-prod", "GITHUB_EVENT_NAME=push", "GITHUB_REPOSITORY=octo/etl", "GITHUB_SHA=" + merge,
		"GITHUB_REF=refs/heads/main", "GITHUB_RUN_ID=88", "GITHUB_RUN_ATTEMPT=1", "GITHUB_SERVER_URL=https://github.com",
		"GITHUB_WORKFLOW_REF=octo/etl/.github/workflows/muster.yml@refs/heads/main", "PR=", "HEAD=" + head,
		"GITHUB_STEP_SUMMARY=" + filepath.Join(g.answers, "summary"), "GITHUB_OUTPUT=" + filepath.Join(g.answers, "output"),
		"RUNNER_TEMP=" + g.temp, "ANSWERS=" + g.answers,
	}
	for name, text := range map[string]string{
		"pulls": "[" + pull + "]", "runs": `{"total_count": 1, "workflow_runs": [` + workflowRun + `]}`,
		"artifacts": `{"total_count": 1, "artifacts": [` + artifact + `]}`, "comments": "[]",
		"download/plan.json": plan, "merged.json": plan, "new.json": plan, "output": "", "summary": "", "calls": "",
		"report.md": "<!-- muster:plan:etl-prod -->\n### muster plan of stack `etl-prod`\n",
	} {
		g.answer(name, text)
	}
	return g
}

func (g *github) answer(name, text string) {
	g.t.Helper()
	file := filepath.Join(g.answers, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		g.t.Fatal(err)
	}
}

// edit replaces text in an answer.
func (g *github) edit(name, old, now string) {
	g.t.Helper()
	text := g.read(name)
	if !strings.Contains(text, old) {
		g.t.Fatalf("%s does not say %s", name, old)
	}
	g.answer(name, strings.ReplaceAll(text, old, now))
}

func (g *github) read(name string) string {
	g.t.Helper()
	body, err := os.ReadFile(filepath.Join(g.answers, name))
	if err != nil {
		g.t.Fatal(err)
	}
	return string(body)
}

// run runs a step. It returns what the step prints and its exit code.
func (g *github) run(step string, env ...string) (string, int) {
	g.t.Helper()
	stand, err := filepath.Abs("testdata/bin")
	if err != nil {
		g.t.Fatal(err)
	}
	cmd := exec.Command("sh", "github.sh", step)
	cmd.Env = slices.Concat([]string{"PATH=" + stand + ":" + os.Getenv("PATH")}, g.env, env)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		g.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func (g *github) planFile() string { return filepath.Join(g.temp, "muster", "plan.json") }

// refuses checks that no plan is found, for a reason that names the way on. There is no plan file then, which
// TestOnlyAWholePlanIsApplied says more about.
func (g *github) refuses(reason string) {
	g.t.Helper()
	out, code := g.run("plan")
	if code != 1 || !strings.Contains(out, "::error title=muster::") || !strings.Contains(out, reason) ||
		!strings.Contains(out, "gh workflow run muster.yml -f action=apply") {
		g.t.Errorf("code %d, want 1 and %q:\n%s", code, reason, out)
	}
	if !strings.Contains(g.read("summary"), reason) {
		g.t.Errorf("the page of the run does not say %q:\n%s", reason, g.read("summary"))
	}
	if _, err := os.Lstat(g.planFile()); err == nil || g.read("output") != "" {
		g.t.Errorf("there is a plan: %v, %s", err, g.read("output"))
	}
}

func TestTheApprovedPlanIsApplied(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	g.env = append(g.env, "MAX_DELETE=50") // which allows a new plan more, and is nothing to an approved one
	out, code := g.run("plan")
	if code != 0 || g.read("output") != "artifact=muster-plan-attempt-1\n" || !strings.Contains(g.read("summary"), "#12") {
		t.Fatalf("code %d, %q\n%s\n%s", code, g.read("output"), out, g.read("summary"))
	}
	body, err := os.ReadFile(g.planFile())
	if err != nil || string(body) != plan {
		t.Errorf("%v; the plan is %s", err, body)
	}
	if out, code := g.run("apply"); code != 0 {
		t.Errorf("code %d\n%s", code, out)
	}
	calls := g.read("calls")
	for _, want := range []string{
		"commits/" + merge + "/pulls?", "&head_sha=" + head + "&", "run download 77 --repo octo/etl --name " +
			"muster-plan-pr-12-attempt-3 ", "\napply " + g.planFile() + " --max-age 168h ",
	} {
		if strings.Count(calls, want) != 1 {
			t.Errorf("calls of %q: %d, want one of\n%s", want, strings.Count(calls, want), calls)
		}
	}
}

// TestAnAnswerThatIsNoneIsRefused: GitHub fails, or answers with nothing, or with what is not understood.
func TestAnAnswerThatIsNoneIsRefused(t *testing.T) {
	for _, name := range []string{"pulls", "runs", "artifacts"} {
		for what, text := range map[string]string{
			"no text": "", "a line": "\n", "null": "null", "a list": "[]", "an object": "{}", "a string": `""`, "zero": "0",
			"a list of null": "[null]", "nested": "[[]]", "keys without values": `{"workflow_runs": null, "artifacts": null}`,
			"empty keys": `{"total_count": 0, "workflow_runs": [], "artifacts": []}`, "a page": "<html>Unicorn!</html>",
			"a message": `{"message": "Not Found", "status": "404"}`, "half": newGitHub(t).read(name)[:60],
			"empty pages": "[][]", "a null page": newGitHub(t).read(name) + "null",
		} {
			t.Run(name+": "+what, func(t *testing.T) {
				t.Parallel()
				g := newGitHub(t)
				g.answer(name, text)
				g.refuses("nothing was applied")
			})
		}
		t.Run(name+": it fails", func(t *testing.T) {
			t.Parallel()
			g := newGitHub(t)
			if err := os.Remove(filepath.Join(g.answers, name)); err != nil {
				t.Fatal(err)
			}
			g.refuses("GitHub did not answer")
		})
	}
}

// TestTwoAnswersAreRefused: which of them was approved cannot be told. Things of others beside ours are no matter.
func TestTwoAnswersAreRefused(t *testing.T) {
	for name, one := range map[string]string{"pulls": pull, "runs": workflowRun, "artifacts": artifact} {
		for what, twice := range map[string]func(g *github){
			"on one page": func(g *github) { g.edit(name, one, one+", "+one) },
			"on two":      func(g *github) { g.answer(name, g.read(name)+g.read(name)) },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				g := newGitHub(t)
				twice(g)
				g.refuses("There is more than one ")
			})
		}
	}
	t.Run("a failure beside a success", func(t *testing.T) {
		t.Parallel()
		g := newGitHub(t)
		g.edit("runs", workflowRun, workflowRun+", "+strings.Replace(workflowRun, `"success"`, `"failure"`, 1))
		g.refuses("There is more than one run of ")
	})
	t.Run("others", func(t *testing.T) {
		t.Parallel()
		g := newGitHub(t)
		g.edit("pulls", pull, strings.ReplaceAll(pull, merge, other)+", "+pull)
		g.edit("runs", workflowRun, workflowRun+", "+strings.ReplaceAll(workflowRun, `"pull_request"`, `"push"`))
		g.edit("artifacts", artifact, strings.Replace(artifact, "pr-12", "pr-1", 1)+", "+artifact)
		if out, code := g.run("plan"); code != 0 {
			t.Errorf("code %d\n%s", code, out)
		}
	})
}

// foreign is text in an answer that is replaced, and why the answer is then refused.
type foreign struct{ name, old, now, reason string }

// foreigners are answers about another pull request, commit, repository, branch, run or stack.
func foreigners() map[string]foreign {
	const noPull, noRun, noArtifact = "There is no pull request", "There is no run", "There is no artifact"
	repo, fork := `{"full_name": "octo/etl"}`, `{"full_name": "mallory/etl"}`
	return map[string]foreign{
		"a pull request that was merged as another commit": {"pulls", merge, other, noPull},
		"one that is open":       {"pulls", `"2026-11-20T10:00:00Z"`, "null", noPull},
		"one for another branch": {"pulls", `"main"`, `"main-2"`, noPull},
		"one of another repository": {
			"pulls", `"main", "repo": ` + repo, `"main", "repo": ` + fork, noPull},
		"one from a fork":             {"pulls", head + `", "repo": ` + repo, head + `", "repo": ` + fork, noPull},
		"one from a fork that went":   {"pulls", head + `", "repo": ` + repo, head + `", "repo": null`, noPull},
		"one without number":          {"pulls", `"number": 12`, `"number": null`, "no number of the pull request"},
		"one with no number":          {"pulls", `"number": 12`, `"number": "12/../13"`, "no number of the pull request"},
		"one with a negative number":  {"pulls", `"number": 12`, `"number": -12`, "no number of the pull request"},
		"one without a commit":        {"pulls", `"` + head + `"`, "null", "no last commit of pull request 12"},
		"one with half a commit":      {"pulls", head, head[:39], "no last commit of pull request 12"},
		"one with no commit":          {"pulls", head, head[:39] + "&", "no last commit of pull request 12"},
		"one with another commit":     {"pulls", head, other, noRun},
		"a run of another commit":     {"runs", head, other, noRun},
		"a run for another event":     {"runs", `"pull_request"`, `"pull_request_target"`, noRun},
		"a run of another workflow":   {"runs", "muster.yml", "test.yml", noRun},
		"a run without a workflow":    {"runs", `".github/workflows/muster.yml"`, "null", "not understood"},
		"a run in another repository": {"runs", `"repository": ` + repo, `"repository": ` + fork, noRun},
		"a run of a fork":             {"runs", `"head_repository": ` + repo, `"head_repository": ` + fork, noRun},
		"a run of nobody":             {"runs", `"head_repository": ` + repo, `"head_repository": null`, noRun},
		"a run that failed":           {"runs", `"success"`, `"failure"`, "did not succeed"},
		"a run without an end":        {"runs", `"success"`, "null", "did not succeed"},
		"a run that goes on":          {"runs", `"completed"`, `"in_progress"`, "did not succeed"},
		"a run without id":            {"runs", `"id": 77`, `"id": null`, "no number of the run"},
		"a run without attempt":       {"runs", `"run_attempt": 3`, `"attempt": 3`, "no number of the attempt"},
		"another attempt":             {"runs", `"run_attempt": 3`, `"run_attempt": 4`, noArtifact},
		"another run":                 {"runs", `"id": 77`, `"id": 78`, noArtifact},
		"a plan of a pull request":    {"artifacts", "pr-12", "pr-1", noArtifact},
		"a plan without one":          {"artifacts", "pr-12-", "", noArtifact},
		"a plan of another run":       {"artifacts", `"id": 77`, `"id": 777`, noArtifact},
		"a plan of another commit":    {"artifacts", head, other, noArtifact},
		"a plan without a run":        {"artifacts", `"workflow_run"`, `"run"`, noArtifact},
		"a plan that has expired":     {"artifacts", `"expired": false`, `"expired": true`, noArtifact},
		"a plan that may be there":    {"artifacts", `"expired": false`, `"expired": null`, noArtifact},
		"a plan of another stack":     {"download/plan.json", "etl-prod", "etl-prod2", "not of stack etl-prod"},
		"a plan of no stack":          {"download/plan.json", `"stack"`, `"s"`, "names no stack"},
		"a plan of a part":            {"download/plan.json", "true", "false", "not complete"},
		"a plan that says nothing":    {"download/plan.json", `"complete"`, `"c"`, "not complete"},
		"a plan of other declarations": {
			"download/plan.json", `"c0"`, `"c1"`, "prod as merged is not what the plan of pull request 12 was made from"},
		"a plan without declarations": {"download/plan.json", `"c0"`, "null", "no digest"},
		"a plan that is damaged":      {"download/plan.json", "digest", "D", "cannot be read"},
		"a merge without digest":      {"merged.json", "config_digest", "problems", "no digest"},
	}
}

func TestAPlanOfAnotherIsRefused(t *testing.T) {
	all := foreigners()
	for _, what := range slices.Sorted(maps.Keys(all)) {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g, f := newGitHub(t), all[what]
			g.edit(f.name, f.old, f.now)
			g.refuses(f.reason)
		})
	}
}

func TestADownloadThatIsNotOnePlanIsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		reason string
		change func(g *github, dir string) error
	}{
		"it fails":    {"cannot be downloaded", func(_ *github, dir string) error { return os.RemoveAll(dir) }},
		"it is empty": {"not one file", func(_ *github, dir string) error { return os.Remove(dir + "/plan.json") }},
		"there is one more": {"not one file", func(g *github, _ string) error {
			g.answer("download/.plan.json", plan)
			return nil
		}},
		"it is a link": {"There is no plan", func(g *github, dir string) error {
			g.answer("elsewhere", plan)
			return errors.Join(os.Remove(dir+"/plan.json"), os.Symlink(g.answers+"/elsewhere", dir+"/plan.json"))
		}},
		"what was merged cannot be planned": {"cannot be planned", func(g *github, _ string) error {
			g.env = append(g.env, "CODE=1")
			return nil
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := newGitHub(t)
			if err := c.change(g, filepath.Join(g.answers, "download")); err != nil {
				t.Fatal(err)
			}
			g.refuses(c.reason)
		})
	}
}

// TestOnlyAWholePlanIsApplied: apply looks at the file again, because another step downloads it.
func TestOnlyAWholePlanIsApplied(t *testing.T) {
	for what, c := range map[string]struct{ plan, reason string }{
		"no plan":                 {"", "There is no plan"},
		"a plan of another stack": {strings.Replace(plan, "etl-prod", "etl", 1), "not of stack etl-prod"},
		"a plan of a part":        {strings.Replace(plan, "true", "false", 1), "not complete"},
		"a damaged plan":          {"{}", "cannot be read"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := newGitHub(t)
			if c.plan != "" {
				g.writePlan(c.plan)
			}
			out, code := g.run("apply")
			if code != 1 || !strings.Contains(out, c.reason) || strings.Contains(g.read("calls"), "apply ") {
				t.Errorf("code %d\n%s\n%s", code, out, g.read("calls"))
			}
		})
	}
}

func (g *github) writePlan(text string) {
	g.t.Helper()
	file := g.planFile()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		g.t.Fatal(err)
	}
}
