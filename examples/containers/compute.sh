#!/bin/sh
# What a worker does, as one of four: load its part, wait until all have loaded, compute, wait until all have computed. The
# rounds have numbers, so that a worker that is killed and started again passes what it has passed before.
set -eu

echo "worker $MUSTER_ID of $MUSTER_WORKERS loads"
muster barrier loaded --round 0

echo "worker $MUSTER_ID computes; its peers are:"
muster members

muster barrier computed --round 0
echo "worker $MUSTER_ID is done"
