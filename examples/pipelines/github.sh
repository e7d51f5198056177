#!/bin/sh
# .github/muster.sh: what github.yml does in its steps. It needs muster, gh and jq.
#
#   muster.sh plan      on a push finds the plan that was approved, else makes one
#   muster.sh comment   writes the new plan into its comment on the pull request
#   muster.sh apply     applies the plan that the same workflow run has found or made
#   muster.sh drift     compares what was applied with what is there
#
# DIR is the directory of the declarations, STACK the name of their stack, and PR the number of the pull request, if
# this is one. MAX_DELETE, which a person may give by hand, allows a plan more deletes. Everything else is from GitHub.
#
# A plan is applied only if every answer says the same: one pull request was merged as this commit, one run of this
# workflow planned the last commit of that pull request and succeeded, that run has one plan, the plan is of this stack,
# and it was made from what was merged. If an answer is missing, empty, doubled or of something else, the script says
# which, applies nothing and ends with 1. A person can then run the workflow by hand.
set -eu

work=${RUNNER_TEMP:?}/muster # GitHub empties it before each job, so nothing in it is of an earlier run
plan=$work/plan.json
workflow=${GITHUB_WORKFLOW_REF:?}
workflow=${workflow#"${GITHUB_REPOSITORY:?}"/}
workflow=${workflow%%@*} # .github/workflows/muster.yml
newline='
'
by_hand="gh workflow run ${workflow##*/} -f action=apply"

# summary adds standard input to the page of the run.
summary() {
	cat >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
}

# tell WHAT NEXT prints an annotation, and adds it to the page of the run.
tell() {
	echo "::error title=muster::$1. $2"
	printf '\n**%s.** %s\n' "$1" "$2" | summary
}

# stop WHY ends the script. Nothing is applied.
stop() {
	rm -f "$plan"
	tell "$1; nothing was applied" "To make a new plan and approve that: $by_hand" >&2
	exit 1
}

# check_digits and check_sha stop unless VALUE, which is WHAT, can stand in the address of a question.
check_digits() {
	case $2 in
	'' | *[!0-9]*) stop "GitHub's answer has no number of the $1" ;;
	esac
}

check_sha() {
	case $2 in
	*[!0-9a-f]*) stop "GitHub's answer has no $1" ;;
	????????????????????????????????????????) ;;
	*) stop "GitHub's answer has no $1" ;;
	esac
}

# ask PATH prints GitHub's answer as a JSON list of its pages.
ask() {
	gh api --paginate "$1" >"$work/answer" || stop "GitHub did not answer: gh api $1"
	jq -es 'if length == 0 or any(.[]; . == null) then error("empty") else . end' "$work/answer" ||
		stop "GitHub's answer is empty or no JSON: gh api $1"
}

# only WHAT FILTER [--arg NAME VALUE]... prints the one thing in standard input, a list of pages, that fits the jq
# filter.
only() {
	what=$1 filter=$2
	shift 2
	found=$(jq -c --arg repo "$GITHUB_REPOSITORY" --arg sha "$GITHUB_SHA" --arg branch "${GITHUB_REF#refs/heads/}" \
		"$@" "$filter") || stop "GitHub's answer about the $what is not understood"
	case $found in # each is a line
	'') stop "There is no $what" ;;
	*"$newline"*) stop "There is more than one $what" ;;
	*) printf '%s' "$found" ;;
	esac
}

# plan_name PR ATTEMPT is the name of the artifact that holds a plan.
plan_name() {
	echo "muster-plan-${1:+pr-$1-}attempt-$2"
}

# check_plan stops unless there is a plan, whole and of this stack.
check_plan() {
	if [ ! -f "$plan" ] || [ -L "$plan" ]; then
		stop "There is no plan"
	fi
	muster show "$plan" >"$work/plan.txt" || stop "The plan cannot be read"
	of=$(jq -er .stack "$plan") || stop "The plan names no stack"
	[ "$of" = "$STACK" ] || stop "The plan is not of stack $STACK"
	jq -e '.complete == true' "$plan" >"$work/answer" || stop "The plan is not complete"
}

