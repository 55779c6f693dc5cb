"""Locks for asyncio: Gripfast's, redis-py's and pottery's, and the bare one. Each is opened on a loop of its own."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import gripfast
from bench.redis.peers import TTL
from bench.redis.wire import Multiplexed, Wire, multiplexed, owners, requests

LockOf = Callable[[str], AbstractAsyncContextManager[object]]
"""From a name to its lock."""

Pair = Callable[[], Awaitable[None]]
"""Takes a lock and gives it back."""

Pairs = Callable[[str], AbstractAsyncContextManager[Callable[[str], Pair]]]
"""Connects to a URL, and gives a function from a name to its pair."""

MANY_CONNECTIONS = 2000
"""redis-py opens one for every command under way, and refuses more than 100 unless told."""


@dataclass(frozen=True)
class AsyncMake:
    """A library whose asyncio locks are measured."""

    name: str
    locks: Callable[[str], AbstractAsyncContextManager[LockOf]]
    """Connects to a URL."""
    needs: tuple[str, ...]

    @asynccontextmanager
    async def pairs(self, url: str) -> AsyncIterator[Callable[[str], Pair]]:
        async with self.locks(url) as lock_of:
            yield lambda name: pair_on(lock_of(name))


def pair_on(lock: AbstractAsyncContextManager[object]) -> Pair:
    async def pair() -> None:
        async with lock:
            pass

    return pair


@asynccontextmanager
async def gripfast_locks(url: str) -> AsyncIterator[LockOf]:
    async with gripfast.connect_async(url) as client:
        yield client.lock


@asynccontextmanager
async def redis_py_locks(url: str) -> AsyncIterator[LockOf]:
    async with redis_client(url) as client:
        yield lambda name: client.lock(f"redis-py:{name}", timeout=TTL)


@asynccontextmanager
async def pottery_locks(url: str) -> AsyncIterator[LockOf]:
    redlock = importlib.import_module("pottery").AIORedlock
    async with redis_client(url) as client:
        yield lambda name: redlock(key=f"pottery:{name}", masters={client}, auto_release_time=TTL)


def redis_client(url: str) -> Any:
    return importlib.import_module("redis.asyncio").Redis.from_url(url, max_connections=MANY_CONNECTIONS)


def bare_pairs(joined: bool) -> Pairs:
    @asynccontextmanager
    async def pairs(url: str) -> AsyncIterator[Callable[[str], Pair]]:
        with closing(Wire(url)) as wire:
            protocol = await multiplexed(url, joined)
            yield lambda name: bare_pair(wire, protocol, name)
            protocol.transport.close()

    return pairs


def bare_pair(wire: Wire, protocol: Multiplexed, name: str) -> Pair:
    take, give = requests(wire, f"bare:{name}".encode())
    ask, owner_id = protocol.ask, owners()

    async def pair() -> None:
        owner = owner_id()
        if await ask(take % owner) != b"OK":
            raise RuntimeError("the bare lock was not free")
        if await ask(give % owner) != 1:
            raise RuntimeError("the bare lock was lost")

    return pair


GRIPFAST = AsyncMake("gripfast", gripfast_locks, ("redis",))
REDIS_PY = AsyncMake("redis.asyncio Lock", redis_py_locks, ("redis",))
POTTERY = AsyncMake("pottery AIORedlock", pottery_locks, ("pottery",))
