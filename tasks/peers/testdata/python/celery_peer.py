"""Celery as a side of the comparison in package peers: "submit N" puts N tasks into the queue, "work C" runs one worker.

The worker runs tasks in its own process (the pool "solo"), which is the quickest for tasks that do nothing.
"""

import os
import sys

from celery import Celery

REDIS = "redis://" + os.environ["PEERS_REDIS"]

app = Celery("celery_peer", broker=REDIS + "/0", backend=REDIS + "/1")
app.conf.update(
    result_expires=3600,
    worker_prefetch_multiplier=100,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    worker_send_task_events=False,
    task_send_sent_event=False,
)


@app.task(name="task")
def task(_payload):
    return "resulted"


def submit(count):
    with app.producer_pool.acquire(block=True) as producer:
        for i in range(count):
            task.apply_async((f"{i:064d}",), producer=producer)
    print("ready", flush=True)


def work():
    app.finalize()
    app.connection_for_read().ensure_connection(max_retries=1)
    print("ready", flush=True)
    if sys.stdin.readline():
        name = f"peer{os.getpid()}@localhost"
        app.worker_main(
            ["worker", "-P", "solo", "-c", "1", "-l", "ERROR", "-n", name, "--without-mingle", "--without-gossip",
             "--without-heartbeat"]
        )


if __name__ == "__main__":
    if sys.argv[1] == "submit":
        submit(int(sys.argv[2]))
    else:
        work()