# find_plan downloads the plan of the pull request that was merged as this commit.
find_plan() {
	pulls=$(ask "repos/$GITHUB_REPOSITORY/commits/$GITHUB_SHA/pulls?per_page=100") || exit
	# shellcheck disable=SC2016 # variables of jq
	pull=$(printf '%s' "$pulls" | only "pull request of this repository that was merged as $GITHUB_SHA" '.[][] |
		select(.merged_at != null and .merge_commit_sha == $sha and .base.ref == $branch and
			.base.repo.full_name == $repo and .head.repo.full_name == $repo)') || exit
	pr=$(printf '%s' "$pull" | jq -r .number) || exit
	check_digits "pull request" "$pr"
	head=$(printf '%s' "$pull" | jq -r .head.sha) || exit
	check_sha "last commit of pull request $pr" "$head"

	query="event=pull_request&head_sha=$head&per_page=100"
	runs=$(ask "repos/$GITHUB_REPOSITORY/actions/workflows/${workflow##*/}/runs?$query") || exit
	# shellcheck disable=SC2016 # variables of jq
	run=$(printf '%s' "$runs" | only "run of $workflow for $head, the last commit of pull request $pr" \
		'.[].workflow_runs[] | select(.event == "pull_request" and .head_sha == $head and
			(.path | split("@")[0]) == $workflow and .repository.full_name == $repo and
			.head_repository.full_name == $repo)' \
		--arg head "$head" --arg workflow "$workflow") || exit
	id=$(printf '%s' "$run" | jq -r .id) || exit
	check_digits "run that planned pull request $pr" "$id"
	attempt=$(printf '%s' "$run" | jq -r .run_attempt) || exit
	check_digits "attempt of run $id" "$attempt"
	printf '%s' "$run" | jq -e '.status == "completed" and .conclusion == "success"' >"$work/answer" ||
		stop "Run $id, which planned pull request $pr, did not succeed"

	name=$(plan_name "$pr" "$attempt")
	artifacts=$(ask "repos/$GITHUB_REPOSITORY/actions/runs/$id/artifacts?per_page=100") || exit
	# shellcheck disable=SC2016 # variables of jq
	printf '%s' "$artifacts" | only "artifact $name of run $id that has not expired" '.[].artifacts[] |
		select(.name == $name and .expired == false and (.workflow_run.id | tostring) == $id and
			.workflow_run.head_sha == $head)' \
		--arg name "$name" --arg id "$id" --arg head "$head" >"$work/answer" || exit
	gh run download "$id" --repo "$GITHUB_REPOSITORY" --name "$name" --dir "$work/download" ||
		stop "The artifact $name of run $id cannot be downloaded"
	[ "$(ls -A "$work/download")" = plan.json ] || stop "The artifact $name of run $id is not one file plan.json"
	mv "$work/download/plan.json" "$plan"
	check_plan

	# Another pull request may have been merged since the plan was made. Then the two together may declare something
	# that this plan would delete.
	muster plan "$DIR" --quiet --allow-empty --max-delete 1000000 --report json="$work/merged.json" >"$work/plan.log" ||
		stop "What was merged cannot be planned, so that it cannot be compared with the plan"
	merged=$(jq -er .config_digest "$work/merged.json") || stop "The plan of what was merged has no digest"
	approved=$(jq -er .config_digest "$plan") || stop "The plan has no digest of its configuration"
	[ "$merged" = "$approved" ] ||
		stop "$DIR as merged is not what the plan of pull request $pr was made from"
	{
		echo "The plan of pull request #$pr, made by run $id:"
		echo
		sed 's/^/    /' "$work/plan.txt"
	} | summary
	cat "$work/plan.txt"
}

# make_plan makes a plan. It is no failure if there is something to do, or something that needs attention.
make_plan() {
	set -- --detailed-exitcode --out "$plan" --report markdown="$work/plan.md" --report github=-
	case ${MAX_DELETE:-} in
	'') ;;
	*[!0-9]*) stop "The number of deletes that are allowed is not a number" ;;
	*) set -- "$@" --max-delete "$MAX_DELETE" ;;
	esac
	code=0
	muster plan "$DIR" "$@" || code=$?
	[ ! -f "$work/plan.md" ] || summary <"$work/plan.md"
	case $code in
	0 | 2 | 3) check_plan ;;
	7)
		tell "No plan was saved: a policy denies it, it deletes too much, or declares nothing" \
			"If so many deletes are meant: $by_hand -f max_delete=N"
		exit 7
		;;
	*)
		rm -f "$plan"
		exit "$code"
		;;
	esac
}

