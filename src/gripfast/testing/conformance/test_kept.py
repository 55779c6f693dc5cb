"""`min_hold`: a name that stays taken for a while, however early its lease is released."""

import asyncio
import functools
import gc
from typing import Any

import pytest

from gripfast import ConfigurationError, LockTimeout
from gripfast.testing.colours import World
from gripfast.testing.fixtures import needs, unless
from gripfast.testing.waiting import auntil

LONG = 600.0


async def is_kept(world: World, name: str = "job") -> bool:
    info = await world.inspect(name)
    return info is not None and info.kept == "min_hold"


@needs("keeps")
async def test_a_released_name_stays_taken_for_its_min_hold(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", min_hold=LONG, label="alice's")
    assert (await world.inspect("job")).kept is None
    await alice.release(lease)
    await alice.release(lease)
    assert not lease.held
    info = await world.inspect("job")
    assert info.kept == "min_hold"
    assert info.pid == 0
    assert lease.owner in info.owner
    assert info.token == lease.token
    assert info.label == "alice's"
    assert info.since is not None
    assert LONG - 60 < info.expires_in <= LONG
    assert await bob.try_acquire("job") is None
    assert await alice.try_acquire("job") is None
    with pytest.raises(LockTimeout, match="min_hold"):
        await bob.acquire("job", wait=0.05)


@needs("keeps")
async def test_it_is_free_when_the_min_hold_is_over(world: World) -> None:
    alice, bob = world.actors(2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    lease = await alice.acquire("job", min_hold=0.5)
    await alice.release(lease)
    next_one = await bob.acquire("job")
    assert loop.time() - began >= 0.45
    assert next_one.token > lease.token


@needs("keeps")
async def test_the_min_hold_counts_from_the_acquisition(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", min_hold=0.2)
    loop = asyncio.get_running_loop()
    is_over = loop.time() + 0.25
    await auntil(lambda: loop.time() > is_over)
    await alice.release(lease)
    assert await bob.try_acquire("job") is not None


@needs("keeps")
async def test_every_end_of_a_lease_keeps_the_name(world: World) -> None:
    alice = world.actor()

    async def body(lease: Any) -> None:
        pass

    async def failing(lease: Any) -> None:
        raise LookupError

    await alice.inside("left", body, min_hold=LONG)
    with pytest.raises(LookupError):
        await alice.inside("raised", failing, min_hold=LONG)
    await alice.drops("dropped", min_hold=LONG)
    gc.collect()
    limited = await alice.acquire("limited", min_hold=LONG, max_hold=0.05)
    assert await alice.hears_of_loss(limited) is True
    closing = world.actor()
    await closing.acquire("closed", min_hold=LONG)
    await world.colour.disconnect(closing.client)
    for name in ("left", "raised", "dropped", "limited", "closed"):
        await auntil(functools.partial(is_kept, world, name))


@needs("keeps")
async def test_a_claim_that_nobody_believed_in_keeps_nothing(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    with pytest.raises(LockTimeout):
        await bob.acquire("job", wait=0.05, min_hold=LONG)
    assert await bob.try_acquire("job", min_hold=LONG) is None
    await alice.release(lease)
    assert await world.inspect("job") is None


@needs("keeps", "waiters_seen")
async def test_waiters_stay_queued_while_it_is_kept(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", min_hold=LONG)
    waiting = bob.acquire("job", wait=None)
    await world.queued("job", 1)
    await alice.release(lease)
    info = await world.inspect("job")
    assert (info.kept, info.waiters) == ("min_hold", 1)
    assert not waiting.done()
    assert await alice.force_release("job") is True
    assert (await waiting).token > lease.token


@needs("keeps")
async def test_a_force_release_ends_a_min_hold(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.release(await alice.acquire("job", min_hold=LONG))
    assert await bob.force_release("job") is True
    assert await bob.try_acquire("job") is not None


@needs("keeps")
async def test_a_reentrant_lock_is_kept_once_its_last_level_is_released(world: World) -> None:
    alice = world.actor()
    lock = alice.client.lock("job", reentrant=True, min_hold=LONG)
    outer, inner = await alice.acquire(lock), await alice.acquire(lock)
    await alice.release(inner)
    assert not await is_kept(world)
    await alice.release(outer)
    assert await is_kept(world)


@needs("keeps")
async def test_a_kept_name_is_listed(world: World) -> None:
    alice = world.actor()
    await alice.release(await alice.acquire("job", min_hold=LONG))
    assert [(info.name, info.kept) for info in await alice.listing()] == [("job", "min_hold")]


@needs("keeps")
async def test_a_decorated_function_keeps_its_lock(world: World) -> None:
    alice = world.actor()
    work = alice.client.locked("job:{number}", min_hold=LONG)(alice.function(lambda number: number))
    assert await alice.calls(work, 3) == 3
    assert await is_kept(world, "job:3")


@needs("keeps")
async def test_a_bad_min_hold_is_refused(world: World) -> None:
    client = world.connect()
    for value in (0, -1, float("nan"), float("inf"), "60", True):
        with pytest.raises(ConfigurationError, match="min_hold"):
            client.lock("job", min_hold=value)


@unless("keeps")
async def test_a_store_that_keeps_nothing_refuses_a_min_hold(world: World) -> None:
    with pytest.raises(ConfigurationError, match="min_hold"):
        world.connect().lock("job", min_hold=1)
