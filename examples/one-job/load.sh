#!/bin/sh
# What each of the job's workers runs: load a part, wait until all have loaded, compute.
#
#   muster worker --job hello --root /jobs --identity worker-0 -- ./load.sh

echo "worker $MUSTER_ID of $MUSTER_WORKERS ($MUSTER_IDENTITY): loading part $MUSTER_ID"
if [ -n "${SLOW:-}" ]; then
	exec sleep 60
fi
muster barrier loaded || exit 1
echo "worker $MUSTER_ID: all $MUSTER_WORKERS have loaded; computing"
