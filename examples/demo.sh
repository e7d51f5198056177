#!/usr/bin/env bash
# Shows what muster does, on the throw-away ZooKeeper of muster dev: declare, plan, apply, a change that a live worker
# blocks, a run of four workers of which one dies, and a group whose leader dies and whose task moves to a newer version.
# With a Redis, 7 or newer, also a queue. It runs every command as it prints it. It installs nothing, and leaves no
# process and no file. With MUSTER_SERVERS it uses that ensemble, below a root of its own, and leaves only empty znodes
# there; the queue then needs REDIS_URL.
#
# It has to run on Linux and macOS: bash 3.2, and only what sed, grep and the others have on both.
set -euo pipefail
cd "$(dirname "$0")/.."

muster=${MUSTER:-$PWD/muster} # make demo builds it
dir=$(mktemp -d)
pids=()

cleanup() {
	for pid in ${pids[@]+"${pids[@]}"}; do
		kill "$pid" 2>/dev/null || true
	done
	wait 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() {
	if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
		printf '\n\033[1m# %s\033[0m\n' "$*"
	else
		printf '\n# %s\n' "$*"
	fi
}

# run CODE COMMAND... prints a command, runs it, and checks its exit code.
run() {
	local want=$1 code=0
	shift
	printf '$'
	for word in "${@//$muster/muster}"; do
		case $word in
		*[!A-Za-z0-9_./=-]*) printf " '%s'" "$word" ;;
		*) printf ' %s' "$word" ;;
		esac
	done
	echo
	"$@" || code=$?
	if [ "$code" != "$want" ]; then
		echo "demo: expected exit code $want and got $code" >&2
		exit 1
	fi
	[ "$code" = 0 ] || echo "[exit code $code]"
}

# wait_for TEXT COMMAND... repeats a command until its output contains a text, for 5 minutes at most: a busy machine is slow.
wait_for() {
	local text=$1 end=$((SECONDS + 300))
	shift
	until "$@" 2>/dev/null | grep -q "$text"; do
		if [ $SECONDS -ge $end ]; then
			echo "demo: waited 5 minutes for: $text" >&2
			exit 1
		fi
		sleep 0.1
	done
}

# crash PID kills a process with SIGKILL and waits until it is gone. Without disown, bash would print that it died.
crash() {
	echo "\$ kill -9 $1"
	disown "$1"
	kill -9 "$1"
	while kill -0 "$1" 2>/dev/null; do sleep 0.1; done
}

if [ -n "${MUSTER_SERVERS:-}" ]; then
	say "ZooKeeper: $MUSTER_SERVERS"
else
	dev=(dev)
	unset REDIS_URL # somebody else's
	case $(redis-server --version 2>/dev/null) in
	*' v='[7-9].* | *' v='[1-9][0-9].*) dev+=(--redis) ;;
	esac
	say "a throw-away ZooKeeper${dev[1]:+, and a Redis for a queue}"
	echo "\$ muster ${dev[*]} &"
	"$muster" "${dev[@]}" >"$dir/dev" &
	pids+=($!)
	wait_for ^export cat "$dir/dev"
	sed '/^$/,$d' "$dir/dev"
	eval "$(grep ^export "$dir/dev")"
fi
export MUSTER_SERVERS
export TMPDIR=$dir # a worker that is killed with -9 leaves its socket there
root=/muster-demo-$$
cp examples/one-job.hcl examples/load.sh "$dir/"
export MUSTER_VAR_root=$root
cd "$dir"

say "what is declared (examples/one-job.hcl)"
# shellcheck disable=SC2016 # the last line, for sed
run 0 sed -n '/^job/,$p' one-job.hcl
run 0 "$muster" validate -q one-job.hcl
say "plan: what ZooKeeper lacks; apply: make it so"
run 0 "$muster" plan one-job.hcl
run 0 "$muster" apply --yes one-job.hcl
run 0 "$muster" plan --detailed-exitcode one-job.hcl

