"""Observers are told of every claim from its beginning to its one end, whatever the store."""

import asyncio
import gc
from typing import Any

import pytest

import gripfast
from gripfast.testing.colours import World
from gripfast.testing.observing import Recorder, broken_stories
from gripfast.testing.waiting import auntil


@pytest.fixture
def seen() -> Recorder:
    return Recorder()


async def test_a_lease_is_told_from_its_claim_to_its_release(world: World, seen: Recorder) -> None:
    alice = world.actor(observers=[seen])
    lease = await alice.acquire("job", group="jobs")
    await alice.release(lease)
    await auntil(lambda: seen.kinds("job") == ["claimed", "granted", "released"])
    claimed, granted, released = (event for event in seen.of("job") if event.kind != "renewed")
    assert {event.owner for event in seen.of("job")} == {lease.owner}
    assert {event.group for event in seen.of("job")} == {"jobs"}
    assert {event.store for event in seen.of("job")} == {alice.client.where}
    assert (claimed.token, granted.token, released.token) == (None, lease.token, lease.token)
    assert (granted.waited, released.held) == (granted.at - claimed.at, released.at - granted.at)
    assert granted.ttl == lease.ttl
    assert released.reason is None


async def test_a_claim_that_waits_in_vain_is_refused(world: World, seen: Recorder) -> None:
    alice = world.actor()
    bob = world.actor(observers=[seen])
    await alice.acquire("job")
    assert await bob.try_acquire("job") is None
    with pytest.raises(gripfast.LockTimeout):
        await bob.acquire("job", wait=0.1)
    await auntil(lambda: seen.kinds("job") == ["claimed", "refused"] * 2)
    assert [event.reason for event in seen.of("job", "refused")] == ["taken", "taken"]
    assert seen.of("job", "refused")[1].waited >= 0.1


async def test_a_grant_tells_how_long_it_was_waited_for(world: World, seen: Recorder) -> None:
    alice = world.actor()
    bob = world.actor(observers=[seen])
    lease = await alice.acquire("job")
    waiting = bob.acquire("job")
    await world.queued("job", 1)
    await auntil(lambda: seen.kinds("job") == ["claimed"])
    await alice.release(lease)
    await waiting
    await auntil(lambda: seen.kinds("job") == ["claimed", "granted"])
    (granted,) = seen.of("job", "granted")
    assert granted.waited > 0.0
    assert granted.held == 0.0


async def test_a_renewal_tells_how_much_time_was_left(world: World, seen: Recorder) -> None:
    alice = world.actor(observers=[seen])
    lease = await alice.acquire("job", ttl=1)
    await auntil(lambda: seen.of("job", "renewed"))
    renewed = seen.of("job", "renewed")[0]
    assert 0.0 < renewed.margin < lease.ttl
    assert renewed.held > 0.0
    assert lease.held


async def test_a_loss_tells_its_reason(world: World, seen: Recorder) -> None:
    alice = world.actor(observers=[seen])
    lease = await alice.acquire("job", max_hold=0.1)
    await auntil(lambda: seen.kinds("job") == ["claimed", "granted", "lost"])
    with pytest.raises(gripfast.LeaseLost):
        await alice.release(lease)
    (lost,) = seen.of("job", "lost")
    assert (lost.reason, lost.token) == ("max_hold", lease.token)
    assert lost.held >= 0.1
    await world.colour.disconnect(alice.client)
    assert broken_stories(seen.events) == []


async def test_a_lease_that_was_released_by_force_is_told_as_lost_once(world: World, seen: Recorder) -> None:
    alice = world.actor(observers=[seen])
    lease = await alice.acquire("job", ttl=1)
    assert await world.actor().force_release("job")
    await auntil(lease.lost.is_set)
    with pytest.raises(gripfast.LeaseLost) as caught:
        await alice.release(lease)
    await auntil(lambda: seen.of("job", "lost"))
    assert [event.reason for event in seen.of("job", "lost")] == [caught.value.reason]
    await world.colour.disconnect(alice.client)
    assert broken_stories(seen.events) == []


async def test_a_lease_that_nobody_keeps_is_told_as_dropped(world: World, seen: Recorder) -> None:
    alice = world.actor(observers=[seen])
    await alice.drops("job", ttl=30)
    gc.collect()
    await auntil(lambda: seen.kinds("job") == ["claimed", "granted", "released"])
    assert seen.of("job", "released")[0].reason == "dropped"


async def test_closing_a_client_ends_what_it_holds_and_waits_for(world: World, seen: Recorder) -> None:
    alice = world.actor()
    bob, carol = world.actors(2, world.connect(observers=[seen]))
    await alice.acquire("job")
    await bob.acquire("other job")
    waiting = carol.acquire("job", wait=5)
    await world.queued("job", 1)
    await world.colour.disconnect(bob.client)
    with pytest.raises(gripfast.GripfastError):
        await asyncio.wait_for(waiting, 5)
    assert seen.kinds("job") == ["claimed", "refused"]
    assert seen.kinds("other job") == ["claimed", "granted", "released"]
    assert {event.reason for event in seen.events if event.kind in ("refused", "released")} == {"closed"}


async def test_the_group_of_a_decorated_function_is_the_template_of_its_name(world: World, seen: Recorder) -> None:
    alice = world.actor(observers=[seen])

    def report(user_id: int) -> None: ...

    def decorated(**settings: Any) -> Any:
        return alice.client.locked("report:{user_id}", **settings)(world.colour.function(report))

    await alice.calls(decorated(), 7)
    await auntil(lambda: seen.kinds("report:7") == ["claimed", "granted", "released"])
    assert {event.group for event in seen.of("report:7")} == {"report:{user_id}"}
    await alice.calls(decorated(group="reports"), 8)
    await auntil(lambda: seen.kinds("report:8") == ["claimed", "granted", "released"])
    assert {event.group for event in seen.of("report:8")} == {"reports"}


async def test_re_entry_is_no_claim(world: World, seen: Recorder) -> None:
    alice = world.actor(observers=[seen])
    lock = alice.lock("job", reentrant=True)
    outer = await alice.acquire(lock)
    await alice.release(await alice.acquire(lock))
    await alice.release(outer)
    await auntil(lambda: seen.kinds("job") == ["claimed", "granted", "released"])
