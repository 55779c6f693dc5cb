"""Semaphores: so many permits, each with a number; first come first served, also for those who want several."""

import asyncio
from typing import Any

import pytest

from gripfast import ConfigurationError, LeaseLost, LockTimeout
from gripfast.testing.colours import World, renewal_of
from gripfast.testing.fixtures import needs, unless
from gripfast.testing.observing import Recorder
from gripfast.testing.waiting import auntil

KIND: dict[str, Any] = {"kind": "semaphore"}


def taking(actor: Any, n: int = 1, limit: int = 3, wait: Any = 10.0, **settings: Any) -> "asyncio.Future[Any]":
    """Of the semaphore "api"."""
    return actor.does(  # type: ignore[no-any-return]
        lambda: actor.client.semaphore("api", limit, **settings).acquire(n, wait=wait), then=actor._keep
    )


def try_take(actor: Any, n: int = 1, limit: int = 3, **settings: Any) -> "asyncio.Future[Any]":
    return actor.does(  # type: ignore[no-any-return]
        lambda: actor.client.semaphore("api", limit, **settings).try_acquire(n), then=actor._keep
    )


def resize(actor: Any, to: int, limit: int = 3) -> "asyncio.Future[None]":
    return actor.does(lambda: actor.client.semaphore("api", limit).resize(to))  # type: ignore[no-any-return]


@needs("semaphores")
async def test_as_many_hold_it_as_the_limit_says(world: World) -> None:
    alice, bob = world.actors(2)
    leases = [await try_take(alice), await try_take(bob), await try_take(alice)]
    assert all(lease.held for lease in leases)
    assert await try_take(bob) is None
    await alice.release(leases[0])
    late = await try_take(bob)
    assert late.held
    assert late.token > max(lease.token for lease in leases)
    assert len({lease.token for lease in [*leases, late]}) == 4


@needs("semaphores")
async def test_permits_have_numbers_that_nobody_else_has(world: World) -> None:
    alice, bob = world.actors(2)
    first, second = await taking(alice, 2, 4), await taking(bob, 1, 4)
    assert (first.slots, second.slots) == ((0, 1), (2,))
    await alice.release(first)
    third = await taking(alice, 3, 4)
    assert third.slots == (0, 1, 3)
    assert third.token > second.token


@needs("semaphores")
async def test_a_block_holds_a_permit_and_gives_it_back(world: World) -> None:
    alice, bob = world.actors(2)

    async def alone(lease: Any) -> None:
        assert lease.slots == (0,)
        assert await try_take(bob, 1, 1) is None

    await alice.inside(alice.client.semaphore("api", 1), alone)

    async def both(lease: Any) -> None:
        assert lease.slots == (0, 1)
        assert await try_take(bob, 1, 2) is None

    await bob.release(await taking(bob, 1, 1))
    await resize(bob, 2, 1)
    await alice.enters(lambda: alice.client.semaphore("api", 2).acquire(2), both)
    assert (await taking(bob, 2, 2)).held


@needs("semaphores")
async def test_permits_are_waited_for_until_enough_are_released(world: World) -> None:
    alice, bob, carol = world.actors(3)
    first, second = await taking(alice), await taking(bob, 2)
    waiting = taking(carol, 3)
    await world.queued("api", 1, **KIND)
    await alice.release(first)
    assert not waiting.done()
    await bob.release(second)
    assert (await waiting).slots == (0, 1, 2)


@needs("semaphores")
async def test_nobody_passes_the_one_that_waits_for_many(world: World) -> None:
    alice, bob, carol, dave = world.actors(4)
    first, second = await taking(alice), await taking(alice)
    big = taking(bob, 3)
    await world.queued("api", 1, **KIND)
    small = taking(carol)
    await world.queued("api", 2, **KIND)
    assert await try_take(dave) is None, "one permit is free, but others wait"
    await alice.release(first)
    await alice.release(second)
    lease = await big
    assert not small.done()
    await bob.release(lease)
    assert (await small).token > lease.token


@needs("semaphores")
async def test_a_waiter_that_gives_up_lets_the_others_in(world: World) -> None:
    alice, bob, carol = world.actors(3)
    await taking(alice, label="the nightly job")
    big = taking(bob, 3, wait=0.4)
    await world.queued("api", 1, **KIND)
    small = taking(carol, 2)
    with pytest.raises(LockTimeout, match="semaphore 'api' not acquired in") as busy:
        await big
    assert busy.value.holder is None or busy.value.holder.label == "the nightly job"
    assert (await small).slots == (1, 2)


