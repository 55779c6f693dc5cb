"""Threads with loops of their own use what belongs to one loop, all the time, while its tasks work.

Whatever they try is refused, and nothing that happens on the loop may show that they tried: nobody is granted what
somebody else holds, and every answer is an answer to its own request. GRIPFAST_CHAOS=long does so for a minute.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis.asyncio

import gripfast
from chaos.stage import LONG
from gripfast.compat.redis import AsyncLock
from gripfast.machine import boottime
from support.redis_server import RedisServer

SECONDS = 60.0 if LONG else 1.5
THREADS = 3


@dataclass
class Figures:
    wrong: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    """On the loop that it belongs to."""
    told: Counter[str] = field(default_factory=Counter)
    """Elsewhere."""


class Scene:
    def __init__(self, server: RedisServer, seed: str) -> None:
        self.url = server.url
        self.figures = Figures()
        self.chance = random.Random(seed)
        self.client = gripfast.connect_async(self.url)
        self.redis = redis.asyncio.from_url(self.url)
        self.shared: list[gripfast.AsyncLease] = []
        """For others to use, although they must not."""
        self.redis_locks: list[AsyncLock] = []
        """In the shape of redis-py, which others may release."""
        self.is_over = False

    def ends(self) -> float:
        return boottime() + SECONDS

    # -- on the loop --------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        ends = self.ends()
        keeper = await gripfast.connect_async(self.url).lock("taken", ttl=600).acquire()
        threads = [threading.Thread(target=self.use_elsewhere, args=(f"{at}",)) for at in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            tasks = [self.claim, self.claim, self.claim, self.look, self.feed, self.feed, self.feed_redis]
            await asyncio.gather(*(self._go_on(task, at, keeper, ends) for at, task in enumerate(tasks)))
        finally:
            self.is_over = True
            await asyncio.to_thread(lambda: [thread.join() for thread in threads])
        assert keeper.held
        await keeper.release()
        await self.client.aclose()

    async def _go_on(self, task: Callable[..., Awaitable[None]], at: int, keeper: Any, ends: float) -> None:
        rounds = 0
        while boottime() < ends and not self.figures.wrong:
            rounds += 1
            await task(f"{at}.{rounds}", keeper)
            self.figures.done[task.__name__] += 1

    async def claim(self, _: str, keeper: gripfast.AsyncLease) -> None:
        lease = await self.client.lock("taken", ttl=30).try_acquire()
        if lease is not None:
            self.figures.wrong.append(f"granted what another holds: {lease!r} beside {keeper!r}")

    async def look(self, _: str, keeper: gripfast.AsyncLease) -> None:
        info = await self.client.inspect("taken")
        if info is None or (info.owner, info.token) != (keeper.owner, keeper.token):
            self.figures.wrong.append(f"wrong reply: {info!r} instead of {keeper!r}")

    async def feed(self, name: str, _: gripfast.AsyncLease) -> None:
        async with asyncio.timeout(5.0), self.client.lock(name, ttl=30) as lease:
            self.shared.append(lease)
            info = await self.client.inspect(name)
            if info is None or info.owner != lease.owner or not lease.held:
                self.figures.wrong.append(f"wrong reply: {info!r} instead of {lease!r}")
            self.shared.remove(lease)

    async def feed_redis(self, name: str, _: gripfast.AsyncLease) -> None:
        lock = AsyncLock(self.redis, f"redis-py {name}", timeout=30, thread_local=False)
        await lock.acquire()
        lost = asyncio.create_task(lock.lease.lost.wait())
        await asyncio.sleep(0)
        self.redis_locks.append(lock)
        async with asyncio.timeout(5.0):
            if await lost:
                self.figures.wrong.append(f"{lock!r} was lost instead of released")

    # -- elsewhere ----------------------------------------------------------------------------------------------------

    def use_elsewhere(self, seed: str) -> None:
        chance = random.Random(f"{self.chance.random()} {seed}")
        while not self.is_over:
            asyncio.run(self._use_some(chance))

    async def _use_some(self, chance: random.Random) -> None:
        for _ in range(50):
            for lock in self._popped():
                await lock.release()
                self.figures.told["released in the shape of redis-py"] += 1
            for lease in self.shared[:]:
                await self._use(chance.choice(self._uses(lease)))

    def _popped(self) -> list[AsyncLock]:
        try:
            return [self.redis_locks.pop()]
        except IndexError:
            return []

    def _uses(self, lease: gripfast.AsyncLease) -> list[Callable[[], Awaitable[Any]]]:
        return [
            lease.release,
            lease.extend,
            lambda: lease.__aexit__(None, None, None),
            lambda: lease.lost.wait(0.0),
            self.client.lock("taken").try_acquire,
            lambda: self.client.inspect("taken"),
            lambda: self.client.force_release("taken"),
            self.client.aclose,
        ]

    async def _use(self, use: Callable[[], Awaitable[Any]]) -> None:
        try:
            answer = await use()
        except gripfast.ConfigurationError:
            self.figures.told["refused"] += 1
        else:
            self.figures.wrong.append(f"not refused: {use!r} said {answer!r}")


@pytest.fixture
def switching_often() -> Iterator[None]:
    """Between threads: those elsewhere never rest."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("switching_often")
def test_no_use_from_foreign_loops_and_threads_is_felt_by_those_who_work(server: RedisServer, seed: str) -> None:
    scene = Scene(server, seed)
    asyncio.run(scene.play())
    print(f"{SECONDS:g} s: {dict(scene.figures.done)} on the loop, {dict(scene.figures.told)} elsewhere")
    assert scene.figures.wrong == []
    assert min(scene.figures.done.values()) > 0
    assert scene.figures.told["refused"] > 100
