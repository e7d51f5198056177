package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/apply/history"
	"muster/exitcode"
	"muster/sim/needs"
	"muster/wrap"
)

// TestStrangersFile: in a directory where everybody may put files, a file is refused that neither the user nor the
// owner of the directory has put there. Elsewhere the directory decides who may do so.
func TestStrangersFile(t *testing.T) {
	const me, other, third = 1000, 1001, 1002
	shared := fs.ModeSticky | 0o777
	for _, test := range []struct {
		file, dir int
		mode      fs.FileMode
		want      bool
	}{
		{other, third, shared, true},
		{other, third, fs.ModeSticky | 0o775, true},
		{other, other, shared, false},
		{other, me, shared, true},
		{me, third, shared, false},
		{other, third, 0o777, false},
		{other, third, fs.ModeSticky | 0o755, false},
	} {
		if got := isStrangers(test.file, test.dir, me, test.mode); got != test.want {
			t.Errorf("a file of %d in a directory of %d, %s: %v", test.file, test.dir, test.mode, got)
		}
	}
}

// TestOutputInASharedDirectory: neither a plan nor a report replaces what somebody else has put into such a directory,
// whatever it is: it would have the mode that the other one chose, or be where a link leads.
func TestOutputInASharedDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		needs.Missing(t, "only root can make files of somebody else")
	}
	dir, mine := t.TempDir(), t.TempDir()
	file, link, own := filepath.Join(dir, "plan.json"), filepath.Join(dir, "link.json"), filepath.Join(dir, "own.json")
	err := errors.Join(os.Chmod(dir, 0o777|fs.ModeSticky), os.Chown(dir, 12, 12), os.WriteFile(file, []byte("old"), 0o666),
		os.Chown(file, 13, 13), os.Symlink(filepath.Join(mine, "new"), link), os.Lchown(link, 13, 13),
		os.WriteFile(own, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		if err := writeOutput(path, []byte("new")); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v", path, err)
		}
	}
	entries, _ := os.ReadDir(mine)
	if got, _ := os.ReadFile(file); string(got) != "old" || len(entries) > 0 {
		t.Errorf("it was written: %q, %v", got, entries)
	}
	for _, path := range []string{own, filepath.Join(dir, "new.json")} {
		if err := writeOutput(path, []byte("new")); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestWhoAsked: what each system says, and what comes first.
func TestWhoAsked(t *testing.T) {
	for _, c := range []struct {
		name, env, flag string
		want            history.Who
	}{
		{"nothing is known", "CI=true", "", history.Who{}},
		{"the flag comes first", "MUSTER_ACTOR=bob", " ann ", history.Who{Actor: "ann"}},
		{"then MUSTER_ACTOR, and the pipeline's link", "MUSTER_ACTOR=bob GITHUB_ACTIONS=true GITHUB_ACTOR=eve GITHUB_SHA=c0",
			" ", history.Who{Actor: "bob", CI: "GitHub Actions", Commit: "c0"}},
		{"GitHub: who started the last attempt", "GITHUB_ACTIONS=true GITHUB_ACTOR=ann GITHUB_TRIGGERING_ACTOR=bob " +
			"GITHUB_SERVER_URL=https://g.example GITHUB_REPOSITORY=t/r GITHUB_RUN_ID=7 GITHUB_SHA=c0", "",
			history.Who{Actor: "bob", CI: "GitHub Actions", Commit: "c0", URL: "https://g.example/t/r/actions/runs/7"}},
		{"GitLab", "GITLAB_CI=true GITLAB_USER_LOGIN=ann CI_COMMIT_SHA=c0 CI_JOB_URL=https://g.example/-/jobs/7", "",
			history.Who{Actor: "ann", CI: "GitLab CI", Commit: "c0", URL: "https://g.example/-/jobs/7"}},
		{"Buildkite: who unblocked it", "BUILDKITE=true BUILDKITE_BUILD_CREATOR=ann BUILDKITE_UNBLOCKER=bob " +
			"BUILDKITE_COMMIT=c0 BUILDKITE_BUILD_URL=https://b.example/7", "",
			history.Who{Actor: "bob", CI: "Buildkite", Commit: "c0", URL: "https://b.example/7"}},
		{"CircleCI", "CIRCLECI=true CIRCLE_USERNAME=ann CIRCLE_SHA1=c0 CIRCLE_BUILD_URL=https://c.example/7", "",
			history.Who{Actor: "ann", CI: "CircleCI", Commit: "c0", URL: "https://c.example/7"}},
		{"Azure Pipelines", "TF_BUILD=True BUILD_REQUESTEDFOR=ann BUILD_SOURCEVERSION=c0 BUILD_BUILDID=7 " +
			"SYSTEM_TEAMFOUNDATIONCOLLECTIONURI=https://a.example/o/ SYSTEM_TEAMPROJECT=p", "",
			history.Who{Actor: "ann", CI: "Azure Pipelines", Commit: "c0",
				URL: "https://a.example/o/p/_build/results?buildId=7"}},
		{"Bitbucket names nobody", "BITBUCKET_BUILD_NUMBER=7 BITBUCKET_COMMIT=c0 BITBUCKET_REPO_FULL_NAME=t/r", "",
			history.Who{CI: "Bitbucket Pipelines", Commit: "c0", URL: "https://bitbucket.org/t/r/pipelines/results/7"}},
		{"Woodpecker", "CI=woodpecker CI_PIPELINE_AUTHOR=ann CI_COMMIT_SHA=c0 CI_PIPELINE_URL=https://w.example/7", "",
			history.Who{Actor: "ann", CI: "Woodpecker", Commit: "c0", URL: "https://w.example/7"}},
		{"Drone", "DRONE=true DRONE_COMMIT_AUTHOR=ann DRONE_COMMIT_SHA=c0 DRONE_BUILD_LINK=https://d.example/7", "",
			history.Who{Actor: "ann", CI: "Drone", Commit: "c0", URL: "https://d.example/7"}},
		{"Jenkins", "JENKINS_URL=https://j.example/ BUILD_USER_ID=ann GIT_COMMIT=c0 BUILD_URL=https://j.example/job/x/7/", "",
			history.Who{Actor: "ann", CI: "Jenkins", Commit: "c0", URL: "https://j.example/job/x/7/"}},
		{"half of an address is none", "GITHUB_ACTIONS=true GITHUB_SERVER_URL=https://g.example GITHUB_RUN_ID=7", "",
			history.Who{CI: "GitHub Actions"}},
		{"no passwords, no scripts", "GITLAB_CI=true CI_JOB_URL=https://u:p@g.example/7", "",
			history.Who{CI: "GitLab CI", URL: "https://g.example/7"}},
		{"no scripts", "JENKINS_URL=x BUILD_URL=javascript:alert(1)", "", history.Who{CI: "Jenkins"}},
		{"too long", "MUSTER_ACTOR=" + strings.Repeat("a", 300), "", history.Who{Actor: strings.Repeat("a", 253) + "…"}},
	} {
		if d := cmp.Diff(c.want, environ(strings.Fields(c.env)).who(c.flag)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// A duration in a record of --log-format json is what it is in text, not a number of nanoseconds.
func TestDurationsOfRecordsAreText(t *testing.T) {
	var b bytes.Buffer
	p := &process{err: &stream{w: &b}}
	p.err.makeRecords()
	slog.New(p.logHandler(slog.LevelInfo)).Info("waiting", "since", 10*time.Second)
	if !strings.Contains(b.String(), `"since":"10s"`) {
		t.Errorf("record %s has no since of 10s", b.String())
	}
}

// An answer that a worker without a session gives too late has the code of a worker that has not joined, and says what
// is safe to repeat.
func TestALateAnswer(t *testing.T) {
	err := workerError("barrier", fmt.Errorf("the session is lost: %w", wrap.ErrLate))
	if code := exitCode(t.Context(), err); code != exitcode.NotJoined {
		t.Errorf("code %d", code)
	}
	if next := nextStep(err); !strings.HasSuffix(next, "ask again, with --round, for an arrival stands") {
		t.Errorf("next: %s", next)
	}
}
