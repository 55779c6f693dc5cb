"""Waiting: first come first served, woken by push, patient for as long as told and no longer."""

import time
from typing import Any

import pytest

from gripfast import LockTimeout
from gripfast.testing.colours import World
from gripfast.testing.fixtures import needs
from gripfast.testing.waiting import auntil


async def line_up(world: World, name: str, *queue: Any, **settings: Any) -> list[Any]:
    """Let the actors queue up one after the other; return what each waits for."""
    waiting = []
    for place, actor in enumerate(queue, 1):
        waiting.append(actor.acquire(name, **settings))
        await world.queued(name, place)
    return waiting


@needs("waiters_seen", "fair")
async def test_waiters_get_the_lock_in_the_order_they_came(world: World) -> None:
    holder, *queue = world.actors(6)
    lease = await holder.acquire("job")
    tokens = [lease.token]
    waiting = await line_up(world, "job", *queue)
    await holder.release(lease)
    for actor, grant in zip(queue, waiting, strict=True):
        lease = await grant
        assert sum(other.done() for other in waiting) == len(tokens)
        tokens.append(lease.token)
        await actor.release(lease)
    assert tokens == sorted(set(tokens))


@needs("waiters_seen", "fair")
async def test_waiters_of_one_client_get_the_lock_in_the_order_they_came(world: World) -> None:
    holder, *queue = world.actors(4, client=world.connect())
    lease = await holder.acquire("job")
    waiting = await line_up(world, "job", *queue)
    await holder.release(lease)
    for actor, grant in zip(queue, waiting, strict=True):
        await actor.release(await grant)


@needs("waiters_seen", "fair")
async def test_nobody_passes_the_queue_when_the_lock_is_released(world: World) -> None:
    holder, first, late = world.actors(3)
    lease = await holder.acquire("job")
    (waiting,) = await line_up(world, "job", first)
    await holder.release(lease)
    assert await late.try_acquire("job") is None
    assert (await waiting).held


@needs("waiters_seen", "fair")
async def test_nobody_passes_the_queue_when_the_lease_expires(world: World) -> None:
    holder, first, second = world.actors(3)
    lease = await holder.acquire("job", ttl=30, renew=False)
    waiting = await line_up(world, "job", first, second, ttl=1)
    await holder.extend(lease, 0.05)
    lease = await waiting[0]
    assert not waiting[1].done()
    await first.release(lease)
    assert (await waiting[1]).held


