#!/bin/sh
# What each worker of the job runs: it loads a part, waits until all have loaded, and computes.
#
#   muster worker --job hello --root /jobs --identity worker-0 -- ./load.sh

# The round has a number. A worker that is killed and started again passes the barrier at once if all had passed it.
# With SLOW, a worker loads as long as there is a file of that name.

echo "worker $MUSTER_ID of $MUSTER_WORKERS ($MUSTER_IDENTITY): loading part $MUSTER_ID"
while [ -e "${SLOW:-}" ]; do sleep 0.1; done
muster barrier loaded --round 1 --retry || exit 1
echo "worker $MUSTER_ID: all $MUSTER_WORKERS have loaded; computing"
