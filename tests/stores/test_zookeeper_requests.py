"""What is sent to the servers: as little as does the work, and nobody is woken whose turn has not come."""

import asyncio
import contextlib
import re
from collections.abc import Iterator

import pytest

from support.both_colours import another, both_colours, staged
from support.waiting import auntil
from support.zookeeper_servers import ZooKeeperServer

QUIET = "tickTime=10000"
"""Sessions so long that no ping gets in between."""


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(QUIET) as server:
        yield server


def received(server: ZooKeeperServer) -> int:
    """Requests so far, the one that asks for it included."""
    (number,) = re.findall(r"^zk_packets_received\t(\d+)$", server.four("mntr"), re.MULTILINE)
    return int(number)


@contextlib.contextmanager
def counted(server: ZooKeeperServer) -> Iterator[list[int]]:
    """How many requests came meanwhile, once it is over."""
    before, told = received(server), list[int]()
    yield told
    told.append(received(server) - before - 1)


async def silence(server: ZooKeeperServer) -> None:
    """Until nothing but these questions has come for a while."""
    seen: list[int] = []

    def is_silent() -> bool:
        seen.append(received(server))
        return len(seen) > 20 and seen[-1] - seen[-21] == 20

    await auntil(is_silent)


@staged
async def test_a_free_lock_is_three_requests(server: ZooKeeperServer) -> None:
    async with both_colours(server.lock_space(), ttl=60) as actors:
        for actor in actors:
            await actor.release(await actor.acquire("job"))
            with counted(server) as told:
                for _ in range(10):
                    await actor.release(await actor.acquire("job"))
            assert told == [30]


@staged
async def test_all_leases_of_a_session_are_proved_by_one_write(server: ZooKeeperServer) -> None:
    async with both_colours(server.lock_space(), ttl=60) as actors:
        for actor in actors:
            lease = await actor.acquire("job")
            with counted(server) as told:
                for _ in range(10):
                    await actor.extend(lease)
            assert told == [10]
            await actor.release(lease)


@staged
async def test_a_renewal_wakes_nobody_who_waits(server: ZooKeeperServer) -> None:
    url = server.lock_space()
    async with both_colours(url, ttl=60) as (holder, other), both_colours(url, ttl=60) as others:
        lease = await holder.acquire("job")
        waiting = [actor.acquire("job") for actor in (other, *others)]

        async def all_wait() -> bool:
            return (await holder.inspect("job")).waiters == len(waiting)

        await auntil(all_wait)
        await silence(server)  # they are seen to wait before they have set their watches
        with counted(server) as told:
            for _ in range(10):
                await holder.extend(lease)
        assert told == [10]
        assert not any(each.done() for each in waiting)
        await holder.release(lease)
        for grant in asyncio.as_completed(waiting):
            granted = await grant
            await next(actor for actor in (other, *others) if granted in actor._kept).release(granted)


@staged
async def test_a_release_wakes_only_the_next(server: ZooKeeperServer) -> None:
    """The delete, the look of the next one at the line, and what may prove its session; nothing of those behind it."""
    async with both_colours(server.lock_space(), ttl=60) as actors:
        for actor in actors:
            line = [another(actor) for _ in range(6)]
            lease = await actor.acquire("job")
            waiting = []
            for place, one in enumerate(line, 1):
                waiting.append(one.acquire("job"))

                async def stands(actor: object = actor, place: int = place) -> bool:
                    return (await actor.inspect("job")).waiters == place  # type: ignore[attr-defined]

                await auntil(stands)
            await silence(server)
            with counted(server) as told:
                await actor.release(lease)
                first = await waiting[0]
            assert told[0] <= 3
            await line[0].release(first)
            for one, grant in zip(line[1:], waiting[1:], strict=True):
                await one.release(await grant)
            for one in line:
                await one.leaves()
