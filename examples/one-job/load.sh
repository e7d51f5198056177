#!/bin/sh
# What each of the job's workers runs: load a part, wait until all have loaded, compute.
#
#   muster worker --job hello --root /jobs --identity worker-0 -- ./load.sh

# The round has a number, so that a worker that is killed and started again passes at once what all had passed. With SLOW it
# goes on loading as long as there is a file of that name.

echo "worker $MUSTER_ID of $MUSTER_WORKERS ($MUSTER_IDENTITY): loading part $MUSTER_ID"
while [ -e "${SLOW:-}" ]; do sleep 0.1; done
muster barrier loaded --round 1 || exit 1
echo "worker $MUSTER_ID: all $MUSTER_WORKERS have loaded; computing"
