"""They publish nothing: a waiter asks at the expiry of their key, and every third of its own ttl until then."""

import asyncio
import time
from typing import Any

import pytest
from redis import Redis

from gripfast import LockTimeout
from interop.foreign import Foreign
from support.colours import World

LONG = 30.0
SHORT = 0.6
"""A ttl of waiters: they ask every fifth of a second."""
SOON = 2.5
"""Well below the slowest pace of asking, which is 3 s, and far above what is due."""


async def line_up(world: World, count: int, ttl: float) -> list[tuple[Any, "asyncio.Future[Any]"]]:
    """So many actors, each waiting for the lock behind the one before."""
    queue = []
    for place, actor in enumerate(world.actors(count), 1):
        queue.append((actor, actor.acquire("job", ttl=ttl)))
        await world.queued("job", place)
    return queue


async def test_a_waiter_has_it_soon_after_they_released(foreign: Foreign, world: World, key: str) -> None:
    held = foreign.acquire(key, LONG)
    [(_, waiting)] = await line_up(world, 1, SHORT)
    assert foreign.release(held)
    released = time.monotonic()
    await waiting
    assert time.monotonic() - released < SOON


async def test_a_waiter_has_it_soon_after_their_key_expired_and_not_before(
    foreign: Foreign, world: World, key: str
) -> None:
    before = time.monotonic()
    foreign.acquire(key, 0.5)
    await world.actor().acquire("job", ttl=LONG)
    took = time.monotonic() - before
    assert 0.495 <= took < SOON


async def test_a_key_that_they_extend_is_waited_for(everyone: list[Foreign], world: World, prefix: str) -> None:
    before = time.monotonic()
    names = [each.name for each in everyone]
    held = [each.acquire(prefix + each.name, 1.0) for each in everyone]
    waiting = [world.actor().acquire(name, ttl=LONG) for name in names]
    for name in names:
        await world.queued(name, 1)
    assert all(each.extend(handle, 1.5) for each, handle in zip(everyone, held, strict=True))
    await asyncio.gather(*waiting)
    assert time.monotonic() - before >= 1.495


async def test_waiters_behind_them_get_it_in_the_order_they_came(foreign: Foreign, world: World, key: str) -> None:
    held = foreign.acquire(key, LONG)
    queue = await line_up(world, 4, SHORT * 3)
    assert foreign.release(held)
    tokens = []
    for done, (actor, waiting) in enumerate(queue, 1):
        lease = await waiting
        assert sum(grant.done() for _, grant in queue) == done
        tokens.append(lease.token)
        await actor.release(lease)
    assert tokens == sorted(set(tokens))


async def test_they_do_not_get_in_between_a_holder_and_its_waiter(foreign: Foreign, world: World, key: str) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=LONG)
    [(_, waiting)] = await line_up(world, 1, LONG)
    await alice.release(lease)
    assert foreign.acquire(key, LONG) is None
    assert (await waiting).held


async def test_a_waiter_that_gave_up_is_no_longer_in_the_way(foreign: Foreign, world: World, key: str) -> None:
    alice = world.actor()
    held = foreign.acquire(key, LONG)
    with pytest.raises(LockTimeout):
        await alice.acquire("job", wait=0.05)
    assert foreign.release(held)
    again = foreign.acquire(key, LONG)
    assert again is not None
    assert foreign.release(again)
    assert (await world.actor().try_acquire("job")).held


async def test_the_time_out_names_them_as_far_as_they_are_known(
    foreign: Foreign, world: World, key: str, onlooker: Redis
) -> None:
    foreign.acquire(key, LONG)
    with pytest.raises(LockTimeout) as caught:
        await world.actor().acquire("job", wait=0.05)
    assert caught.value.holder.owner == onlooker.get(key)
    assert str(caught.value)


async def test_a_key_without_a_ttl_is_respected(endless: Foreign, world: World, key: str, onlooker: Redis) -> None:
    alice = world.actor()
    held = endless.acquire(key, None)
    assert await alice.try_acquire("job") is None
    with pytest.raises(LockTimeout):
        await alice.acquire("job", wait=0.5, ttl=0.3)
    assert onlooker.pttl(key) == -1
    assert endless.release(held)


async def test_a_key_without_a_ttl_is_waited_for(endless: Foreign, world: World, key: str) -> None:
    held = endless.acquire(key, None)
    queue = await line_up(world, 2, SHORT * 3)
    assert endless.release(held)
    for actor, waiting in queue:
        await actor.release(await waiting)
