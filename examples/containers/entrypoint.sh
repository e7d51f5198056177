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
# MUSTER_IDENTITY, or from the index that Kubernetes or Slurm gives the container.
set -eu

: "${MUSTER_SERVERS:?say where ZooKeeper is, such as zookeeper:2181}"
: "${JOB:?name the job to join}"
if [ $# -eq 0 ]; then
	echo "entrypoint: give the command to run" >&2
	exit 64
fi

# GRACE must be shorter than what the platform grants before it kills the container.
exec muster worker --job "$JOB" ${ROOT:+--root "$ROOT"} --start "${START:-joined}" --grace "${GRACE:-25s}" \
	${ADVERTISE:+--advertise "$ADVERTISE"} ${HTTP:+--http "$HTTP"} -- "$@"
