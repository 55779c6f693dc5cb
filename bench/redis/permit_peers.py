"""Other semaphores and read/write locks on Redis, each as its documentation shows it, with the lease that Gripfast has.

py-redis-semaphore renews, with a thread for every lease. The others do not. There are more packages of this kind, which
do not go with today's redis-py (redis-semaphore-eval), or have the same module name and are older (Redis-Semaphore).

The recipe is the one that most people build: "Redis in Action", section 6.3.1. Holders are in a sorted set by the time
at which they came, by the clock of each client. If two clocks are apart by more than the lease, one of them removes
holders that are at work.
"""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from bench.locks import Lock, Make
from bench.permits import LIMIT
from bench.redis.peers import TTL, redis_client

PAUSE = 0.1
"""Between two tries, as redis-py's Lock has it."""


class Recipe:
    """A sorted set with client clocks."""

    def __init__(self, client: Any, key: str, limit: int = LIMIT) -> None:
        self._client = client
        self._key = key
        self._limit = limit
        self._owner = ""

    def try_acquire(self) -> bool:
        owner, now = uuid.uuid4().hex, time.time()
        with self._client.pipeline() as pipeline:
            pipeline.zremrangebyscore(self._key, "-inf", now - TTL)
            pipeline.zadd(self._key, {owner: now})
            pipeline.zrank(self._key, owner)
            if pipeline.execute()[-1] < self._limit:
                self._owner = owner
                return True
        self._client.zrem(self._key, owner)
        return False

    def acquire(self) -> None:
        while not self.try_acquire():
            time.sleep(PAUSE)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self._client.zrem(self._key, self._owner)


@contextmanager
def recipe(url: str) -> Iterator[Callable[[str], Lock]]:
    with closing(redis_client(url)) as client:
        yield lambda name: Recipe(client, f"recipe:{name}")


@contextmanager
def py_redis_semaphore(url: str) -> Iterator[Callable[[str], Lock]]:
    """It waits by BLPOP, so the socket must be as patient."""
    library = importlib.import_module("redis_semaphore")
    with closing(redis_client(url, socket_timeout=None)) as client:
        yield lambda name: library.Semaphore(
            client, library.SemaphoreConfig(name=name, limit=LIMIT, lock_timeout=float(TTL), namespace="py-redis")
        )


class Half:
    """Of a read/write lock of redis-rw-lock, which is no context manager."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self) -> None:
        self._lock.acquire()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@contextmanager
def rw_lock_read(url: str) -> Iterator[Callable[[str], Lock]]:
    with _rw_locks(url, "R") as lock_of:
        yield lock_of


@contextmanager
def rw_lock_write(url: str) -> Iterator[Callable[[str], Lock]]:
    with _rw_locks(url, "W") as lock_of:
        yield lock_of


@contextmanager
def _rw_locks(url: str, mode: str) -> Iterator[Callable[[str], Lock]]:
    kind = importlib.import_module("redis_rw_lock").RWLock
    with closing(redis_client(url, socket_timeout=None)) as client:
        yield lambda name: Half(kind(client, f"redis-rw-lock:{name}", mode, expire=TTL))


RECIPE = Make("recipe: sorted set with client clocks", recipe, ("redis",))
PY_REDIS_SEMAPHORE = Make("py-redis-semaphore", py_redis_semaphore, ("py-redis-semaphore",))
SEMAPHORES = (RECIPE, PY_REDIS_SEMAPHORE)
RW_LOCKS = (
    Make("redis-rw-lock, read", rw_lock_read, ("redis-rw-lock",)),
    Make("redis-rw-lock, write", rw_lock_write, ("redis-rw-lock",)),
)