say "a worker joins"
echo "\$ muster worker --job hello --root $root --identity worker-0 &"
"$muster" worker --job hello --root "$root" --identity worker-0 >"$dir/worker" 2>&1 &
worker=$!
pids+=("$worker")
wait_for joined cat "$dir/worker"
cat "$dir/worker"
run 0 "$muster" status --root "$root"

say "somebody wants six workers instead of four, while one is at work: blocked"
run 0 sed -i.old 's/workers = 4/workers = 6/' one-job.hcl
run 3 "$muster" plan --detailed-exitcode

say "the worker crashes: after its session (2 s) the job is the leftover of a run that died"
crash "$worker"
wait_for stale "$muster" status --root "$root"
run 2 "$muster" plan --detailed-exitcode

say "apply waits until the job has been stale for a while (3 s), and replaces it"
run 0 "$muster" apply --yes
run 0 "$muster" plan --detailed-exitcode

say "four workers run a script that meets the others at a barrier (examples/load.sh)"
run 0 sed -i.old 's/workers = 6/workers = 4/' one-job.hcl
run 0 "$muster" apply --yes
"$muster" status --root "$root" --watch >"$dir/watch" &
pids+=($!)
PATH=$(dirname "$muster"):$PATH # the script calls muster

# start N [NAME=VALUE] starts a worker in the background and sets $started to its pid.
start() {
	echo "\$ ${2:+$2 }muster worker --job hello --root $root --identity worker-$1 -- ./load.sh &"
	env ${2:+"$2"} "$muster" worker --job hello --root "$root" --identity "worker-$1" -- ./load.sh \
		>>"$dir/worker-$1.log" 2>&1 &
	started=$!
	pids+=("$started")
}

workers=()
for n in 0 1 3; do
	start $n
	workers+=("$started")
done
touch slow
start 2 SLOW=slow
wait_for loading cat "$dir/worker-2.log"
for n in 0 1 3; do
	wait_for loading cat "$dir/worker-$n.log"
done
run 0 "$muster" status --root "$root" hello

say "one of them dies before the barrier; it is started again, gets its old id, and the others have only waited"
crash "$started"
wait_for degraded cat "$dir/watch"
run 0 "$muster" status --root "$root" hello
start 2 SLOW=slow
workers+=("$started")
wait_for 'running .* 4  *0  *1 ' cat "$dir/watch"
rm slow
for worker in "${workers[@]}"; do
	code=0
	wait "$worker" || code=$?
	if [ "$code" != 0 ]; then
		cat "$dir"/worker-?.log >&2
		echo "demo: a worker ended with $code" >&2
		exit 1
	fi
done
run 0 cat worker-0.log worker-1.log worker-2.log worker-3.log

say "all have completed: the last one made the job ready for its next run"
run 0 "$muster" status --root "$root"
run 0 "$muster" plan --detailed-exitcode
wait_for 'ready .* 20' cat "$dir/watch"
echo "what muster status --watch saw on the way:"
sed -n "s#^$root/hello *#  #p" "$dir/watch" | uniq

