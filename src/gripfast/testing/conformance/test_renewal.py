"""Renewal, extension and max_hold: how long a lease lives."""

import gc
import logging
import time
from typing import Any

import pytest

from gripfast import ConfigurationError, GripfastError, LeaseLost
from gripfast.testing.colours import World
from gripfast.testing.waiting import auntil


async def test_renewal_keeps_leases_beyond_several_ttl(world: World) -> None:
    alice, bob = world.actors(2)
    leases = [await alice.acquire(f"job {n}", ttl=1) for n in range(20)]
    start = time.monotonic()

    async def nobody_got_in_beyond_two_ttl() -> bool:
        assert await bob.try_acquire("job 7") is None
        assert all(lease.held for lease in leases)
        return time.monotonic() - start > 2.1

    await auntil(nobody_got_in_beyond_two_ttl)


async def test_a_released_lease_is_not_renewed(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=0.1)
    await alice.release(lease)
    start = time.monotonic()

    async def stays_free_for_two_ttl() -> bool:
        assert await world.inspect("job") is None
        return time.monotonic() - start > 0.2

    await auntil(stays_free_for_two_ttl)
    assert not lease.held


async def test_the_ttl_of_a_lock_is_thirty_seconds_unless_set(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    assert lease.ttl == 30
    assert 25 < (await world.inspect("job")).expires_in <= 30


async def test_the_client_sets_the_ttl_of_its_locks(world: World) -> None:
    alice = world.actor(ttl=12)
    assert (await alice.acquire("job")).ttl == 12
    assert (await alice.acquire("other job", ttl=40)).ttl == 40


async def test_the_url_sets_the_ttl_of_its_clients_locks(world: World) -> None:
    alice = world.actor(world.connect(world.url_with("ttl=12")))
    assert (await alice.acquire("job")).ttl == 12


async def test_extending_to_a_longer_ttl_gives_more_time(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=5, renew=False)
    await alice.extend(lease, 60)
    # The time-out of a session may be settled for good when it begins; then the lease says so.
    assert lease.ttl == 60 or alice.client.capabilities.session
    assert lease.ttl * 0.8 < lease.remaining() <= lease.ttl
    assert lease.ttl * 0.8 < (await world.inspect("job")).expires_in <= lease.ttl


async def test_extending_to_a_shorter_ttl_leaves_less_time(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", ttl=60, renew=False)
    await alice.extend(lease, 0.1)
    assert lease.remaining() <= 0.1
    assert (await bob.acquire("job", wait=5)).held
    assert lease.lost.is_set()


async def test_extending_without_a_ttl_renews_for_the_ttl_it_has(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=5, renew=False)
    await auntil(lambda: lease.remaining() < 4.85)
    await alice.extend(lease)
    assert 4.85 < lease.remaining() <= 5


async def test_extending_by_a_bad_ttl_is_refused_and_changes_nothing(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=20)
    for ttl in (0, -1, float("nan"), 0.001, 90_000, "5"):
        with pytest.raises(ConfigurationError):
            await alice.extend(lease, ttl)
    assert lease.remaining() > 15
    assert (await world.inspect("job")).expires_in > 15


async def test_extending_a_released_lease_is_refused(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    await alice.release(lease)
    with pytest.raises(GripfastError):
        await alice.extend(lease, 30)
    assert await world.inspect("job") is None


async def test_a_released_lease_refuses_to_be_ensured(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    await alice.release(lease)
    with pytest.raises(GripfastError):
        lease.ensure_held()


async def test_max_hold_ends_the_lease_and_frees_the_lock(world: World) -> None:
    alice = world.actor()
    start = time.monotonic()
    told: list[str] = []
    lease = await alice.acquire("job", ttl=30, max_hold=0.15, on_lost=lambda lease, reason: told.append(reason))
    assert await alice.hears_of_loss(lease, 5) is True
    assert 0.14 < time.monotonic() - start < 1.5
    await world.free("job")
    with pytest.raises(LeaseLost) as caught:
        lease.ensure_held()
    assert caught.value.reason == "max_hold"
    await auntil(lambda: told)
    assert told == ["max_hold"]


async def test_max_hold_counts_renewed_time_too(world: World) -> None:
    alice = world.actor()
    start = time.monotonic()
    lease = await alice.acquire("job", ttl=0.3, max_hold=0.4)
    assert await alice.hears_of_loss(lease, 5) is True
    assert 0.39 < time.monotonic() - start < 2
    with pytest.raises(LeaseLost) as caught:
        await alice.release(lease)
    assert caught.value.reason == "max_hold"


async def test_validity_never_promises_more_than_max_hold(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=30, max_hold=1)
    assert lease.remaining() <= 1
    await alice.extend(lease, 30)
    assert lease.remaining() <= 1


async def test_a_release_before_max_hold_is_no_loss(world: World) -> None:
    alice = world.actor()
    told: list[str] = []
    lease = await alice.acquire("job", max_hold=0.1, on_lost=lambda lease, reason: told.append(reason))
    await alice.release(lease)
    await alice.hears_of_loss(await alice.acquire("job", max_hold=0.12))
    assert told == []
    assert not lease.lost.is_set()


async def test_a_lease_that_was_dropped_is_released_with_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    alice = world.actor()
    await alice.drops("job", ttl=30)
    gc.collect()
    await world.free("job")
    told = await auntil(lambda: [one for one in caplog.records if "'job' was dropped" in one.getMessage()])
    assert [(one.name, one.levelno) for one in told] == [("gripfast.lease", logging.WARNING)]


async def test_a_lease_inside_with_is_kept_although_nobody_names_it(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job", ttl=30)

    def enter() -> Any:
        with lock:
            gc.collect()
            return alice.client.inspect("job")

    async def enter_awaiting() -> Any:
        async with lock:
            gc.collect()
            return await alice.client.inspect("job")

    info = await alice.does({"blocking": enter, "asyncio": enter_awaiting}[alice.colour])
    assert info.name == "job"
    assert await world.inspect("job") is None


async def test_each_step_is_logged_below_one_logger(world: World, caplog: pytest.LogCaptureFixture) -> None:
    alice = world.actor()
    with caplog.at_level(logging.DEBUG, "gripfast"):
        await alice.release(await alice.acquire("job"))
    assert [record for record in caplog.records if record.name.startswith("gripfast") and "job" in record.getMessage()]
