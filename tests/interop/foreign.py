"""Others who lock the same key: the libraries that teams already run, each behind the same four methods.

Each asks once and does not wait; `release` and `extend` tell whether the lock was still theirs.
"""

import asyncio
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

import redis
import redis.asyncio
from redis.asyncio.lock import Lock as AsyncLock
from redis.exceptions import LockNotOwnedError
from redis.lock import Lock

from interop.node import Node, Refused
from support.redis_server import RedisServer
from support.waiting import until

T = TypeVar("T")

POLL = 0.005
"""Seconds between the tries of a library that polls, while it counts."""


class Foreign(ABC):
    """One library, against one server."""

    name: ClassVar[str]
    endless: ClassVar[bool] = False
    """Whether it can lock without a ttl."""

    @abstractmethod
    def acquire(self, key: str, ttl: float | None) -> Any:
        """What it needs for the rest, None if the lock is taken."""

    @abstractmethod
    def release(self, held: Any) -> bool: ...

    @abstractmethod
    def extend(self, held: Any, ttl: float) -> bool: ...

    @abstractmethod
    def count(self, key: str, ttl: float, counter: str, times: int) -> None:
        """Under the lock: read a number, let a round trip pass, write the next one; so many times."""

    @abstractmethod
    def close(self) -> None:
        """Give up connections and threads."""


class Plain(Foreign):
    """SET NX PX with a random value, compared before it is deleted: what every text on the subject shows."""

    name = "plain"
    endless = True
    RELEASE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0"
    EXTEND = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2]) or 0"

    def __init__(self, server: RedisServer) -> None:
        self._client = server.client()

    def acquire(self, key: str, ttl: float | None) -> Any:
        value = uuid.uuid4().hex
        granted = self._client.set(key, value, nx=True, px=None if ttl is None else int(ttl * 1000))
        return (key, value) if granted else None

    def release(self, held: tuple[str, str]) -> bool:
        return bool(self._client.eval(self.RELEASE, 1, *held))

    def extend(self, held: tuple[str, str], ttl: float) -> bool:
        return bool(self._client.eval(self.EXTEND, 1, *held, int(ttl * 1000)))

    def count(self, key: str, ttl: float, counter: str, times: int) -> None:
        for _ in range(times):
            held = until(lambda: self.acquire(key, ttl), within=30)
            add_one(self._client, counter)
            assert self.release(held)

    def close(self) -> None:
        self._client.close()


class RedisPy(Foreign):
    name = "redis-py"
    endless = True

    def __init__(self, server: RedisServer) -> None:
        self._client = server.client()

    def acquire(self, key: str, ttl: float | None) -> Lock | None:
        lock = Lock(self._client, key, timeout=ttl)
        return lock if lock.acquire(blocking=False) else None

    def release(self, held: Lock) -> bool:
        try:
            held.release()
        except LockNotOwnedError:
            return False
        return True

    def extend(self, held: Lock, ttl: float) -> bool:
        try:
            return held.extend(ttl, replace_ttl=True)
        except LockNotOwnedError:
            return False

    def count(self, key: str, ttl: float, counter: str, times: int) -> None:
        lock = Lock(self._client, key, timeout=ttl, sleep=POLL)
        for _ in range(times):
            with lock:
                add_one(self._client, counter)

    def close(self) -> None:
        self._client.close()


class RedisPyAsync(Foreign):
    name = "redis.asyncio"
    endless = True

    def __init__(self, server: RedisServer) -> None:
        self._client = redis.asyncio.Redis.from_url(server.url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="redis.asyncio", daemon=True)
        self._thread.start()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def acquire(self, key: str, ttl: float | None) -> AsyncLock | None:
        async def acquire() -> AsyncLock | None:
            lock = AsyncLock(self._client, key, timeout=ttl, thread_local=False)
            return lock if await lock.acquire(blocking=False) else None

        return self._run(acquire())

    def release(self, held: AsyncLock) -> bool:
        return self._run(_still_owned(held.release()))

    def extend(self, held: AsyncLock, ttl: float) -> bool:
        return self._run(_still_owned(held.extend(ttl, replace_ttl=True)))

    def count(self, key: str, ttl: float, counter: str, times: int) -> None:
        async def count() -> None:
            for _ in range(times):
                async with AsyncLock(self._client, key, timeout=ttl, sleep=POLL, thread_local=False):
                    number = int(await self._client.get(counter) or 0)
                    await self._client.ping()
                    await self._client.set(counter, number + 1)

        self._run(count())

    def close(self) -> None:
        self._run(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _still_owned(step: Any) -> bool:
    try:
        await step
    except LockNotOwnedError:
        return False
    return True


class Redlock(Foreign):
    """node-redlock, in one of its two lines: on one server, or on several."""

    def __init__(self, server: RedisServer, node: Node, *more: RedisServer) -> None:
        self._node = node
        self._ports = [each.port for each in (server, *more)]

    def acquire(self, key: str, ttl: float | None) -> Any:
        assert ttl is not None
        try:
            return self._node.ask("acquire", library=self.name, ports=self._ports, key=key, ms=int(ttl * 1000))
        except Refused:
            return None

    def release(self, held: Any) -> bool:
        return self._did("release", handle=held)

    def extend(self, held: Any, ttl: float) -> bool:
        return self._did("extend", handle=held, ms=int(ttl * 1000))

    def count(self, key: str, ttl: float, counter: str, times: int) -> None:
        details = {"key": key, "ms": int(ttl * 1000), "counter": counter, "times": times}
        self._node.ask("count", library=self.name, ports=self._ports, **details)

    def close(self) -> None:
        """The process goes on: it is the test module's."""

    def _did(self, order: str, **details: Any) -> bool:
        try:
            self._node.ask(order, **details)
        except Refused:
            return False
        return True


class Redlock4(Redlock):
    name = "redlock4"


class Redlock5(Redlock):
    name = "redlock5"


IN_PYTHON: list[type[Plain] | type[RedisPy] | type[RedisPyAsync]] = [Plain, RedisPy, RedisPyAsync]
IN_NODE: list[type[Redlock]] = [Redlock4, Redlock5]


def add_one(client: "redis.Redis", counter: str) -> None:
    """The step that loses a number if anyone else does it at the same time."""
    number = int(client.get(counter) or 0)
    client.ping()
    client.set(counter, number + 1)
