"""Slots that move: what happens to locks, waiters, tokens and renewals while their keys are on the way."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from gripfast import StoreUnavailable
from gripfast.stores.redis import keys
from support.both_colours import another, both_colours, each, outcome, staged
from support.cluster_servers import Cluster, time_passes
from support.colours import renewal_of
from support.redis_server import RedisServer
from support.waiting import auntil

GRANTS_AGAIN = 2.0
"""Seconds after which a slot that has arrived grants locks again."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(replicas=0, node_timeout_ms=15000) as cluster:
        yield cluster


class Place:
    """A slot with names of its own, where it is, and where it goes."""

    def __init__(self, cluster: Cluster, suffix: str = "") -> None:
        self.cluster = cluster
        self.tag = uuid.uuid4().hex + suffix
        self.slot = keys.slot(self.tag.encode())
        self.source = cluster.owner(self.slot)
        self.target = next(server for server in cluster.primaries() if server is not self.source)
        self.url = cluster.url(prefix=f"{{{self.tag}}}:")

    # Not on the event loop, which has leases to renew.

    async def begin(self) -> None:
        await asyncio.to_thread(self.cluster.begin_move, self.slot, self.source, self.target)

    async def send(self, *found: bytes) -> None:
        """The keys that contain one of these."""
        chosen = [key for key in self.keys(self.source) if any(each in key for each in found)]
        await asyncio.to_thread(self.cluster.move_keys, self.source, self.target, chosen)

    async def send_all(self) -> None:
        while found := await asyncio.to_thread(self.keys, self.source):
            await asyncio.to_thread(self.cluster.move_keys, self.source, self.target, found)

    async def end(self) -> None:
        await self.send_all()
        await asyncio.to_thread(self.cluster.end_move, self.slot, self.source, self.target)

    def keys(self, server: RedisServer) -> list[bytes]:
        return self.cluster.keys_in(self.slot, server, 1000)


@pytest.fixture
def place(cluster: Cluster) -> Place:
    return Place(cluster)


@staged
async def test_a_lease_goes_with_its_slot(place: Place) -> None:
    async with both_colours(place.url) as actors:
        leases = await each(actors, lambda actor: actor.acquire(actor.colour, ttl=3.0))
        await place.begin()
        await place.end()
        for lease in leases:
            await auntil(renewal_of(lease), within=10)
        for actor, lease in zip(actors, leases, strict=True):
            assert await actor.try_acquire(actor.colour) is None
            await actor.release(lease)
            assert (await actor.acquire(actor.colour)).token > lease.token


@staged
async def test_a_lease_is_renewed_while_its_slot_is_on_the_way(place: Place) -> None:
    """Its two keys are still here; then they are there, and are asked for there."""
    async with both_colours(place.url) as actors:
        leases = await each(actors, lambda actor: actor.acquire(actor.colour, ttl=1.5))
        await place.begin()
        await time_passes(3.0)
        assert all(lease.held for lease in leases)
        await place.send_all()
        await time_passes(3.0)
        assert all(lease.held for lease in leases)
        await place.end()
        for actor, lease in zip(actors, leases, strict=True):
            await actor.release(lease)


@staged
async def test_half_a_lock_is_granted_to_nobody(place: Place) -> None:
    """Whichever half: its key has gone ahead of its token, or the other way round."""
    async with both_colours(place.url, request_timeout=0.3, connect_patience=0.3) as actors:
        names = [f"{actor.colour}-{half}" for actor in actors for half in ("lock", "token")]
        holder = actors[0]
        leases = [await holder.acquire(name) for name in names]
        await place.begin()
        await place.send(*(f":{name}".encode() for name in names if name.endswith("-lock")))
        await place.send(b"\0gripfast:token:" + f"{{{place.tag}}}".encode())
        for actor in actors:
            rivals = [another(actor) for _ in names]
            pairs = zip(rivals, names, strict=True)
            told = await asyncio.gather(*(outcome(rival.try_acquire(name)) for rival, name in pairs))
            assert [one.result for one in told] == [None] * len(names)
            assert all(isinstance(one.error, StoreUnavailable) for one in told), told
            assert all("moving this lock's slot" in str(one.error) for one in told), told
            for rival in rivals:
                await rival.leaves()
        await place.end()
        for name, lease in zip(names, leases, strict=True):
            assert await actors[1].try_acquire(name) is None
            await holder.release(lease)


@staged
async def test_claims_and_releases_wait_for_a_slot_that_moves(place: Place) -> None:
    async with both_colours(place.url) as actors:
        leases = await each(actors, lambda actor: actor.acquire(actor.colour))
        await place.begin()
        releases = [asyncio.ensure_future(actor.release(lease)) for actor, lease in zip(actors, leases, strict=True)]
        others = [another(actor) for actor in actors]
        claims = [asyncio.ensure_future(other.acquire(f"{other.colour}-new")) for other in others]
        await time_passes(0.5)
        assert not any(call.done() for call in (*releases, *claims))
        await place.end()
        ended = time.monotonic()
        await asyncio.gather(*releases, *claims)
        assert time.monotonic() - ended < GRANTS_AGAIN
        for other in others:
            assert (await other.acquire(other.colour)).token > leases[0].token
            await other.leaves()