@needs("waiters_seen", "push")
async def test_a_release_wakes_the_waiter_at_once(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", ttl=30)
    (waiting,) = await line_up(world, "job", bob, ttl=30)
    before = time.monotonic()
    await alice.release(lease)
    await waiting
    assert time.monotonic() - before < 0.5


@needs("waiters_seen", "push")
async def test_a_release_wakes_a_waiter_of_the_same_client_at_once(world: World) -> None:
    alice, bob = world.actors(2, client=world.connect())
    lease = await alice.acquire("job", ttl=30)
    (waiting,) = await line_up(world, "job", bob, ttl=30)
    before = time.monotonic()
    await alice.release(lease)
    await waiting
    assert time.monotonic() - before < 0.5


@needs("waiters_seen")
async def test_a_lease_that_was_waited_for_has_its_full_ttl(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    (waiting,) = await line_up(world, "job", bob, ttl=60, renew=False)
    await alice.release(lease)
    granted = await waiting
    assert 30 <= granted.remaining() <= 60
    assert (await world.inspect("job")).expires_in >= granted.remaining()


@needs("waiters_seen")
async def test_a_waiter_that_times_out_leaves_the_queue(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job")
    with pytest.raises(LockTimeout):
        await bob.acquire("job", wait=0.05)
    assert (await world.inspect("job")).waiters == 0


@needs("waiters_seen")
async def test_trying_leaves_nobody_in_the_queue(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job")
    assert await bob.try_acquire("job") is None
    with pytest.raises(LockTimeout):
        await bob.acquire("job", wait=0)
    assert (await world.inspect("job")).waiters == 0


@needs("waiters_seen")
async def test_the_next_in_line_is_served_when_the_first_gave_up(world: World) -> None:
    alice, bob, carol = world.actors(3)
    lease = await alice.acquire("job")
    gives_up = bob.acquire("job", wait=0.5)
    await world.queued("job", 1)
    waiting = carol.acquire("job")
    with pytest.raises(LockTimeout):
        await gives_up
    await world.queued("job", 1)
    await alice.release(lease)
    assert (await waiting).held


@needs("waiters_seen")
async def test_refreshing_a_place_in_the_queue_does_not_restart_the_patience(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job")
    before = time.monotonic()
    with pytest.raises(LockTimeout):  # with so short a ttl the place is refreshed every 30 ms
        await bob.acquire("job", wait=0.2, ttl=0.09)
    assert 0.19 <= time.monotonic() - before < 0.9


@needs("waiters_seen", "fair")
async def test_a_hand_off_to_someone_else_does_not_restart_the_patience(world: World) -> None:
    alice, bob, carol = world.actors(3)
    lease = await alice.acquire("job")
    (of_bob,) = await line_up(world, "job", bob)
    before = time.monotonic()
    impatient = carol.acquire("job", wait=0.5)
    await world.queued("job", 2)
    await auntil(lambda: time.monotonic() - before > 0.4)
    await alice.release(lease)
    await of_bob
    with pytest.raises(LockTimeout) as caught:
        await impatient
    assert time.monotonic() - before < 0.85
    assert caught.value.waited < 0.85


@needs("waiters_seen")
async def test_a_waiter_gets_the_lock_as_soon_as_the_holders_lease_runs_out(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", ttl=0.15, renew=False)
    before = time.monotonic()
    await bob.acquire("job", ttl=30)  # whose own pace of asking would be 3 s
    assert time.monotonic() - before < lease.ttl + 1
    assert not lease.held


@needs("waiters_seen")
async def test_a_waiter_gets_the_lock_when_an_operator_frees_it(world: World) -> None:
    alice, bob, operator = world.actors(3)
    lease = await alice.acquire("job")
    (waiting,) = await line_up(world, "job", bob)
    assert await operator.force_release("job") is True
    granted = await waiting
    assert granted.token > lease.token


@needs("waiters_seen")
async def test_inspect_counts_the_waiters(world: World) -> None:
    alice, *queue = world.actors(4)
    lease = await alice.acquire("job")
    waiting = await line_up(world, "job", *queue)
    await alice.release(lease)
    of_first = await waiting[0]
    assert (await world.inspect("job")).waiters == 2
    assert (await world.inspect("job")).owner == of_first.owner


# -- the wait of the lock ----------------------------------------------------------------------------------------------


async def nothing(_: Any) -> None: ...


async def test_a_lock_waits_for_as_long_as_it_is_set_to(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job")
    lock = bob.lock("job", wait=0.05)
    with pytest.raises(LockTimeout):
        await bob.does(lock.acquire)
    with pytest.raises(LockTimeout):
        await bob.inside(lock, nothing)
    with pytest.raises(LockTimeout):
        await bob.calls(bob.client.locked("job", wait=0.05)(world.colour.function(lambda: None)))


async def test_a_lock_that_is_set_to_wait_enters_when_it_is_free(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    entering = bob.inside("job", nothing, wait=30)
    await world.queued("job", 1)
    await alice.release(lease)
    await entering
    assert await world.inspect("job") is None


async def test_a_call_may_wait_for_ever_though_its_lock_is_set_not_to(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    lock = bob.lock("job", wait=0)
    waiting = bob.acquire(lock, wait=None)
    await world.queued("job", 1)
    await alice.release(lease)
    assert (await waiting).held


async def test_a_call_may_wait_less_than_its_lock_is_set_to(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job")
    lock = bob.lock("job", wait=60)
    assert await bob.try_acquire(lock) is None
    with pytest.raises(LockTimeout):
        await bob.acquire(lock, wait=0)
