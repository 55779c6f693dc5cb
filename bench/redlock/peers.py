"""Other libraries' Redlocks, each as its documentation shows it, with the lease that Gripfast has.

None renews here, and none has fencing tokens. Only where nodes do not answer are they told how long to wait for one:
left alone, they would wait for seconds, again and again.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from types import TracebackType
from typing import Any

from bench.locks import Lock, Make, gripfast_locks
from bench.redis import aio
from bench.redis.aio import AsyncMake, LockOf
from bench.redis.peers import TTL, redis_client
from bench.redlock.nodes import node_urls


class RedlockPyLock:
    """redlock-py gives up after three tries; whoever wants to wait asks again."""

    def __init__(self, manager: Any, name: str) -> None:
        self._manager = manager
        self._name = name
        self._held: Any = None

    def acquire(self) -> object:
        while not (held := self._manager.lock(self._name, TTL * 1000)):
            pass
        self._held = held
        return held

    def __enter__(self) -> object:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._manager.unlock(self._held)


@contextmanager
def redlock_py(url: str, timeout: float | None = None) -> Iterator[Callable[[str], Lock]]:
    with masters(url, timeout) as clients:
        manager = importlib.import_module("redlock").Redlock(clients)
        yield lambda name: RedlockPyLock(manager, f"redlock-py:{name}")


@contextmanager
def pottery(url: str, timeout: float | None = None, ttl: float = TTL) -> Iterator[Callable[[str], Lock]]:
    # It writes a traceback for every node that does not answer.
    logging.getLogger("pottery").setLevel(logging.CRITICAL)
    redlock = importlib.import_module("pottery").Redlock
    with masters(url, timeout) as clients:
        yield lambda name: redlock(key=f"pottery:{name}", masters=set(clients), auto_release_time=ttl)


@contextmanager
def masters(url: str, timeout: float | None) -> Iterator[list[Any]]:
    """A client for each node: asked once and for so long, if there is a timeout; as redis-py has it, if not."""
    options: dict[str, object] = {}
    if timeout is not None:
        never = importlib.import_module("redis.retry").Retry(importlib.import_module("redis.backoff").NoBackoff(), 0)
        options = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": never}
    with ExitStack() as stack:
        yield [stack.enter_context(closing(redis_client(each, **options))) for each in node_urls(url)]


@asynccontextmanager
async def aio_pottery(url: str) -> AsyncIterator[LockOf]:
    redlock = importlib.import_module("pottery").AIORedlock
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(aio.redis_client(each)) for each in node_urls(url)]
        yield lambda name: redlock(key=f"pottery:{name}", masters=set(clients), auto_release_time=TTL)


NEEDS = ("redis",)
"""Of Gripfast."""

GRIPFAST = Make("gripfast", gripfast_locks, NEEDS)
REDLOCK_PY = Make("redlock-py", redlock_py, ("redlock-py",))
POTTERY = Make("pottery", pottery, ("pottery",))
AIO_POTTERY = AsyncMake("pottery AIORedlock", aio_pottery, ("pottery",))