say "a group: of two processes of version 1.9, one leads, and one runs the report that is due every second"
cat >shop.hcl <<'HCL'
group "shop" {
  root   = var.root
  settle = "1s"
  leader "coordinator" {}
  cron "report" { schedule = "@every 1s" }
  timeouts {
    session = "2s"
    stale   = "1s"
  }
}
HCL
mkdir duties
# shellcheck disable=SC2016 # for the shell of the duty
{
	# shellcheck disable=SC2016 # for the shell of the watcher
	printf '#!/bin/sh\n%s\n' 'echo "$MUSTER_IDENTITY leads, epoch $MUSTER_EPOCH"; exec sleep 1000' >duties/coordinator
	# shellcheck disable=SC2016 # for the shell of the watcher
	printf '#!/bin/sh\n%s\n' 'echo "report of $MUSTER_TICK by $MUSTER_IDENTITY, version $MUSTER_VERSION"' >duties/report
}
chmod +x duties/*
run 0 cat shop.hcl
run 0 tail -n 1 duties/coordinator duties/report
run 0 "$muster" apply --yes -q

# join IDENTITY VERSION starts a member in the background and sets $started to its pid.
join() {
	echo "\$ muster member --group shop --root $root --identity $1 --version $2 --duties duties &"
	"$muster" member --group shop --root "$root" --identity "$1" --version "$2" --duties duties >>"$dir/shop.log" 2>&1 &
	started=$!
	pids+=("$started")
}

join a 1.9.0
a=$started
wait_for 'a leads' cat shop.log
join b 1.9.0
b=$started
wait_for '^1.9.0 .* b .* yes  *1$' "$muster" status --root "$root" shop # the report has moved to it
run 0 "$muster" status --root "$root" shop

say "the leader crashes: after its session (2 s) the other one leads, and has the report too"
crash "$a"
wait_for 'b leads' cat shop.log
wait_for 'report .* by b' cat shop.log

say "a process of version 2.0 starts: when it has been there for a second (settle), the report moves to it"
join c 2.0.0
wait_for 'by c, version 2.0.0' cat shop.log
run 0 "$muster" status --root "$root" shop
run 0 grep -e leads -e report shop.log
run 0 kill "$b" "$started"
wait "$b" "$started" || true # they leave the group

if [ -n "${REDIS_URL:-}" ]; then
	say "a queue: two executors share a batch of 5,000 numbers, and a watcher counts the primes"
	cat >primes.hcl <<HCL
queue "primes" {
  root  = var.root
  redis = "$REDIS_URL"
  timeouts {
    session = "2s"
    stale   = "1s"
  }
}
HCL
	cat >prime <<'SH'
#!/usr/bin/env bash
while read -r n; do # a line in, a line out
	answer=prime
	[ "$n" -ge 2 ] || answer=composite
	for ((d = 2; d * d <= n; d++)); do
		((n % d)) || { answer=composite && break; }
	done
	echo "$answer"
done
SH
	chmod +x prime
	run 0 cat primes.hcl
	run 0 cat prime
	run 0 "$muster" apply --yes -q
	export MUSTER_ROOT=$root
	# executor IDENTITY starts an executor in the background and sets $started to its pid.
	executor() {
		echo "\$ muster executor primes --identity $1 --parallel 2 --lines -- ./prime &"
		"$muster" executor primes --identity "$1" --parallel 2 --lines -- ./prime >>"$dir/primes.log" 2>&1 &
		started=$!
		pids+=("$started")
	}
	executor e1
	# shellcheck disable=SC2016 # for the shell of the watcher
	printf '#!/bin/sh\n%s\n' 'echo "$(grep -c "\"prime\"") of $MUSTER_DONE are prime"' >count
	chmod +x count
	run 0 tail -n 1 count
	echo "\$ muster watcher primes -- ./count &"
	"$muster" watcher primes -- ./count >"$dir/primes" 2>&1 &
	watcher=$!
	pids+=("$watcher")
	run 0 sh -c 'seq 0 4999 | muster submit primes --id first'

	say "an executor dies: after its session (2 s) the other one has what it had"
	e1=$started
	executor e2
	wait_for 'as e2' cat primes.log
	run 0 "$muster" queue batches primes
	crash "$e1"
	wait_for '^669 of 5000' cat primes
	run 0 grep prime$ primes
	wait_for 'no unfinished batch' "$muster" queue batches primes # its command has printed, and ends
	kill "$watcher" "$started"
	wait "$watcher" "$started" || true
else
	say "a queue is left out: it needs a Redis, 7 or newer, and none is here"
fi

say "nothing is declared any more: apply deletes what is ours"
# shellcheck disable=SC2016 # the last line, for sed
run 0 sed -i.old '/^job/,$d' one-job.hcl
run 0 rm -f shop.hcl primes.hcl
run 7 "$muster" apply --yes
if [ -n "${REDIS_URL:-}" ]; then # no queue names it any more, and its keys may be deleted all the same
	at=${REDIS_URL#*://}
	at=${at%%/*}
	export MUSTER_REDIS_HOSTS=${at%:*}
	echo "\$ export MUSTER_REDIS_HOSTS=$MUSTER_REDIS_HOSTS"
fi
run 0 "$muster" apply --yes --allow-empty
say "done: no process and no file is left"
