"""Interrupts and cancels at many points while the lock object lives on: the lock is free within a second."""

import contextlib
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockError

import gripfast
from compat.redis_kinds import new_name
from gripfast.compat.redis import AsyncLock, Lock
from support.redis_server import shared_server
from support.sweeping import Action, Moment, sweep_cancels, sweep_interrupts
from support.waiting import auntil, until

pytestmark = pytest.mark.filterwarnings("ignore")  # a broken run may well drop a lease, or a coroutine it did not start

TARGET = os.path.dirname(os.path.abspath(gripfast.__file__)) + os.sep
BUDGET = 80
PATIENCE = 1.0


@pytest.fixture
def server() -> Iterator["redis.Redis"]:
    with shared_server().client() as client:
        yield client


def problem(server: Any, name: str) -> str | None:
    try:
        until(lambda: server.get(name) is None, within=PATIENCE)
    except AssertionError:
        return f"not free within {PATIENCE:g} s, but for {server.pttl(name)} ms: {server.get(name)}"
    return None


# Interrupts ---------------------------------------------------------------------------------------------------------


def in_a_block(lock: Lock) -> None:
    with lock:
        pass


def by_hand(lock: Lock) -> None:
    lock.acquire()
    lock.release()


def with_a_token(lock: Lock) -> None:
    lock.acquire(token="of mine")
    lock.release()


class Trial:
    """`keeps`: whether the lock object outlives the broken run."""

    def __init__(self, server: Any, use: Callable[[Lock], None], keeps: bool) -> None:
        self._server, self._use, self._keeps = server, use, keeps
        self._kept: list[Lock] = []

    def begin(self) -> Action:
        lock = Lock(self._server, new_name())
        self._name = lock.name
        if self._keeps:
            self._kept.append(lock)
        return lambda: self._use(lock)

    def problem(self) -> str | None:
        return problem(self._server, self._name)


@pytest.mark.parametrize(
    ("use", "keeps"),
    [(in_a_block, True), (by_hand, False), (with_a_token, False)],
    ids=["in a block", "by hand", "with a token"],
)
def test_an_interrupt_gives_the_lock_back(server: Any, use: Callable[[Lock], None], keeps: bool) -> None:
    swept = sweep_interrupts(Trial(server, use, keeps), TARGET, BUDGET)
    assert not swept.findings, swept.explain()


# Cancels ------------------------------------------------------------------------------------------------------------


async def in_an_async_block(lock: AsyncLock) -> None:
    async with lock:
        await lock.owned()


async def by_hand_in_a_task(lock: AsyncLock) -> None:
    await lock.acquire()
    await lock.release()


async def with_a_token_in_a_task(lock: AsyncLock) -> None:
    await lock.acquire(token="of mine")
    await lock.release()


async def after_a_wait(lock: AsyncLock) -> None:
    lock.redis.holder.pexpire(lock.name, 50)
    await lock.acquire()
    await lock.release()


class AsyncTrial:
    """The lock object outlives the broken run."""

    def __init__(self, client: Any, server: Any, use: Callable[[AsyncLock], Coroutine[Any, Any, None]]) -> None:
        self._client, self._server, self._use = client, server, use
        self._kept: list[AsyncLock] = []

    async def begin(self) -> Coroutine[Any, Any, object]:
        lock: AsyncLock = self._client.lock(new_name(), lock_class=AsyncLock)
        if self._use is after_a_wait:
            self._server.set(lock.name, "someone", px=60_000)
        self._kept.append(lock)
        return self._use(lock)

    async def problem(self) -> str | None:
        lock = self._kept.pop()
        if lock.local.token is not None:  # acquired, and cancelled before the release: it is still the object's
            with contextlib.suppress(LockError):
                await lock.release()
        with contextlib.suppress(AssertionError):
            await auntil(lambda: self._server.get(lock.name) is None, within=PATIENCE)
        return problem(self._server, lock.name)


@pytest.mark.parametrize("moment", Moment, ids=lambda moment: moment.name.lower())
@pytest.mark.parametrize(
    "use", [in_an_async_block, by_hand_in_a_task, with_a_token_in_a_task, after_a_wait], ids=lambda use: use.__name__
)
async def test_a_cancel_gives_the_lock_back(
    server: Any, use: Callable[[AsyncLock], Coroutine[Any, Any, None]], moment: Moment
) -> None:
    client: Any = redis.asyncio.Redis.from_url(shared_server().url)
    client.holder = server
    try:
        swept = await sweep_cancels(AsyncTrial(client, server, use), moment)
    finally:
        await client.aclose()
    assert swept.broken > 0
    assert not swept.findings, swept.explain()
