#!/bin/sh
# Entry point of a container that is a worker of a job. muster is process 1: it reaps processes, passes signals on and
# exits with the command's code. The image needs muster, a shell and the command:
#
#   COPY muster /usr/local/bin/
#   COPY entrypoint.sh compute.sh /
#   ENTRYPOINT ["/entrypoint.sh"]
#   CMD ["/compute.sh"]
#
# MUSTER_SERVERS and JOB say what to join. ROOT, START, GRACE, ADVERTISE and HTTP are optional. The identity of the
# worker is MUSTER_IDENTITY, or the index that Kubernetes or Slurm gives the container. MUSTER_RUN names the run. With
# it, a container that is started again after the run has completed ends with 0 and does not join the next run. After a
# run has failed, workers of another run wait for muster apply.
set -eu

usage() {
	echo "entrypoint: $1" >&2
	exit 64
}
[ -n "${MUSTER_SERVERS:-}" ] || usage "set MUSTER_SERVERS to where ZooKeeper is, such as zookeeper:2181"
[ -n "${JOB:-}" ] || usage "set JOB to the name of the job to join"
[ $# -gt 0 ] || usage "give the command to run"

# GRACE must be shorter than the time after which the platform kills the container.
exec muster worker --job "$JOB" ${ROOT:+--root "$ROOT"} --start "${START:-joined}" --grace "${GRACE:-25s}" \
	${ADVERTISE:+--advertise "$ADVERTISE"} ${HTTP:+--http "$HTTP"} -- "$@"
