"""Other libraries' locks on Redis, each as its documentation shows it, with the lease that Gripfast has.

None renews here: redis-py, tooz and pottery leave that to the caller, and python-redis-lock would start a thread for
every lease. Names differ from library to library, because some use the same keys.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from bench.locks import Lock, Make, gripfast_locks

TTL = 30


def redis_client(url: str, **options: object) -> Any:
    return importlib.import_module("redis").Redis.from_url(url, **options)


@contextmanager
def redis_py(url: str) -> Iterator[Callable[[str], Lock]]:
    with closing(redis_client(url)) as client:
        yield lambda name: client.lock(f"redis-py:{name}", timeout=TTL)


@contextmanager
def python_redis_lock(url: str) -> Iterator[Callable[[str], Lock]]:
    """Its wait is a BLPOP as long as the lease, so the socket must be as patient."""
    lock = importlib.import_module("redis_lock").Lock
    with closing(redis_client(url, socket_timeout=None)) as client:
        yield lambda name: lock(client, f"python-redis-lock:{name}", expire=TTL)


@contextmanager
def tooz(url: str) -> Iterator[Callable[[str], Lock]]:
    coordination = importlib.import_module("tooz.coordination")
    coordinator = coordination.get_coordinator(f"{url}?lock_timeout={TTL}", b"bench")
    coordinator.start()
    try:
        yield lambda name: coordinator.get_lock(f"tooz:{name}".encode())
    finally:
        coordinator.stop()


@contextmanager
def pottery(url: str) -> Iterator[Callable[[str], Lock]]:
    """Its Redlock with a single master."""
    redlock = importlib.import_module("pottery").Redlock
    with closing(redis_client(url)) as client:
        yield lambda name: redlock(key=f"pottery:{name}", masters={client}, auto_release_time=TTL)


GRIPFAST = Make("gripfast", gripfast_locks, ("redis",))
REDIS_PY = Make("redis-py Lock", redis_py, ("redis",))
PEERS = (
    REDIS_PY,
    Make("python-redis-lock", python_redis_lock, ("python-redis-lock",)),
    Make("tooz", tooz, ("tooz",)),
    Make("pottery", pottery, ("pottery",)),
)
