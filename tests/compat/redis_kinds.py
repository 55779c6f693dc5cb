"""The four lock classes of redis-py's shape, told apart by nothing: redis-py's two, and Gripfast's two in their place.

Tests of what all four do are coroutines. For the plain ones `Awaited` gives the methods an `await` that does not wait.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import redis.asyncio
import redis.asyncio.lock
import redis.lock

from gripfast.compat.redis import AsyncLock, Lock
from support.redis_server import RedisServer, shared_server

METHODS = {"acquire", "release", "locked", "owned", "extend", "reacquire"}


class Awaited:
    """A plain lock with the methods of an async one."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._lock, name)
        if name not in METHODS:
            return found

        async def call(*args: Any, **options: Any) -> Any:
            return found(*args, **options)

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_lock":
            super().__setattr__(name, value)
        else:
            setattr(self._lock, name, value)

    async def __aenter__(self) -> Any:
        assert self._lock.__enter__() is self._lock
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self._lock.__exit__(*exc)


@dataclass(frozen=True)
class Kind:
    label: str
    cls: type
    is_async: bool
    is_ours: bool

    @asynccontextmanager
    async def client(self, server: RedisServer | None = None, **options: Any) -> AsyncIterator[Any]:
        """A redis-py client of this colour."""
        library: Any = redis.asyncio if self.is_async else redis
        made = library.Redis.from_url((server or shared_server()).url, **options)
        try:
            yield made
        finally:
            await made.aclose() if self.is_async else made.close()

    def lock(self, client: Any, name: Any, **settings: Any) -> Any:
        lock = client.lock(name, lock_class=self.cls, **settings)
        return lock if self.is_async else Awaited(lock)


KINDS = [
    Kind("redis-py", redis.lock.Lock, is_async=False, is_ours=False),
    Kind("redis-py-asyncio", redis.asyncio.lock.Lock, is_async=True, is_ours=False),
    Kind("gripfast", Lock, is_async=False, is_ours=True),
    Kind("gripfast-asyncio", AsyncLock, is_async=True, is_ours=True),
]
OURS = [kind for kind in KINDS if kind.is_ours]


def new_name() -> str:
    return f"job-{uuid.uuid4().hex}"
