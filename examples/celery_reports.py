"""A Celery worker with two processes, and four reports of one user: they are written one after the other.

Prints:
    4 reports, 0 began before the one before had ended
"""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

from celery import Celery

from gripfast.contrib.celery import LockedTask

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
app = Celery("celery_reports", broker=URL, backend=URL)
app.conf.update(gripfast_url=URL, task_default_queue="reports")


@app.task(base=LockedTask, bind=True, name="report", lock="report:{user}", default_retry_delay=1, max_retries=None)
def report(self, user):
    began = time.time()
    self.lease.lost.wait(0.3)  # a real one works here
    self.lease.ensure_held()  # raises LeaseLost if the lock is lost
    return began, time.time()


if __name__ == "__main__":
    command = [sys.executable, "-m", "celery", "-A", "celery_reports", "worker", "-c", "2", "--loglevel", "ERROR"]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.DEVNULL) as worker:
        try:
            times = sorted(order.get(timeout=40) for order in [report.delay(7) for _ in range(4)])
        finally:
            worker.terminate()
    overlaps = [began < ended for (_, ended), (began, _) in itertools.pairwise(times)]
    print(f"{len(times)} reports, {sum(overlaps)} began before the one before had ended")