@staged
async def test_waiters_keep_their_positions_and_are_granted_soon(place: Place) -> None:
    async with both_colours(place.url) as actors:
        for actor in actors:
            lease = await actor.acquire(actor.colour)
            waiters = [another(actor) for _ in range(5)]
            order: list[int] = []
            waits = []
            for number, waiter in enumerate(waiters):
                waits.append(asyncio.ensure_future(_in_turn(waiter, actor.colour, number, order)))
                await _queued(actor, number + 1)
            here = _from_where_it_is(place)
            await here.begin()
            await here.end()
            ended = time.monotonic()
            await time_passes(1.2)  # by then they have asked
            await actor.release(lease)
            await asyncio.gather(*waits)
            assert time.monotonic() - ended < 1.2 + GRANTS_AGAIN
            assert order == [0, 1, 2, 3, 4]
            for waiter in waiters:
                await waiter.leaves()


async def _in_turn(waiter: Any, name: str, number: int, order: list[int]) -> None:
    lease = await waiter.acquire(name, wait=30)
    order.append(number)
    await waiter.release(lease)


async def _queued(actor: Any, count: int) -> None:
    async def so_many() -> bool:
        info = await actor.inspect(actor.colour)
        return info is not None and info.waiters == count

    await auntil(so_many)


@staged
async def test_a_lock_that_is_freed_right_after_its_slot_moved_is_granted_soon(place: Place) -> None:
    """No waiter has subscribed at the new owner yet, so nobody can be notified."""
    async with both_colours(place.url) as actors:
        leases = await each(actors, lambda actor: actor.acquire(actor.colour))
        waiters = [another(actor) for actor in actors]
        waits = [asyncio.ensure_future(waiter.acquire(waiter.colour, wait=30)) for waiter in waiters]
        for actor in actors:
            await _queued(actor, 1)
        await place.begin()
        await place.end()
        ended = time.monotonic()
        for actor, lease in zip(actors, leases, strict=True):
            await actor.release(lease)
        granted = await asyncio.gather(*waits)
        assert time.monotonic() - ended < GRANTS_AGAIN
        assert [new.token > old.token for new, old in zip(granted, leases, strict=True)] == [True, True]
        for waiter in waiters:
            await waiter.leaves()


@staged
async def test_an_unanswered_claim_is_cleaned_up_at_the_node_that_asks_were_sent_to(place: Place) -> None:
    """The whole queue is there already, the slot is not: a waiter that gives up leaves no position behind."""
    async with both_colours(place.url, request_timeout=0.5) as actors:
        for actor in actors:
            holder, waiter = another(actor), another(actor)
            lease = await holder.acquire(actor.colour)
            waiting = asyncio.ensure_future(waiter.acquire(actor.colour, wait=20))
            await _queued(actor, 1)
            here = _from_where_it_is(place)
            await here.begin()
            await here.send_all()
            late = await outcome(actor.acquire(actor.colour, wait=1.0))
            assert "not acquired" in str(late.error), late
            assert (await actor.inspect(actor.colour)).waiters == 1
            await here.end()
            await holder.release(lease)
            await actor.release(await waiting)
            await holder.leaves()
            await waiter.leaves()


def _from_where_it_is(place: Place) -> Place:
    here = object.__new__(Place)
    here.__dict__.update(place.__dict__)
    here.source = place.cluster.owner(place.slot)
    here.target = next(server for server in place.cluster.primaries() if server is not here.source)
    return here


@staged
async def test_a_list_waits_for_a_slot_that_moves_and_has_each_name_once(place: Place) -> None:
    """What moves from a node that was not read yet to one that was is not in it."""
    async with both_colours(place.url) as actors:
        names = [f"n{number}" for number in range(40)]
        for name in names:
            await actors[0].acquire(name)
        for actor in actors:
            assert sorted(info.name for info in await actor.listing()) == sorted(names)
        await place.begin()
        await place.send(*(f"n{number}".encode() for number in range(0, 40, 2)))
        listing = [asyncio.ensure_future(actor.listing()) for actor in actors]
        await time_passes(0.3)
        await place.end()
        for actor, listed in zip(actors, await asyncio.gather(*listing), strict=True):
            found = [info.name for info in listed]
            assert len(found) == len(set(found))
            assert {f"n{number}" for number in range(0, 40, 2)} <= set(found) <= set(names)
            assert sorted(info.name for info in await actor.listing()) == sorted(names)


@staged
async def test_permits_go_with_their_slot(place: Place) -> None:
    async with both_colours(place.url) as actors:
        for actor in actors:
            semaphore = actor.client.semaphore(f"s-{actor.colour}", limit=2)
            lease = await actor.acquire(semaphore)
            here = _from_where_it_is(place)
            await here.begin()
            await here.end()
            second, third = another(actor), another(actor)
            other = await second.acquire(semaphore)
            assert await third.try_acquire(semaphore) is None
            await actor.release(lease)
            assert (await third.acquire(semaphore)).token > other.token
            info = await actor.inspect(f"s-{actor.colour}", kind="semaphore")
            assert len(info.holders) == 2
            await second.leaves()
            await third.leaves()


@staged
async def test_a_client_that_knows_nothing_of_a_move_is_sent_on_once(place: Place) -> None:
    """And goes to the new owner by itself from then on."""
    async with both_colours(place.url) as actors:
        for actor in actors:
            await actor.release(await actor.acquire(actor.colour))
        await place.begin()
        await place.end()
        for actor in actors:
            await actor.release(await actor.acquire(actor.colour))
            topology = actor.client._runtime.env.store._topology
            assert topology.owners[place.slot].port == place.target.port
