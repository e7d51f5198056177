package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/exitcode"
	"muster/sim/needs"
)

// workflow runs the script of the GitHub workflow with the real muster. A stand-in for gh answers from a folder.
type workflow struct {
	t       *testing.T
	files   fixture
	answers string
	n       int // workflow runs so far
}

// run runs steps as one job of a workflow run for an event. It returns what they print, the folder of the job, and
// their code.
func (w *workflow) run(event string, steps string, env ...string) (out, temp string, code int) {
	w.t.Helper()
	w.n++
	script, err := filepath.Abs("../examples/pipelines/github.sh")
	if err != nil {
		w.t.Fatal(err)
	}
	stand := filepath.Join(filepath.Dir(script), "testdata", "bin", "gh")
	temp = w.t.TempDir()
	tools := w.t.TempDir() // the stand-in for gh, and not that for muster
	if err := os.Symlink(stand, filepath.Join(tools, "gh")); err != nil {
		w.t.Fatal(err)
	}
	calls := "set -e\n"
	for _, step := range strings.Fields(steps) {
		calls += script + " " + step + "\n"
	}
	cmd := exec.Command("sh", "-c", calls)
	cmd.Dir = w.files.dir
	sha := strings.Repeat("1", 40)
	cmd.Env = append([]string{
		"PATH=" + tools + ":" + bin + ":" + os.Getenv("PATH"), "MUSTER_SERVERS=" + servers.Connect(), "USER=ci", "CI=true",
		"DIR=.", "STACK=tests", "GITHUB_EVENT_NAME=" + event, "GITHUB_REPOSITORY=octo/etl", "GITHUB_SHA=" + sha,
		"GITHUB_REF=refs/heads/main", fmt.Sprint("GITHUB_RUN_ID=", w.n), "GITHUB_RUN_ATTEMPT=1",
		"GITHUB_SERVER_URL=https://github.com", "PR=12", "HEAD=" + strings.Repeat("2", 40),
		"GITHUB_WORKFLOW_REF=octo/etl/.github/workflows/muster.yml@refs/heads/main",
		"GITHUB_STEP_SUMMARY=" + filepath.Join(temp, "summary"), "GITHUB_OUTPUT=" + filepath.Join(temp, "output"),
		"RUNNER_TEMP=" + temp, "ANSWERS=" + w.answers,
	}, env...)
	all, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		w.t.Fatal(err)
	}
	return string(all), temp, cmd.ProcessState.ExitCode()
}

// expect runs steps and checks their code and what they print.
func (w *workflow) expect(event, steps string, code int, texts ...string) (temp string) {
	w.t.Helper()
	out, temp, got := w.run(event, steps)
	expect(w.t, outcome{got, out, ""}, code, texts...)
	return temp
}

func (w *workflow) answer(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.answers, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// merge answers as after the merge of pull request 12, which the last run has planned.
func (w *workflow) merge(temp string) {
	w.t.Helper()
	const repo = `{"full_name": "octo/etl"}`
	head := strings.Repeat("2", 40)
	w.answer("pulls", fmt.Sprintf(`[{"number": 12, "merged_at": "2026-11-20T10:00:00Z", "merge_commit_sha": "%s",
		"base": {"ref": "main", "repo": %s}, "head": {"sha": "%s", "repo": %[2]s}}]`, strings.Repeat("1", 40), repo, head))
	w.answer("runs", fmt.Sprintf(`{"workflow_runs": [{"id": %d, "run_attempt": 1, "event": "pull_request",
		"head_sha": "%s", "path": ".github/workflows/muster.yml", "status": "completed", "conclusion": "success",
		"repository": %s, "head_repository": %[3]s}]}`, w.n, head, repo))
	name := strings.TrimPrefix(strings.TrimSpace(read(w.t, filepath.Join(temp, "output"))), "artifact=")
	w.answer("artifacts", fmt.Sprintf(`{"artifacts": [{"name": "%s", "expired": false,
		"workflow_run": {"id": %d, "head_sha": "%s"}}]}`, name, w.n, head))
	w.answer("download/plan.json", read(w.t, filepath.Join(temp, "muster", "plan.json")))
}

// TestGitHubWorkflow takes a change from the pull request to ZooKeeper, and shows what is refused on the way.
func TestGitHubWorkflow(t *testing.T) {
	t.Parallel()
	needs.Program(t, "jq", "jq")
	w := &workflow{t: t, files: newFixture(t, 1, ""), answers: t.TempDir()}
	if err := os.Mkdir(filepath.Join(w.answers, "download"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.answer("comments", "[]")
	planned := w.expect("pull_request", "plan comment", 0, "1 to create")
	if body := read(t, filepath.Join(w.answers, "body")); !strings.HasPrefix(body, "<!-- muster:plan:tests -->\n###") ||
		strings.Count(body, "<!--") != 1 || !strings.Contains(body, `j["j0"]`) {
		t.Errorf("the comment is\n%s", body)
	}
	w.merge(planned)
	applied := w.expect("push", "plan apply", 0, "Applied 1 of 1")
	if page := read(t, filepath.Join(applied, "summary")); !strings.Contains(page, "pull request #12") ||
		!strings.Contains(page, "    +   job.j[\"j0\"]") || !strings.Contains(page, "### muster apply") {
		t.Errorf("the page of the run is\n%s", page)
	}
	const byHand = "gh workflow run muster.yml -f action=apply"
	w.expect("push", "plan apply", exitcode.Refused, "already applied", byHand)

	w.files.write(t, 2, "") // of another pull request, which was merged in between
	w.expect("push", "plan apply", exitcode.Error, ". as merged is not what the plan of pull request 12 was made", byHand)
	w.expect("workflow_dispatch", "plan apply", 0, "Applied 1 of 1")
	w.expect("schedule", "drift", 0)

	w.files.write(t, 20, "")
	w.merge(w.expect("pull_request", "plan", 0, "18 to create"))
	w.expect("workflow_dispatch", "plan apply", 0, "Applied 18 of 18")
	w.expect("push", "plan apply", 0, "18 already done")
	w.files.write(t, 1, "")
	w.expect("pull_request", "plan", exitcode.Declined, byHand+" -f max_delete=N")
	if out, _, code := w.run("workflow_dispatch", "plan apply", "MAX_DELETE=19"); code != 0 {
		t.Errorf("code %d\n%s", code, out)
	}
}
