"""Two processes with the same schedule: each fire time runs in one of them.

Prints:
    4 digests, none of them sent twice
"""

import subprocess
import sys

from apscheduler.events import EVENT_JOB_EXECUTED
from apscheduler.schedulers.blocking import BlockingScheduler

from gripfast.contrib.apscheduler import OnceThreadPoolExecutor


def send_digest() -> None:
    """A real one sends mail."""


def serve() -> None:
    scheduler = BlockingScheduler(executors={"default": OnceThreadPoolExecutor(url="sqlite:///locks.db")})
    scheduler.add_job(send_digest, "cron", second="*", id="digest", misfire_grace_time=60)
    scheduler.add_listener(lambda event: print(event.scheduled_run_time, flush=True), EVENT_JOB_EXECUTED)
    scheduler.start()


if sys.argv[1:] == ["serve"]:
    serve()
else:
    command = f"'{sys.executable}' '{__file__}' serve & '{sys.executable}' '{__file__}' serve & wait"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True, process_group=0) as both:
        sent = [both.stdout.readline() for _ in range(4)]
        subprocess.run(["kill", "--", f"-{both.pid}"], check=True)
    print(len(set(sent)), "digests, none of them sent twice")
