# The command of a collective: it says when it starts, and waits for ever, unless a file tells it to fail. A lock shows
# that it runs.
import fcntl
import os
import sys
import time

rank, folder = os.environ["RANK"], os.environ["FOLDER"]
running = open(os.path.join(folder, "run-%d" % os.getpid()), "w")
fcntl.flock(running, fcntl.LOCK_EX)  # for as long as this process lives
with open(os.path.join(folder, "starts"), "a") as out:
    out.write(rank + "\n")
while True:
    if os.path.exists(os.path.join(folder, "fail-" + rank)):
        os.remove(os.path.join(folder, "fail-" + rank))
        sys.exit(9)
    time.sleep(0.02)
