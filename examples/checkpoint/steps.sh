#!/bin/sh
# One checkpoint. A step that is recorded as done is not done again, whoever leads by then; what it printed is printed
# again, so that all leaders work on one number. A step that was begun and not recorded is done once more.
set -eu
n=$(muster step number -- checkpoint next)
muster step suspend -- checkpoint suspend "$n"
muster step write -- checkpoint write "$n"
muster step check -- checkpoint check "$n"
muster step publish -- checkpoint publish "$n"
muster step resume -- checkpoint resume "$n"
echo "checkpoint $n is published by $MUSTER_IDENTITY, epoch $MUSTER_EPOCH"
