"""Locks that are entered by hand, or by a stack: whose lease is released, and what becomes of one nobody leaves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gripfast
from gripfast.compat import threading as compat_threading
from gripfast.interrupts.scope import by_hand
from support.waiting import auntil, until


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


def is_free(client: gripfast.Client) -> bool:
    return client.inspect("job") is None


def on_another_thread(action: Callable[[], Any]) -> BaseException | None:
    """What it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


# -- a bound __exit__ --------------------------------------------------------------------------------------------------


def test_an_exit_that_is_bound_once_leaves_as_often_as_it_is_entered(client: gripfast.Client) -> None:
    lock = client.lock("job")
    enter, leave = lock.__enter__, lock.__exit__
    for _ in range(3):
        enter()
        assert not is_free(client)
        leave(None, None, None)
        assert is_free(client)


@pytest.mark.parametrize("kind", [compat_threading.Lock, compat_threading.RLock])
def test_so_it_does_in_the_shape_of_threading(client: gripfast.Client, kind: type[compat_threading.Lock]) -> None:
    lock = kind(client, "job")
    enter, leave = lock.__enter__, lock.__exit__
    for _ in range(3):
        enter()
        assert not is_free(client)
        leave(None, None, None)
        assert is_free(client)


def test_an_exit_that_is_bound_once_leaves_a_reentrant_lock_level_by_level(client: gripfast.Client) -> None:
    lock = client.lock("job", reentrant=True)
    enter, leave = lock.__enter__, lock.__exit__
    enter()
    enter()
    leave(None, None, None)
    assert not is_free(client)
    leave(None, None, None)
    assert is_free(client)
    with pytest.raises(RuntimeError, match="not entered"):
        leave(None, None, None)


def test_an_async_exit_that_is_bound_once_leaves_as_often_as_it_is_entered() -> None:
    async def main() -> None:
        async with gripfast.connect_async("memory://") as client:
            lock = client.lock("job")
            enter, leave = lock.__aenter__, lock.__aexit__
            for _ in range(3):
                await enter()
                assert await client.inspect("job") is not None
                await leave(None, None, None)
                assert await client.inspect("job") is None

    asyncio.run(main())


# -- on another thread or task -----------------------------------------------------------------------------------------


def test_a_stack_may_be_closed_on_another_thread(client: gripfast.Client) -> None:
    stack = contextlib.ExitStack()
    stack.enter_context(client.lock("job"))
    assert on_another_thread(stack.close) is None
    assert is_free(client)


def test_a_stack_may_be_closed_on_another_thread_in_the_shape_of_threading_too(client: gripfast.Client) -> None:
    stack = contextlib.ExitStack()
    stack.enter_context(compat_threading.Lock(client, "job"))
    assert on_another_thread(stack.close) is None
    assert is_free(client)


def test_an_rlock_is_left_by_the_thread_that_entered_it_alone(client: gripfast.Client) -> None:
    lock = compat_threading.RLock(client, "job")
    stack = contextlib.ExitStack()
    stack.enter_context(lock)
    assert isinstance(on_another_thread(stack.pop_all().close), RuntimeError)
    assert not is_free(client)
    lock.release()
    assert is_free(client)


def test_a_thread_leaves_what_it_entered_itself_before_what_others_did(client: gripfast.Client) -> None:
    """A lost lease lets a second thread in; the first one is told of its loss, and nobody leaves for the other."""
    lock = client.lock("job", ttl=0.02, renew=False)
    lost = lock.__enter__()
    until(lambda: not lost.held)

    def enter_and_leave() -> None:
        lock.__enter__()
        lock.__exit__(ValueError, None, None)

    assert on_another_thread(enter_and_leave) is None
    with pytest.raises(gripfast.LeaseLost):
        lock.__exit__(None, None, None)


def test_the_last_entry_of_others_is_left_first(client: gripfast.Client) -> None:
    lock = client.lock("job", reentrant=True)
    leases = [lock.__enter__(), lock.__enter__()]
    assert on_another_thread(lambda: lock.__exit__(None, None, None)) is None
    assert [lease.held for lease in leases] == [True, False]
    lock.__exit__(None, None, None)


def test_a_stack_of_a_task_may_be_closed_by_another() -> None:
    async def main() -> None:
        async with gripfast.connect_async("memory://") as client:
            stack = contextlib.AsyncExitStack()
            entered, left = asyncio.Event(), asyncio.Event()

            async def fill() -> None:
                await stack.enter_async_context(client.lock("job"))
                entered.set()
                await left.wait()

            filling = asyncio.create_task(fill())
            await entered.wait()
            await stack.aclose()
            assert await client.inspect("job") is None
            left.set()
            await filling

    asyncio.run(main())


def test_a_loss_does_not_cancel_the_task_that_leaves_for_another() -> None:
    async def main() -> None:
        async with gripfast.connect_async("memory://") as client:
            lock = client.lock("job", ttl=0.02, renew=False)
            entered = asyncio.Event()

            async def fill() -> None:
                await lock.__aenter__()
                entered.set()
                await asyncio.Event().wait()

            filling = asyncio.create_task(fill())
            await entered.wait()
            with pytest.raises(asyncio.CancelledError):
                await filling
            with pytest.raises(RuntimeError, match="not entered"):  # its task has ended, by the loss
                await lock.__aexit__(None, None, None)

    asyncio.run(main())


# -- by nobody ---------------------------------------------------------------------------------------------------------


def test_a_task_that_ended_without_leaving_does_not_keep_the_lock() -> None:
    async def careless(lock: gripfast.AsyncLock) -> None:
        stack = contextlib.AsyncExitStack()
        await stack.enter_async_context(lock)

    async def main() -> None:
        async with gripfast.connect_async("memory://") as client:
            lock = client.lock("job", ttl=600)
            task = asyncio.create_task(careless(lock))
            await task
            await auntil(lambda: _is_free_async(client))
            assert [len(each) for each in by_hand(lock)._all] in ([], [0])
            with pytest.raises(
                RuntimeError, match="the thread or task that called __enter__ has ended, and the lock was released"
            ):
                await lock.__aexit__(None, None, None)
            assert task.done()  # and is still known here

    asyncio.run(main())


def test_nor_does_one_whose_loop_is_gone() -> None:
    url = "memory://loop-is-gone"
    locks: list[gripfast.AsyncLock] = []

    async def careless() -> None:
        await locks[0].__aenter__()

    async def begin() -> None:
        locks.append(gripfast.connect_async(url).lock("job", ttl=600))
        task = asyncio.create_task(careless())
        await asyncio.wait([task])

    asyncio.run(begin())
    gc.collect()
    with gripfast.connect(url) as another:
        until(lambda: another.inspect("job") is None)


async def _is_free_async(client: gripfast.AsyncClient) -> bool:
    return await client.inspect("job") is None
