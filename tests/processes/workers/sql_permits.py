"""Several threads acquire permits of a semaphore again and again, and tell when each had which of them."""

import os
import random
import sys
import threading
import time

import gripfast

LEAST = 12
"""Grants, on a busy machine, too."""


def main(url: str, name: str, limit: str, threads: str, seconds: str) -> None:
    told: list[str] = []
    with gripfast.connect(url) as client:
        print("ready")
        ends = time.monotonic() + float(seconds)

        def work() -> None:
            semaphore = client.semaphore(name, limit=int(limit))
            while time.monotonic() < ends or len(told) < LEAST:
                lease = semaphore.acquire(n=random.choice((1, 1, 2)), wait=30.0)
                entered = time.monotonic_ns()
                for _ in range(random.randrange(20)):
                    os.sched_yield()
                left = time.monotonic_ns()
                lease.release()
                told.append(f"{entered} {left} {lease.token} {','.join(map(str, lease.slots))}")

        workers = [threading.Thread(target=work) for _ in range(int(threads))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    for line in told:
        print("had", line)
    print("done", len(told))


main(*sys.argv[1:])
