"""A lease tells the truth: once its guarantee is over it says so, to whoever asks and to the one who waits."""

import asyncio
import logging
import threading
from typing import Any

import pytest

from gripfast import LeaseLost
from gripfast.testing.colours import World
from gripfast.testing.waiting import auntil

SHORT: dict[str, Any] = {"ttl": 0.06, "renew": False}


async def an_expired_lease(actor: Any, **settings: Any) -> Any:
    lease = await actor.acquire("job", **(SHORT | settings))
    await auntil(lease.lost.is_set, within=lease.ttl + 5)
    return lease


async def test_validity_is_never_more_than_the_ttl_without_the_drift(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=10)
    assert 0 < lease.remaining() <= lease.ttl * 0.99 - 0.002


async def test_validity_runs_down(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=10, renew=False)
    before = lease.remaining()
    await auntil(lambda: lease.remaining() < before - 0.01)


async def test_an_unrenewed_lease_is_someone_elses_after_its_ttl(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", **SHORT)
    await bob.acquire("job")
    assert not lease.held
    assert lease.remaining() == 0.0
    assert lease.lost.is_set()
    with pytest.raises(LeaseLost) as caught:
        lease.ensure_held()
    assert caught.value.reason == "expired"
    assert caught.value.name == "job"


async def test_a_valid_lease_is_held_and_not_lost(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    lease.ensure_held()
    assert lease.held
    assert not lease.lost.is_set()


async def test_who_waits_for_the_loss_hears_of_it(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", **SHORT)
    assert await alice.hears_of_loss(lease) is True
    assert lease.lost.is_set()


async def test_waiting_for_the_loss_of_a_lost_lease_returns_at_once(world: World) -> None:
    alice = world.actor()
    lease = await an_expired_lease(alice)
    assert await alice.hears_of_loss(lease, None) is True


async def test_waiting_for_the_loss_of_a_held_lease_times_out(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    assert await alice.hears_of_loss(lease, 0.05) is False


async def test_waiting_for_the_loss_ends_when_the_lease_is_released(world: World) -> None:
    alice = world.actor()
    onlooker = world.actor(alice.client)
    lease = await alice.acquire("job")
    listening = onlooker.hears_of_loss(lease, None)
    await alice.release(lease)
    assert await asyncio.wait_for(listening, 5) is False
    assert not lease.lost.is_set()


async def test_releasing_a_lost_lease_raises(world: World) -> None:
    alice = world.actor()
    lease = await an_expired_lease(alice)
    with pytest.raises(LeaseLost) as caught:
        await alice.release(lease)
    assert caught.value.reason == "expired"


async def test_releasing_a_lost_lease_does_not_touch_the_next_holder(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", **SHORT)
    of_bob = await bob.acquire("job")
    with pytest.raises(LeaseLost):
        await alice.release(lease)
    assert (await world.inspect("job")).owner == of_bob.owner


async def test_extending_a_lost_lease_raises_and_does_not_bring_it_back(world: World) -> None:
    alice = world.actor()
    lease = await an_expired_lease(alice)
    with pytest.raises(LeaseLost):
        await alice.extend(lease, 30)
    assert not lease.held
    await world.free("job")


async def test_leaving_with_on_a_lost_lease_raises(world: World) -> None:
    alice = world.actor()

    async def body(lease: Any) -> None:
        await auntil(lease.lost.is_set)

    with pytest.raises(LeaseLost) as caught:
        await alice.inside("job", body, **SHORT)
    assert caught.value.reason == "expired"


async def test_leaving_an_acquired_lease_raises_when_it_was_lost(world: World) -> None:
    alice = world.actor()

    async def body(lease: Any) -> None:
        await auntil(lease.lost.is_set)

    with pytest.raises(LeaseLost):
        await alice.inside_acquired("job", body, **SHORT)


async def test_the_bodys_own_error_comes_out_of_a_lost_lease(world: World) -> None:
    alice = world.actor()

    async def body(lease: Any) -> None:
        try:
            await auntil(lease.lost.is_set)
        finally:
            raise KeyError("the body's own")

    with pytest.raises(KeyError, match="the body's own"):
        await alice.inside("job", body, ttl=0.2, renew=False)
    assert (await alice.acquire("job")).held


async def test_on_lost_is_told_the_lease_and_the_reason_once(world: World) -> None:
    alice, bob = world.actors(2)
    told: list[tuple[Any, str]] = []
    lease = await alice.acquire("job", on_lost=lambda lease, reason: told.append((lease, reason)), **SHORT)
    await bob.acquire("job")
    with pytest.raises(LeaseLost):
        await alice.release(lease)
    await auntil(lambda: told)
    assert [(one.token, reason) for one, reason in told] == [(lease.token, "expired")]


async def test_on_lost_is_not_told_of_a_release(world: World) -> None:
    alice = world.actor()
    told: list[str] = []
    lease = await alice.acquire("job", on_lost=lambda lease, reason: told.append(reason), **SHORT)
    await alice.release(lease)
    await an_expired_lease(alice)  # a loss notice of the first lease would have come before
    assert told == []


async def test_an_error_in_on_lost_is_logged_and_nothing_more(world: World, caplog: pytest.LogCaptureFixture) -> None:
    alice = world.actor()

    def fails(lease: Any, reason: str) -> None:
        raise KeyError("the callback's own")

    with caplog.at_level(logging.WARNING, "gripfast"):
        await an_expired_lease(alice, on_lost=fails)
        await auntil(lambda: "the callback's own" in caplog.text)
    assert (await alice.acquire("job")).held


async def test_a_slow_callback_does_not_delay_anothers_notice(threads: World) -> None:
    alice = threads.actor()
    finish = threading.Event()
    slow = await alice.acquire("slow", on_lost=lambda lease, reason: finish.wait(10), **SHORT)
    other = await alice.acquire("other", **SHORT)
    try:
        assert await alice.hears_of_loss(slow, 5)
        assert await alice.hears_of_loss(other, 5)
        assert not finish.is_set()
    finally:
        finish.set()


async def test_a_loss_is_logged_as_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    alice = world.actor()
    with caplog.at_level(logging.DEBUG, "gripfast"):
        await alice.acquire("job", **SHORT)
        await auntil(lambda: warnings_about("job", caplog))


def warnings_about(name: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [r for r in caplog.records if r.name.split(".")[0] == "gripfast" and r.levelno == logging.WARNING]
    return [record.getMessage() for record in records if name in record.getMessage()]


async def test_a_lost_lease_stays_lost(world: World) -> None:
    alice = world.actor()
    lease = await an_expired_lease(alice)
    again = await alice.acquire("job")
    assert again.held
    assert not lease.held
    assert lease.lost.is_set()
