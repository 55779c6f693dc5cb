"""Re-entry: one lease, a handle for each level, and only for the thread or task that holds it."""

from typing import Any

import pytest

from gripfast import LeaseLost
from gripfast.testing.colours import World
from gripfast.testing.waiting import auntil


async def test_each_level_has_a_handle_of_its_own_on_one_lease(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job", reentrant=True)
    outer, inner = await alice.acquire(lock), await alice.acquire(lock)
    assert outer is not inner
    assert (outer.token, outer.owner) == (inner.token, inner.owner)
    assert outer.held
    assert inner.held


async def test_trying_re_enters_as_well(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job", reentrant=True)
    outer = await alice.acquire(lock)
    inner = await alice.try_acquire(lock)
    assert inner.token == outer.token


async def test_the_lock_is_freed_by_the_last_release(world: World) -> None:
    alice, bob = world.actors(2)
    lock = alice.lock("job", reentrant=True)
    levels = [await alice.acquire(lock) for _ in range(3)]
    for level in reversed(levels):
        assert await bob.try_acquire("job") is None
        await alice.release(level)
        assert not level.held
    assert await bob.try_acquire("job") is not None


async def test_levels_may_be_released_in_any_order(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job", reentrant=True)
    outer, inner = await alice.acquire(lock), await alice.acquire(lock)
    await alice.release(outer)
    assert not outer.held
    assert inner.held
    assert (await world.inspect("job")).owner == inner.owner
    await alice.release(inner)
    assert await world.inspect("job") is None


async def test_releasing_a_level_twice_counts_once(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job", reentrant=True)
    outer, inner = await alice.acquire(lock), await alice.acquire(lock)
    await alice.release(inner)
    await alice.release(inner)
    assert outer.held
    assert await world.inspect("job") is not None


async def test_another_thread_or_task_is_not_let_in(world: World) -> None:
    alice = world.actor()
    bob = world.actor(alice.client)
    lock = alice.lock("job", reentrant=True)
    await alice.acquire(lock)
    assert await bob.try_acquire(lock) is None


async def test_with_statements_nest(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job", reentrant=True)

    def enter_twice() -> Any:
        with lock as outer, lock as inner:
            assert outer.token == inner.token
            return outer

    async def enter_twice_awaiting() -> Any:
        async with lock as outer, lock as inner:
            assert outer.token == inner.token
            return outer

    lease = await alice.does({"blocking": enter_twice, "asyncio": enter_twice_awaiting}[alice.colour])
    assert not lease.held
    assert await world.inspect("job") is None


async def test_the_token_grows_after_the_last_release(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job", reentrant=True)
    levels = [await alice.acquire(lock) for _ in range(2)]
    for level in levels:
        await alice.release(level)
    assert (await alice.acquire(lock)).token > levels[0].token


async def test_every_level_learns_of_the_loss(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job", reentrant=True, ttl=0.06, renew=False)
    levels = [await alice.acquire(lock) for _ in range(2)]
    for level in levels:
        assert await alice.hears_of_loss(level) is True
        with pytest.raises(LeaseLost):
            level.ensure_held()


async def test_re_entering_a_lost_lease_asks_the_store_again(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job", reentrant=True, ttl=0.5, renew=False)
    lost = await alice.acquire(lock)
    await auntil(lost.lost.is_set)
    again = await alice.acquire(lock)
    assert again.token > lost.token
    assert again.held
    assert not lost.held


async def test_re_entering_does_not_pretend_when_someone_else_has_the_lock(world: World) -> None:
    alice, bob = world.actors(2)
    lock = alice.lock("job", reentrant=True, ttl=0.06, renew=False)
    await alice.acquire(lock)
    await bob.acquire("job")
    assert await alice.try_acquire(lock) is None


async def test_two_actors_share_a_reentrant_lock_object_in_turn(world: World) -> None:
    alice = world.actor()
    bob = world.actor(alice.client)
    lock = alice.lock("job", reentrant=True)
    of_alice = await alice.acquire(lock)
    waiting = bob.acquire(lock)
    await world.queued("job", 1)
    await alice.release(of_alice)
    of_bob = await waiting
    assert of_bob.token > of_alice.token
    assert await alice.try_acquire(lock) is None
    assert (await bob.try_acquire(lock)).token == of_bob.token
