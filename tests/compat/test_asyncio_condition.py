"""asyncio.Condition over a Gripfast lock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import gripfast
from gripfast.compat.asyncio import Lock
from support.waiting import auntil


@asynccontextmanager
async def condition_and_other(url: str) -> AsyncIterator[tuple[asyncio.Condition, gripfast.AsyncClient]]:
    async with gripfast.connect_async(url) as client, gripfast.connect_async(url) as other:
        yield asyncio.Condition(Lock(client, "job")), other  # type: ignore[arg-type]


def waiters(condition: asyncio.Condition) -> int:
    return len(condition._waiters)


async def test_a_waiting_task_is_woken_and_has_the_lock_again(url: str) -> None:
    async with condition_and_other(url) as (condition, other):
        ready: list[None] = []

        async def consume() -> bool:
            async with condition:
                await condition.wait_for(lambda: ready)
                return await other.inspect("job") is not None

        consumer = asyncio.create_task(consume())
        await auntil(lambda: waiters(condition) == 1)
        async with condition:
            ready.append(None)
            condition.notify()
        assert await consumer is True
        assert not condition.locked()


async def test_the_lock_is_free_for_everyone_while_a_task_waits(url: str) -> None:
    async with condition_and_other(url) as (condition, other):

        async def wait() -> bool:
            async with condition:
                return await condition.wait()

        waiting = asyncio.create_task(wait())
        await auntil(lambda: waiters(condition) == 1)
        await (await other.lock("job").acquire(wait=5)).release()
        async with condition:
            condition.notify_all()
        assert await waiting is True


async def test_a_cancelled_wait_has_the_lock_again_before_it_leaves(url: str) -> None:
    async with condition_and_other(url) as (condition, _):
        had_it = []

        async def wait() -> None:
            async with condition:
                try:
                    await condition.wait()
                finally:
                    had_it.append(condition.locked())

        waiting = asyncio.create_task(wait())
        await auntil(lambda: waiters(condition) == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert had_it == [True]
        assert not condition.locked()


async def test_who_does_not_have_the_lock_may_neither_wait_nor_notify(url: str) -> None:
    async with condition_and_other(url) as (condition, _):
        with pytest.raises(RuntimeError, match="un-acquired"):
            await condition.wait()
        with pytest.raises(RuntimeError, match="un-acquired"):
            condition.notify()
