package cli

import (
	"cmp"
	"os"
	"strings"

	"muster/apply/history"
)

// ciSystem says what a system for continuous integration puts into the environment of what it runs.
type ciSystem struct {
	name   string
	set    string   // a variable that only this system sets
	value  string   // that it has there; empty: any
	actors []string // variables with who asked for the run, the first that is set counts
	commit string   // variable with the commit
	url    string   // of the run: variables, each of which has to be set, and text
}

// ciSystems lists the systems that are known, each with the page that documents its variables.
func ciSystems() []ciSystem {
	return []ciSystem{
		// https://docs.github.com/en/actions/reference/workflows-and-actions/variables
		{"GitHub Actions", "GITHUB_ACTIONS", "true", []string{"GITHUB_TRIGGERING_ACTOR", "GITHUB_ACTOR"}, "GITHUB_SHA",
			"${GITHUB_SERVER_URL}/${GITHUB_REPOSITORY}/actions/runs/${GITHUB_RUN_ID}"},
		// https://docs.gitlab.com/ci/variables/predefined_variables/
		{"GitLab CI", "GITLAB_CI", "true", []string{"GITLAB_USER_LOGIN"}, "CI_COMMIT_SHA", "${CI_JOB_URL}"},
		// https://buildkite.com/docs/pipelines/environment_variables
		{"Buildkite", "BUILDKITE", "true", []string{"BUILDKITE_UNBLOCKER", "BUILDKITE_BUILD_CREATOR"},
			"BUILDKITE_COMMIT", "${BUILDKITE_BUILD_URL}"},
		// https://circleci.com/docs/reference/variables/
		{"CircleCI", "CIRCLECI", "true", []string{"CIRCLE_USERNAME"}, "CIRCLE_SHA1", "${CIRCLE_BUILD_URL}"},
		// https://learn.microsoft.com/azure/devops/pipelines/build/variables
		{"Azure Pipelines", "TF_BUILD", "True", []string{"BUILD_REQUESTEDFOR"}, "BUILD_SOURCEVERSION",
			"${SYSTEM_TEAMFOUNDATIONCOLLECTIONURI}${SYSTEM_TEAMPROJECT}/_build/results?buildId=${BUILD_BUILDID}"},
		// https://support.atlassian.com/bitbucket-cloud/docs/variables-and-secrets/ (no variable has a name of a user)
		{"Bitbucket Pipelines", "BITBUCKET_BUILD_NUMBER", "", nil, "BITBUCKET_COMMIT",
			"https://bitbucket.org/${BITBUCKET_REPO_FULL_NAME}/pipelines/results/${BITBUCKET_BUILD_NUMBER}"},
		// https://woodpecker-ci.org/docs/usage/environment
		{"Woodpecker", "CI", "woodpecker", []string{"CI_PIPELINE_AUTHOR", "CI_COMMIT_AUTHOR"}, "CI_COMMIT_SHA",
			"${CI_PIPELINE_URL}"},
		// https://docs.drone.io/pipeline/environment/reference/
		{"Drone", "DRONE", "true", []string{"DRONE_COMMIT_AUTHOR"}, "DRONE_COMMIT_SHA", "${DRONE_BUILD_LINK}"},
		// https://www.jenkins.io/doc/book/pipeline/jenkinsfile/#using-environment-variables, and for the user
		// https://plugins.jenkins.io/build-user-vars-plugin/
		{"Jenkins", "JENKINS_URL", "", []string{"BUILD_USER_ID", "BUILD_USER"}, "GIT_COMMIT", "${BUILD_URL}"},
	}
}

// who says who asks for an apply: flag, or MUSTER_ACTOR, or whom the system names in which muster runs. If none of them
// does, it is the user of this process, whom zkstate puts there.
func (e environ) who(flag string) history.Who {
	who := history.Who{Actor: strings.TrimSpace(cmp.Or(strings.TrimSpace(flag), e.value("MUSTER_ACTOR")))}
	for _, ci := range ciSystems() {
		found := e.value(ci.set)
		if found == "" || ci.value != "" && !strings.EqualFold(found, ci.value) {
			continue
		}
		who.CI, who.Commit, who.URL = ci.name, e.value(ci.commit), e.expand(ci.url)
		for _, name := range ci.actors {
			who.Actor = cmp.Or(who.Actor, strings.TrimSpace(e.value(name)))
		}
		break
	}
	return who.Clean()
}

// expand replaces the variables in s; it returns nothing if one of them is not set.
func (e environ) expand(s string) string {
	complete := true
	s = os.Expand(s, func(name string) string {
		complete = complete && e.value(name) != ""
		return e.value(name)
	})
	if !complete {
		return ""
	}
	return s
}
