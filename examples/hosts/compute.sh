#!/bin/sh
# What each of the workers does: it loads its part, waits until all have loaded, computes, and waits until all have
# computed. The rounds have numbers. A worker that is killed and started again passes the barriers that it has passed.
set -eu

echo "worker $MUSTER_ID of $MUSTER_WORKERS loads"
muster barrier loaded --round 0 --retry

echo "worker $MUSTER_ID computes; its peers are:"
muster members

muster barrier computed --round 0 --retry
echo "worker $MUSTER_ID is done"
