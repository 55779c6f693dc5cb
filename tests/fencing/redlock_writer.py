"""A process that adds one to a register, again and again, under a lock. It may be stopped at any moment.

Started with the URLs of the locks and of the register's server, the name of both, "fenced" or "bare", and the folder in
which it shows that it is at work. Told to end by SIGTERM, it says how many updates were acknowledged, and how many
reads and writes the fence has refused.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable

import redis
from at_work import at_work  # type: ignore[import-not-found]

import gripfast
from gripfast.fencing import write

TTL = 0.5
WORK = 0.02
"""Seconds between the last look at the lease and the write: whoever is stopped there can't know."""

locks_url, data_url, name, how, folder = sys.argv[1:]
over = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())


def fenced(data: "redis.Redis", token: int, *command: str | int) -> object:
    return write(data, name, token, command)[0]


def bare(data: "redis.Redis", token: int, *command: str | int) -> object:
    return data.execute_command(*command)


def add_one(lease: gripfast.Lease, data: "redis.Redis", run: Callable[..., object]) -> None:
    """Read through the fence as well: a token that it has not seen shuts nobody out."""
    value = int(run(data, lease.token, "GET", name) or 0)  # type: ignore[call-overload]
    lease.ensure_held()
    with at_work(folder):
        lease.lost.wait(WORK)
    run(data, lease.token, "SET", name, value + 1)


acknowledged = refused = 0
with gripfast.connect(locks_url) as locks, redis.Redis.from_url(data_url) as data:
    while not over.is_set():
        with contextlib.suppress(gripfast.LeaseLost, gripfast.LockTimeout, gripfast.StoreUnavailable):
            with locks.lock(name, ttl=TTL).acquire(wait=0.5) as lease:
                try:
                    add_one(lease, data, fenced if how == "fenced" else bare)
                    acknowledged += 1
                except gripfast.StaleToken:
                    refused += 1
print("ended", acknowledged, refused, flush=True)