@needs("semaphores")
@unless("session")
async def test_each_holder_expires_alone(world: World) -> None:
    alice, bob, carol = world.actors(3)
    short = await taking(alice, renew=False, ttl=30)
    others = [await taking(bob, renew=False, ttl=30) for _ in range(2)]
    await alice.extend(short, 0.3)  # longer than a slow engine takes to extend it
    late = await taking(carol)
    assert late.slots == short.slots
    assert all(lease.held for lease in others)
    assert not short.held
    assert await try_take(carol) is None


@needs("semaphores")
async def test_permits_are_renewed_and_keep_their_slots(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await taking(alice, 2, 2, ttl=2)
    await auntil(renewal_of(lease), 5)
    await alice.extend(lease)
    assert lease.held
    assert await try_take(bob, 1, 2) is None
    assert lease.slots == (0, 1)
    await alice.release(lease)
    assert (await try_take(bob, 2, 2)).slots == (0, 1)


@needs("semaphores")
async def test_who_comes_with_another_limit_is_told_both(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await taking(alice)
    with pytest.raises(ConfigurationError, match=r"'api' has a limit of 3, and this program uses 4"):
        await taking(bob, 1, 4)
    await alice.release(lease)
    with pytest.raises(ConfigurationError, match=r"limit of 3.* uses 2"):  # also while nobody has a permit
        await try_take(bob, 1, 2)
    assert await try_take(bob)


async def test_impossible_numbers_are_refused_before_any_request(world: World) -> None:
    client = world.connect()
    if not client.capabilities.semaphores:
        with pytest.raises(ConfigurationError, match="can't keep semaphores: connect to a store that can"):
            client.semaphore("api", 3)
        return
    for limit in (0, -1, 1.5, True, "3", 100_001):
        with pytest.raises(ConfigurationError, match="limit must be a whole number"):
            client.semaphore("api", limit)
    semaphore = client.semaphore("api", 3)
    assert semaphore.limit == 3
    for n in (0, -1, 1.5, True):
        with pytest.raises(ConfigurationError, match="n must be"):
            semaphore.acquire(n)
    with pytest.raises(ConfigurationError, match=r"at most the semaphore's limit \(3\), not 4"):
        semaphore.try_acquire(4)
    with pytest.raises(TypeError, match="write limit=3"):
        client.semaphore("api", 3, permits=3)


@needs("semaphores")
async def test_a_larger_limit_lets_waiters_in_at_once(world: World) -> None:
    alice, bob = world.actors(2)
    await taking(alice, 3)
    waiting = taking(bob, 2)
    await world.queued("api", 1, **KIND)
    await resize(alice, 5)
    assert (await waiting).slots == (3, 4)
    with pytest.raises(ConfigurationError, match="limit of 5"):
        await try_take(alice)


@needs("semaphores")
async def test_a_smaller_limit_takes_nothing_away_and_refuses_who_can_not_fit(world: World) -> None:
    alice, bob, carol = world.actors(3)
    leases = [await taking(alice) for _ in range(3)]
    big = taking(bob, 3)
    await world.queued("api", 1, **KIND)
    small = taking(carol, 1)
    await world.queued("api", 2, **KIND)
    await resize(alice, 2)
    with pytest.raises(ConfigurationError, match="limit of 2"):
        await big
    assert all(lease.held for lease in leases)
    await alice.release(leases[0])
    assert await try_take(alice, 1, 2) is None
    assert not small.done()
    await alice.release(leases[1])
    assert (await small).slots[0] in (0, 1)


@needs("semaphores")
async def test_the_semaphore_that_was_resized_goes_on_with_its_new_limit(world: World) -> None:
    alice = world.actor()
    semaphore = alice.client.semaphore("api", 1)
    await alice.does(lambda: semaphore.resize(2))
    assert semaphore.limit == 2
    assert (await alice.does(lambda: semaphore.acquire(2), then=alice._keep)).slots == (0, 1)


@needs("semaphores")
async def test_an_operator_sees_the_holders(world: World) -> None:
    alice, bob = world.actors(2)
    assert await alice.inspect("api", **KIND) is None
    first, second = await taking(alice, 2, label="alice's"), await taking(bob)
    waiting = taking(bob, wait=None)
    await world.queued("api", 1, **KIND)
    info = await alice.inspect("api", **KIND)
    assert (info.name, info.kind, info.limit) == ("api", "semaphore", 3)
    assert [(each.owner, each.n, each.slots, each.token) for each in info.holders] == [
        (first.owner, 2, (0, 1), first.token),
        (second.owner, 1, (2,), second.token),
    ]
    assert info.holders[0].label == "alice's"
    assert info.holders[0].pid > 0
    assert info.holders[0].host
    assert 0 < info.holders[0].expires_in <= 31
    assert not info.holders[0].is_writer
    await alice.release(first)
    await waiting


@needs("semaphores", "lists")
async def test_semaphores_are_listed_by_their_kind(world: World) -> None:
    alice = world.actor()
    for name in ("b", "a", "x"):
        semaphore = alice.client.semaphore(f"list:{name}", 2)
        await alice.does(lambda semaphore=semaphore: semaphore.acquire(), then=alice._keep)
    idle = alice.client.semaphore("list:idle", 2)
    await alice.release(await alice.does(lambda: idle.acquire()))
    await alice.acquire("list:lock")
    assert sorted(info.name for info in await alice.listing("list:", **KIND)) == ["list:a", "list:b", "list:x"]
    assert [info.name for info in await alice.listing("list:")] == ["list:lock"]


@needs("semaphores")
async def test_a_force_release_may_name_a_slot_or_an_owner(world: World) -> None:
    alice, bob = world.actors(2)
    leases = [await taking(alice, ttl=1) for _ in range(3)]
    waiting = taking(bob, wait=20)
    await world.queued("api", 1, **KIND)
    assert await alice.force_release("api", "too slow", slot=1, **KIND)
    assert (await waiting).slots == (1,)
    with pytest.raises(LeaseLost) as lost:
        await alice.release(leases[1])
    assert lost.value.reason == "broken"
    if alice.client.capabilities.tells_reason:
        assert lost.value.note == "too slow"
    assert await alice.force_release("api", owner=leases[0].owner, **KIND)
    assert await alice.hears_of_loss(leases[0])
    assert leases[2].held
    assert not await alice.force_release("api", owner=leases[0].owner, **KIND)
    assert await alice.force_release("api", **KIND)
    assert await alice.inspect("api", **KIND) is None
    with pytest.raises(ConfigurationError, match="not both"):
        await alice.force_release("api", owner="x", slot=1, **KIND)
    with pytest.raises(ConfigurationError, match="a lock has one holder"):
        await alice.force_release("api", slot=1)
    with pytest.raises(ConfigurationError, match="kind must be"):
        await alice.inspect("api", kind="permit")


@needs("semaphores", "rwlocks")
async def test_a_lock_a_semaphore_and_a_rwlock_of_one_name_do_not_meet(world: World) -> None:
    alice = world.actor()
    lock = await alice.acquire("api")
    permit = await taking(alice, 1, 1)
    writer = await alice.acquire(alice.client.rwlock("api").write())
    assert lock.held
    assert permit.held
    assert writer.held
    for lease in (permit, writer, lock):
        await alice.release(lease)


@needs("semaphores")
async def test_permits_that_are_dropped_are_released(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.drops(alice.client.semaphore("api", 1))
    assert (await taking(bob, 1, 1)).held


@needs("semaphores")
async def test_closing_a_client_releases_its_permits(world: World) -> None:
    alice, bob = world.actors(2)
    await taking(alice, 2)
    await world.colour.disconnect(alice.client)
    assert (await taking(bob, 3)).slots == (0, 1, 2)


@needs("semaphores")
async def test_observers_are_told_of_permits(world: World) -> None:
    recorder = Recorder()
    alice = world.actor(observers=[recorder])
    lease = await taking(alice, group="apis")
    await alice.release(lease)
    await auntil(lambda: recorder.kinds("api") == ["claimed", "granted", "released"])
    assert {event.group for event in recorder.of("api")} == {"apis"}


@needs("semaphores")
async def test_a_cancelled_waiter_for_permits_leaves_the_queue(tasks: World) -> None:
    alice, bob, carol = tasks.actors(3)
    await taking(alice)
    big = asyncio.ensure_future(bob.client.semaphore("api", 3).acquire(3))
    await tasks.queued("api", 1, **KIND)
    big.cancel()
    assert (await taking(carol, 2)).slots == (1, 2)


@needs("semaphores")
async def test_never_more_than_the_limit_under_load(world: World) -> None:
    actors = world.actors(8)
    inside: set[int] = set()
    most = 0

    async def work(actor: Any) -> None:
        nonlocal most
        for round in range(6):
            lease = await taking(actor, 1 + round % 2, wait=60)
            assert not inside & set(lease.slots)
            inside.update(lease.slots)
            most = max(most, len(inside))
            await asyncio.sleep(0)
            inside.difference_update(lease.slots)
            await actor.release(lease)

    await asyncio.gather(*map(work, actors))
    assert 1 <= most <= 3
    assert await world.inspect("api", **KIND) is None
