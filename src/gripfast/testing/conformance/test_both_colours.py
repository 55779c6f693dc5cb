"""Blocking and asyncio clients of one store exclude each other and wake each other."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import gripfast
from gripfast.testing.fixtures import needs
from gripfast.testing.waiting import until


def one_waits(client: gripfast.Client) -> Callable[[], bool]:
    def waits() -> bool:
        info = client.inspect("job")
        return info is not None and info.waiters == 1

    return waits


async def take(client: gripfast.AsyncClient) -> Any:
    return await client.lock("job").acquire(wait=5)


async def test_blocking_and_asyncio_clients_exclude_each_other(url: str) -> None:
    with gripfast.connect(url) as blocking:
        async with gripfast.connect_async(url) as awaiting:
            lease = blocking.lock("job").acquire(wait=0)
            assert await awaiting.lock("job").try_acquire() is None
            lease.release()
            async with awaiting.lock("job") as later:
                assert later.token > lease.token
                assert blocking.lock("job").try_acquire() is None


@needs("push", "waiters_seen")
async def test_a_blocking_release_wakes_an_asyncio_waiter(url: str) -> None:
    with gripfast.connect(url) as blocking:
        async with gripfast.connect_async(url) as awaiting:
            lease = blocking.lock("job").acquire(wait=0)
            waiting = asyncio.ensure_future(take(awaiting))
            await asyncio.to_thread(until, one_waits(blocking))
            before = time.monotonic()
            lease.release()
            assert (await waiting).token > lease.token
            assert time.monotonic() - before < 0.5


@needs("push", "waiters_seen")
async def test_an_asyncio_release_wakes_a_blocking_waiter(url: str) -> None:
    with gripfast.connect(url) as blocking:
        async with gripfast.connect_async(url) as awaiting:
            lease = await take(awaiting)
            waiting = asyncio.ensure_future(asyncio.to_thread(blocking.lock("job").acquire, 5))
            await asyncio.to_thread(until, one_waits(blocking))
            before = time.monotonic()
            await lease.release()
            assert (await waiting).token > lease.token
            assert time.monotonic() - before < 0.5
