package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"muster/exitcode"
	"muster/sim/needs"
)

// gitlabJob is a job of GitLab CI.
type gitlabJob struct {
	Script      []string
	Needs       []string
	Environment string
	Rules       []struct{ If, When string }
	Artifacts   struct{ Paths []string }
}

// TestGitLabPipeline runs the scripts of the jobs: apply has the plan of the same pipeline, or none.
func TestGitLabPipeline(t *testing.T) {
	t.Parallel()
	needs.Program(t, "jq", "jq")
	var jobs struct{ Plan, Apply, Drift gitlabJob }
	if err := yaml.Unmarshal([]byte(read(t, "../examples/pipelines/gitlab-ci.yml")), &jobs); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, 1, "")
	project := t.TempDir()
	if err := os.Symlink(f.dir, filepath.Join(project, "prod")); err != nil {
		t.Fatal(err)
	}
	script := func(j gitlabJob, code int, text string, env ...string) {
		t.Helper()
		cmd := exec.Command("sh", "-euc", strings.Join(j.Script, "\n"))
		cmd.Dir = project
		cmd.Env = append([]string{
			"PATH=" + bin + ":" + os.Getenv("PATH"), "MUSTER_SERVERS=" + servers.Connect(), "CI=true", "MAX_DELETE=10",
		}, env...)
		expect(t, result(cmd), code, text)
	}
	script(jobs.Plan, 0, "1 to create")
	widget := strings.Join(strings.Fields(read(t, project+"/widget.json")), "")
	if widget != `{"create":1,"update":0,"delete":0}` {
		t.Errorf("the widget has %s", widget)
	}
	script(jobs.Apply, 0, "Applied 1 of 1")
	script(jobs.Apply, exitcode.Refused, "already applied")
	f.write(t, 20, "")
	script(jobs.Plan, 0, "19 to create")
	script(jobs.Apply, 0, "Applied 19 of 19")
	f.write(t, 1, "")
	script(jobs.Plan, exitcode.Declined, "--max-delete")
	if _, err := os.Stat(filepath.Join(project, "plan.json")); err == nil {
		t.Error("the plan of before is still there")
	}
	script(jobs.Plan, 0, "19 to delete", "MAX_DELETE=19")
	script(jobs.Drift, exitcode.Differences, "orphan")

	if jobs.Apply.Environment != "production" || strings.Join(jobs.Apply.Needs, " ") != "plan" ||
		strings.Join(jobs.Plan.Artifacts.Paths, " ") != "plan.json plan.md plan.html" {
		t.Errorf("apply does not have the plan of its pipeline: %+v, %+v", jobs.Apply, jobs.Plan)
	}
	for i, r := range jobs.Apply.Rules { // the first rule of plan is for merge requests
		if r.When != "manual" || r.If != jobs.Plan.Rules[i+1].If || strings.Contains(r.If, "merge_request") ||
			!strings.Contains(r.If, "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH") {
			t.Errorf("apply runs if %+v", r)
		}
	}
	if last := jobs.Apply.Rules[len(jobs.Apply.Rules)-1]; !strings.Contains(last.If, `"web"`) {
		t.Errorf("nobody can start it by hand: %+v", jobs.Apply.Rules)
	}
}
