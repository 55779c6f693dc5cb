"""An AsyncClient, its locks and its leases belong to one event loop. Used elsewhere they once wrote to that loop's
connection from a strange thread: replies got out of step, and claims took the replies of others for their own."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import gripfast
from gripfast.compat.asyncio import Lock as AsyncioLock
from support.waiting import auntil, until

Uses = list[Callable[[], Awaitable[Any]]]

ELSEWHERE = "belongs to another event loop"


class Home:
    """A client with a lease, a block, a list and an old-fashioned lock, all of one loop."""

    def __init__(self, url: str) -> None:
        self.client = gripfast.connect_async(url)
        self.lock = self.client.lock("entered", ttl=30)
        self.asyncio_lock = AsyncioLock(self.client, "in the shape of asyncio", ttl=30)

    async def begin(self) -> None:
        self.lease = await self.client.lock("job", ttl=30).acquire()
        self.entered = await self.lock.__aenter__()
        await self.asyncio_lock.acquire()

    def uses(self) -> Uses:
        lease, client = self.lease, self.client
        return [
            lease.release,
            lease.extend,
            lambda: lease.lost.wait(0.01),
            lease.__aenter__,
            lambda: lease.__aexit__(None, None, None),
            lambda: self.lock.__aexit__(None, None, None),
            lambda: client.lock("other").acquire(wait=0.01),
            client.lock("other").try_acquire,
            client.lock("other").__aenter__,
            lambda: client.lock("other").within(object()),
            lambda: client.inspect("job"),
            lambda: anext(client.list()),
            lambda: client.force_release("job"),
            lambda: client._free("job", lease.owner),
            lambda: client._renew("job", lease.owner, 5.0),
            client.aclose,
            lambda: client.__aexit__(None, None, None),
            self.asyncio_lock.acquire,
            self._release_in_the_shape_of_asyncio,
            lambda: self.asyncio_lock.__aexit__(None, None, None),
        ]

    async def _release_in_the_shape_of_asyncio(self) -> None:
        self.asyncio_lock.release()

    async def still_has_everything(self) -> None:
        assert self.lease.held
        assert self.entered.held
        assert self.asyncio_lock.locked()
        assert {info.name async for info in self.client.list()} == {"entered", "in the shape of asyncio", "job"}
        await self.lease.extend()

    async def end(self) -> None:
        await self.lease.release()
        await self.lock.__aexit__(None, None, None)
        self.asyncio_lock.release()
        await auntil(self._is_all_free)
        await self.client.aclose()

    async def _is_all_free(self) -> bool:
        return [info async for info in self.client.list()] == []


def in_another_loop(uses: Uses) -> list[str]:
    """What each of them was told in a loop of its own, and on the thread that calls this."""

    async def use(each: Callable[[], Awaitable[Any]]) -> str:
        try:
            await each()
        except gripfast.ConfigurationError as error:
            return str(error)
        return "nothing"

    return [asyncio.run(use(each)) for each in uses]


def test_what_belongs_to_one_loop_is_refused_in_another_and_left_as_it_is(url: str) -> None:
    async def main() -> None:
        home = Home(url)
        await home.begin()
        told = await asyncio.to_thread(in_another_loop, home.uses())
        assert [each for each in told if ELSEWHERE not in each] == []
        assert await asyncio.to_thread(lambda: home.lease.held and home.lease.remaining() > 0.0)
        assert not await asyncio.to_thread(home.lease.lost.is_set)
        await home.still_has_everything()
        await home.end()

    asyncio.run(main())


def test_what_belongs_to_a_loop_that_has_ended_is_refused_and_its_leases_are_given_back(url: str) -> None:
    home = Home(url)
    asyncio.run(home.begin())
    told = in_another_loop(home.uses())
    assert [each for each in told if "belongs to an event loop that is closed" not in each] == []
    assert home.lease.held  # to be read from anywhere
    with gripfast.connect(url) as another:
        del home
        gc.collect()
        until(lambda: another.inspect("job") is None, within=10)  # sooner than its ttl


def test_without_any_running_loop_it_is_refused_too(url: str) -> None:
    home = Home(url)
    with pytest.raises(gripfast.ConfigurationError, match="there is none here"):
        home.client.lock("first").try_acquire().send(None)
    asyncio.run(home.begin())
    for each in home.uses():
        with pytest.raises(gripfast.ConfigurationError, match="belongs to an event loop that is closed"):
            each().__await__().send(None)


def test_of_two_loops_that_use_a_client_first_one_has_it_and_the_other_is_told() -> None:
    client = gripfast.connect_async("memory://first-come")

    async def main() -> None:
        answers = await asyncio.gather(*(asyncio.to_thread(use) for _ in range(8)))
        assert answers.count("got it") == 1
        assert [each for each in answers if each != "got it" and "belongs to" not in each] == []

    async def first_use() -> str:
        try:
            await client.inspect("job")
        except gripfast.ConfigurationError as error:
            return str(error)
        return "got it"

    def use() -> str:
        return asyncio.run(first_use())

    asyncio.run(main())


def test_whoever_waits_for_the_end_of_a_lease_is_told_on_its_own_loop() -> None:
    """Released in another one, as the locks in the shape of redis-py may be. In debug mode asyncio refuses the rest."""

    async def main() -> None:
        async with gripfast.connect_async("memory://") as client:
            lease = await client.lock("job").acquire()
            waiting = asyncio.create_task(lease.lost.wait())
            await asyncio.sleep(0)
            await asyncio.to_thread(lease._release_soon)
            async with asyncio.timeout(5):
                assert not await waiting
            await auntil(lambda: _is_free(client))

    asyncio.run(main(), debug=True)


async def _is_free(client: gripfast.AsyncClient) -> bool:
    return await client.inspect("job") is None
