#!/bin/sh
#SBATCH --job-name=hello
#SBATCH --ntasks=4
#SBATCH --requeue
#
# Four workers of the job "hello" (examples/one-job.hcl) as the tasks of a Slurm job:
#
#   export MUSTER_SERVERS=zookeeper-0:2181,zookeeper-1:2181
#   muster apply ../one-job.hcl
#   sbatch slurm.sh
#
# Task 2 is worker-2, by its SLURM_PROCID. A job that is queued again, by Slurm or with scontrol requeue, goes on with
# the same run: its workers keep their ids and pass the barriers that they have passed.
set -eu

# The rack of a task is its leaf switch: s1 of s0.s1.node7, whose pattern is switch.switch.node. Without switches, as in
# a cluster whose topology plugin is not "tree", the worker says none.
# shellcheck disable=SC2016 # the tasks expand it
in_rack='case ${SLURM_TOPOLOGY_ADDR_PATTERN-} in
*switch.node) leaf=${SLURM_TOPOLOGY_ADDR%.*} && export MUSTER_RACK="${leaf##*.}" ;;
esac
exec "$@"'

# One that fails ends the others, which would wait for it in vain. The grace is shorter than Slurm's KillWait of 30 s.
exec srun --kill-on-bad-exit=1 sh -c "$in_rack" sh \
	muster worker --job=hello --root=/jobs --run="slurm-$SLURM_JOB_ID" --start=all --grace=25s -- ./compute.sh
