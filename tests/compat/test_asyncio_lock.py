"""The lock in the shape of asyncio's: release() without await, tasks instead of threads."""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import gripfast
from gripfast.compat.asyncio import Lock
from gripfast.testing.waiters import waiters_among, watch_for_waiters
from support.waiting import auntil


@asynccontextmanager
async def two_clients(url: str) -> AsyncIterator[tuple[gripfast.AsyncClient, gripfast.AsyncClient]]:
    async with gripfast.connect_async(url) as client, gripfast.connect_async(url) as other:
        watch_for_waiters(client)
        yield client, other


async def free(client: gripfast.AsyncClient) -> bool:
    return await client.inspect("job") is None


async def test_it_is_the_lock_that_everyone_else_sees(url: str) -> None:
    async with two_clients(url) as (client, other):
        ours = Lock(client, "job", label="compat")
        assert await ours.acquire() is True
        assert (await other.inspect("job")).label == "compat"
        ours.release()
        await auntil(lambda: free(other))


async def test_release_is_not_awaited_and_over_at_once_on_this_side(url: str) -> None:
    async with two_clients(url) as (client, _):
        ours = Lock(client, "job")
        await ours.acquire()
        assert ours.locked()
        assert ours.release() is None
        assert not ours.locked()


async def test_it_can_be_had_again_right_after_a_release(url: str) -> None:
    async with two_clients(url) as (client, _):
        ours = Lock(client, "job")
        for _ in range(5):
            await ours.acquire()
            ours.release()


async def test_a_waiting_task_gets_it_from_a_release_that_nobody_awaits(url: str) -> None:
    async with two_clients(url) as (client, other):
        ours = Lock(client, "job")
        await ours.acquire()
        waiting = asyncio.create_task(other.lock("job").acquire(wait=10).__aenter__())
        await auntil(lambda: has_waiters(other))
        ours.release()
        await (await waiting).release()


async def has_waiters(client: gripfast.AsyncClient, count: int = 1) -> bool:
    if not client.capabilities.waiters_seen:
        return waiters_among([client], "job") == count
    info = await client.inspect("job")
    return info is not None and info.waiters == count


async def test_releasing_what_is_not_held_is_a_runtime_error(url: str) -> None:
    async with two_clients(url) as (client, _):
        ours = Lock(client, "job")
        with pytest.raises(RuntimeError, match="not acquired"):
            ours.release()
        await ours.acquire()
        ours.release()
        with pytest.raises(RuntimeError, match="not acquired"):
            ours.release()


async def test_locked_speaks_of_this_object_only(url: str) -> None:
    async with two_clients(url) as (client, other):
        ours = Lock(client, "job")
        async with other.lock("job"):
            assert not ours.locked()


async def test_a_block_has_it_and_it_is_free_after(url: str) -> None:
    async with two_clients(url) as (client, other):
        ours = Lock(client, "job")
        async with ours as answer:
            assert answer is None
            assert await other.inspect("job")
        assert await free(other)


async def test_a_block_that_fails_gives_it_back(url: str) -> None:
    async with two_clients(url) as (client, other):
        with pytest.raises(ZeroDivisionError):
            async with Lock(client, "job"):
                _ = 1 / 0
        assert await free(other)


async def test_tasks_enter_one_at_a_time_and_where_it_is_fair_in_the_order_they_came(url: str) -> None:
    async with two_clients(url) as (client, _):
        ours, log = Lock(client, "job"), []

        async def work(number: int) -> None:
            async with ours:
                log.append(number)
                await asyncio.sleep(0)
                log.append(number)

        await ours.acquire()
        working = []
        for number in range(8):
            working.append(asyncio.create_task(work(number)))
            await auntil(functools.partial(has_waiters, client, number + 1))
        ours.release()
        await asyncio.gather(*working)
        order = list(range(8)) if client.capabilities.fair else log[::2]
        assert log == [number for number in order for _ in range(2)]
        assert sorted(order) == list(range(8))


async def test_any_task_may_release_it(url: str) -> None:
    async with two_clients(url) as (client, other):
        ours = Lock(client, "job")
        await asyncio.create_task(ours.acquire())
        ours.release()
        await auntil(lambda: free(other))


async def test_a_callback_of_the_loop_may_release_it(url: str) -> None:
    async with two_clients(url) as (client, other):
        ours = Lock(client, "job")
        await ours.acquire()
        asyncio.get_running_loop().call_soon(ours.release)
        await auntil(lambda: free(other))


async def test_release_tells_of_a_loss_that_is_known(url: str) -> None:
    async with two_clients(url) as (client, _):
        ours = Lock(client, "job", ttl=0.05, renew=False)
        await ours.acquire()
        await auntil(lambda: not ours.locked())
        with pytest.raises(gripfast.LeaseLost):
            ours.release()
        with pytest.raises(RuntimeError, match="not acquired"):
            ours.release()


async def test_leaving_the_block_tells_of_the_loss(url: str) -> None:
    async with two_clients(url) as (client, other):
        with pytest.raises(gripfast.LeaseLost):
            async with Lock(client, "job"):
                await other.force_release("job")


async def test_what_the_body_raised_comes_first(url: str) -> None:
    async with two_clients(url) as (client, other):
        with pytest.raises(ZeroDivisionError):
            async with Lock(client, "job"):
                await other.force_release("job")
                _ = 1 / 0


async def test_the_task_that_lost_it_does_not_release_the_one_that_has_it_now(url: str) -> None:
    async with two_clients(url) as (client, other):
        ours, has_lost, may_leave = Lock(client, "job"), asyncio.Event(), asyncio.Event()

        async def loser() -> None:
            await ours.acquire()
            await other.force_release("job")
            has_lost.set()
            await may_leave.wait()
            with pytest.raises(gripfast.LeaseLost):
                await ours.__aexit__(None, None, None)

        losing = asyncio.create_task(loser())
        await has_lost.wait()
        await ours.acquire()
        may_leave.set()
        await losing
        assert ours.locked()
        assert not await free(other)
        ours.release()


async def test_a_cancelled_wait_leaves_nothing_behind(url: str) -> None:
    async with two_clients(url) as (client, other):
        ours = Lock(client, "job")
        theirs = await other.lock("job").acquire()
        waiting = asyncio.create_task(ours.acquire())
        await auntil(lambda: has_waiters(client))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await theirs.release()
        assert not ours.locked()
        await auntil(lambda: free(other))


async def test_an_engine_that_cannot_be_asked_is_an_error(unreachable: str) -> None:
    async with gripfast.connect_async(unreachable) as client:
        ours = Lock(client, "job")
        with pytest.raises(gripfast.StoreUnavailable):
            await ours.acquire()
        assert not ours.locked()


async def test_its_repr_tells_its_state(url: str) -> None:
    async with two_clients(url) as (client, _):
        ours = Lock(client, "job")
        assert "compat.asyncio.Lock 'job'" in repr(ours)
        assert "[unlocked]" in repr(ours)
        async with ours:
            assert "[locked]" in repr(ours)
