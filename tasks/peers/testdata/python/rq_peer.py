"""RQ as a side of the comparison in package peers: "submit N" puts N tasks into the queue, "work C" runs one worker.

The worker runs each task in its own process: RQ's default, a process for each task, is slower by far.
"""

import logging
import os
import sys

import redis
import rq
from rq.worker import SimpleWorker

PAGE = 1000


def task(_payload):
    return "resulted"


def submit(queue, count):
    for start in range(0, count, PAGE):
        queue.enqueue_many(
            rq.Queue.prepare_data("rq_peer.task", (f"{i:064d}",), result_ttl=3600, description="")
            for i in range(start, min(start + PAGE, count))
        )
    print("ready", flush=True)


def work(queue):
    worker = SimpleWorker([queue], connection=queue.connection, log_job_description=False)
    print("ready", flush=True)
    if sys.stdin.readline():
        worker.work(logging_level=logging.ERROR)


def main():
    host, port = os.environ["PEERS_REDIS"].split(":")
    queue = rq.Queue("peers", connection=redis.Redis(host=host, port=int(port)))
    if sys.argv[1] == "submit":
        submit(queue, int(sys.argv[2]))
    else:
        work(queue)


if __name__ == "__main__":
    main()
