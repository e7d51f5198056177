#!/bin/sh
# Entry point of a container that is one worker of a job: muster is process 1, which reaps, passes signals on and exits with the
# command's code. The image needs nothing but muster, a shell, and the command:
#
#   COPY muster /usr/local/bin/
#   COPY entrypoint.sh compute.sh /
#   ENTRYPOINT ["/entrypoint.sh"]
#   CMD ["/compute.sh"]
#
# MUSTER_SERVERS and JOB say what to join; ROOT, START, GRACE, ADVERTISE and HTTP are optional. Who the worker is comes from
# MUSTER_IDENTITY, or from the index that Kubernetes or Slurm gives the container. MUSTER_RUN names the run, if it has a name: a
# container that is started again after that run has completed ends with 0, and does not join the next. A run that failed is
# cleared away by muster apply; until then workers of another run wait.
set -eu

usage() {
	echo "entrypoint: $1" >&2
	exit 64
}
[ -n "${MUSTER_SERVERS:-}" ] || usage "set MUSTER_SERVERS to where ZooKeeper is, such as zookeeper:2181"
[ -n "${JOB:-}" ] || usage "set JOB to the name of the job to join"
[ $# -gt 0 ] || usage "give the command to run"

# GRACE must be shorter than what the platform grants before it kills the container.
exec muster worker --job "$JOB" ${ROOT:+--root "$ROOT"} --start "${START:-joined}" --grace "${GRACE:-25s}" \
	${ADVERTISE:+--advertise "$ADVERTISE"} ${HTTP:+--http "$HTTP"} -- "$@"