run_plan() {
	rm -rf "$work"
	mkdir -p "$work"
	case ${GITHUB_EVENT_NAME:?} in
	push)
		find_plan
		pr=""
		;;
	pull_request)
		pr=${PR:-}
		check_digits "pull request" "$pr"
		make_plan
		;;
	*)
		pr=""
		make_plan
		;;
	esac
	echo "artifact=$(plan_name "$pr" "${GITHUB_RUN_ATTEMPT:?}")" >>"${GITHUB_OUTPUT:?}"
}

# run_comment writes the plan into the comment that has the marker of this stack, or into a new one.
run_comment() {
	check_digits "pull request" "${PR:-}"
	[ -s "$work/plan.md" ] || stop "There is no report of the plan"
	# The marker with which the report begins. If the configuration cannot be read it names no stack.
	marker="<!-- muster:plan:$(printf '%s' "$STACK" | sed -e 's/--/-=2d/g' -e 's/-$//') -->"
	{
		echo "$marker"
		sed -e '1{/^<!-- muster:plan:.* -->$/d' -e '}' "$work/plan.md"
		printf '\nOf commit %s, by [run %s](%s).\n' "${HEAD:?}" "${GITHUB_RUN_ID:?}" \
			"${GITHUB_SERVER_URL:?}/$GITHUB_REPOSITORY/actions/runs/$GITHUB_RUN_ID"
	} >"$work/comment.md"
	comments=$(ask "repos/$GITHUB_REPOSITORY/issues/$PR/comments?per_page=100") || exit
	# shellcheck disable=SC2016 # variables of jq
	ours=$(printf '%s' "$comments" | jq -r --arg marker "$marker" '.[][] | select(.user.type == "Bot" and
		((.body // "") | startswith($marker))) | .id') || stop "GitHub's answer about the comments is not understood"
	first=""
	for id in $ours; do
		check_digits comment "$id"
		if [ -z "$first" ]; then
			first=$id
			gh api --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$id" -F body=@"$work/comment.md" \
				>"$work/answer" || stop "The comment $id cannot be changed"
		else # the plan of an earlier commit
			gh api --method DELETE "repos/$GITHUB_REPOSITORY/issues/comments/$id" >"$work/answer" ||
				stop "The old comment $id cannot be deleted"
		fi
	done
	[ -n "$first" ] || gh api --method POST "repos/$GITHUB_REPOSITORY/issues/$PR/comments" \
		-F body=@"$work/comment.md" >"$work/answer" || stop "The comment cannot be written"
}

# run_apply applies the plan that the same workflow run has found or made.
run_apply() {
	mkdir -p "$work"
	check_plan
	code=0
	muster apply "$plan" --max-age 168h --lock-timeout 10m --report markdown="$work/apply.md" --report github=- ||
		code=$?
	[ ! -f "$work/apply.md" ] || summary <"$work/apply.md"
	case $code in
	0) ;;
	3) tell "Everything else was applied, but a job is blocked or waiting" "When it is free: $by_hand" ;;
	4) tell "Some changes were not made, and this plan is spent" "To plan what is left and approve that: $by_hand" ;;
	5) tell "The plan was refused and nothing was written" "To make a new plan and approve that: $by_hand" ;;
	6) tell "Another apply of the stack went on for 10 minutes; nothing was written" "Run the failed job again" ;;
	*) tell "muster apply ended with $code" "When the cause is mended: $by_hand" ;;
	esac
	exit "$code"
}

run_drift() {
	rm -rf "$work"
	mkdir -p "$work"
	code=0
	muster drift "$DIR" --report markdown="$work/drift.md" --report github=- || code=$?
	[ ! -f "$work/drift.md" ] || summary <"$work/drift.md"
	[ "$code" != 2 ] || tell "ZooKeeper is not as it was applied" "To plan and apply what is declared: $by_hand"
	exit "$code"
}

: "${DIR:?}" "${STACK:?}" "${GITHUB_SHA:?}" "${GITHUB_REF:?}"
case ${1:-} in
plan | comment | apply | drift) "run_$1" ;;
*)
	echo "muster.sh: say plan, comment, apply or drift" >&2
	exit 64
	;;
esac
