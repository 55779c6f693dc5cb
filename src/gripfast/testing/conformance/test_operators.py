"""What operators see and do: inspect, list, force_release."""

import logging
import os
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gripfast import ConfigurationError, LeaseLost, LockInfo
from gripfast.testing.colours import World
from gripfast.testing.fixtures import needs, unless
from gripfast.testing.waiting import auntil

RENEWED_SOON = 0.3  # a ttl whose first renewal is due in 0.1 s


async def test_a_free_lock_has_nothing_to_inspect(world: World) -> None:
    alice = world.actor()
    assert await alice.inspect("job") is None
    await alice.release(await alice.acquire("job"))
    assert await alice.inspect("job") is None


async def test_a_held_lock_tells_all_about_its_holder(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=20, label="nightly import")
    info = await world.inspect("job")
    assert isinstance(info, LockInfo)
    assert (info.name, info.owner, info.token, info.label) == ("job", lease.owner, lease.token, "nightly import")
    assert (info.host, info.pid, info.waiters) == (socket.gethostname(), os.getpid(), 0)
    assert 15 < info.expires_in <= 20


async def test_a_held_lock_tells_since_when_in_utc(world: World) -> None:
    alice = world.actor()
    await alice.acquire("job")
    since = (await world.inspect("job")).since
    assert since.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - since) < timedelta(seconds=5)


async def test_renewal_does_not_change_since_when_a_lock_is_held(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=RENEWED_SOON)
    first = (await world.inspect("job")).since
    await alice.extend(lease)
    assert (await world.inspect("job")).since == first


async def test_an_expired_lease_has_nothing_to_inspect(world: World) -> None:
    alice = world.actor()
    await alice.acquire("job", ttl=0.05, renew=False)
    await world.free("job")


async def test_labels_come_back_as_they_were_given(world: World) -> None:
    alice = world.actor()
    for label in (None, "", "a label", "ünïcode ☃ \U0001f512", 'it\'s "quoted" %s {x}\nsecond line', "☃" * 1365):
        lease = await alice.acquire("job", label=label)
        assert (await world.inspect("job")).label == label
        await alice.release(lease)


@needs("lists")
async def test_an_empty_store_lists_nothing(world: World) -> None:
    alice = world.actor()
    assert await alice.listing() == []


@needs("lists")
@unless("session")  # where each lease has a connection of its own, nobody has so many
async def test_the_list_is_complete_over_many_pages(world: World) -> None:
    alice = world.actor()
    names = {f"page:{number}" for number in range(250)}
    leases = [await alice.acquire(name) for name in sorted(names | {"other", "pag", "page"})]
    listed = await world.actor().listing("page:")
    assert sorted(info.name for info in listed) == sorted(names)
    assert {info.token for info in listed} <= {lease.token for lease in leases}


@needs("lists")
async def test_the_list_shows_what_inspect_shows(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", label="nightly import")
    (info,) = await world.actor().listing()
    assert (info.name, info.owner, info.token, info.label) == ("job", lease.owner, lease.token, "nightly import")
    assert (info.host, info.pid, info.waiters) == (socket.gethostname(), os.getpid(), 0)


@needs("lists")
async def test_only_held_locks_are_listed(world: World) -> None:
    alice = world.actor()
    await alice.release(await alice.acquire("released"))
    await alice.acquire("expired", ttl=0.05, renew=False)
    await alice.acquire("held")
    await world.free("expired")
    assert [info.name for info in await alice.listing()] == ["held"]


@needs("lists")
async def test_a_prefix_is_taken_literally(world: World) -> None:
    alice = world.actor()
    prefixes = ["100%", "a_b", "[x", "*", "?", "it's", "Straße", "\\", "Job"]
    for name in (*(f"{prefix}1" for prefix in prefixes), "100 percent", "axb", "x", "its", "Strasse", "job1", "jo"):
        await alice.acquire(name)
    for prefix in prefixes:
        assert [info.name for info in await alice.listing(prefix)] == [f"{prefix}1"]


async def test_forcing_a_free_lock_says_that_nobody_held_it(world: World) -> None:
    alice = world.actor()
    assert await alice.force_release("job") is False
    await alice.release(await alice.acquire("job"))
    assert await alice.force_release("job") is False


async def test_forcing_a_held_lock_frees_it(world: World) -> None:
    alice, operator = world.actors(2)
    lease = await alice.acquire("job")
    assert await operator.force_release("job") is True
    assert await world.inspect("job") is None
    assert (await operator.acquire("job", wait=0)).token > lease.token


async def test_the_holder_learns_of_a_forced_release_at_its_next_renewal(world: World) -> None:
    alice, operator = world.actors(2)
    told: list[str] = []
    lease = await alice.acquire("job", ttl=RENEWED_SOON, on_lost=lambda lease, reason: told.append(reason))
    await operator.force_release("job")
    assert await alice.hears_of_loss(lease, 5) is True
    with pytest.raises(LeaseLost) as caught:
        lease.ensure_held()
    # In some engines a session is all that can be ended.
    reasons = ("broken", "session") if alice.client.capabilities.session else ("broken",)
    assert caught.value.reason in reasons
    await auntil(lambda: told)
    assert told == [caught.value.reason]
    assert await world.inspect("job") is None, "the renewal must not bring the lock back"


async def test_the_renewal_of_a_broken_lease_does_not_extend_the_next_holders(world: World) -> None:
    alice, operator = world.actors(2)
    lease = await alice.acquire("job", ttl=RENEWED_SOON)
    await operator.force_release("job")
    of_operator = await operator.acquire("job", ttl=20, renew=False)
    assert await alice.hears_of_loss(lease, 5) is True
    info = await world.inspect("job")
    assert info.owner == of_operator.owner
    assert of_operator.remaining() <= info.expires_in <= 20


async def test_extending_a_broken_lease_raises(world: World) -> None:
    alice, operator = world.actors(2)
    lease = await alice.acquire("job")
    await operator.force_release("job")
    with pytest.raises(LeaseLost) as caught:
        await alice.extend(lease)
    assert caught.value.reason in ("broken", "taken", "session")
    assert not lease.held


async def test_releasing_a_broken_lease_does_not_touch_the_next_holder(world: World) -> None:
    alice, operator = world.actors(2)
    lease = await alice.acquire("job", ttl=30)
    await operator.force_release("job")
    of_operator = await operator.acquire("job")
    with pytest.raises(LeaseLost):
        await alice.release(lease)
    assert (await world.inspect("job")).owner == of_operator.owner


WHY = "deploy of v2; ask ops"


@needs("tells_reason")
async def test_the_holder_is_told_the_reason_of_a_forced_release(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    alice, operator = world.actors(2)
    notes: list[str | None] = []
    lease = await alice.acquire("job", ttl=RENEWED_SOON, on_lost=lambda lease, _: notes.append(loss_of(lease).note))
    with caplog.at_level(logging.WARNING, "gripfast"):
        assert await operator.force_release("job", WHY) is True
        assert await alice.hears_of_loss(lease, 5) is True
    assert (loss_of(lease).reason, loss_of(lease).note) == ("broken", WHY)
    assert WHY in str(loss_of(lease))
    await auntil(lambda: notes)
    assert notes == [WHY]
    assert [text for record in caplog.records if WHY in (text := record.getMessage()) and "lost (broken)" in text]


@needs("tells_reason")
async def test_the_reason_is_told_although_a_waiter_has_got_the_lock(world: World) -> None:
    alice, bob, operator = world.actors(3)
    lease = await alice.acquire("job", ttl=20)
    waiting = bob.acquire("job")
    await world.queued("job", 1)
    await operator.force_release("job", WHY)
    of_bob = await waiting
    with pytest.raises(LeaseLost) as caught:
        await alice.extend(lease)
    assert caught.value.note == WHY
    await bob.release(of_bob)


@needs("tells_reason")
async def test_reasons_come_back_as_they_were_given(world: World) -> None:
    alice, operator = world.actors(2)
    for reason in ("ünïcode ☃ \U0001f512", 'it\'s "quoted" %s {x}\nsecond line\\', "\0\x1b[31m", "☃" * 341, " "):
        lease = await alice.acquire("job")
        await operator.force_release("job", reason)
        with pytest.raises(LeaseLost) as caught:
            await alice.release(lease)
        assert (caught.value.reason, caught.value.note) == ("broken", reason)
        assert str(caught.value).isprintable()


@needs("tells_reason")
async def test_a_reason_is_for_its_own_holder_alone(world: World) -> None:
    alice, bob, operator = world.actors(3)
    of_alice = await alice.acquire("job")
    await operator.force_release("job", WHY)
    of_bob = await bob.acquire("job")
    await operator.force_release("job", "")
    with pytest.raises(LeaseLost) as caught:
        await bob.release(of_bob)
    assert (caught.value.reason, caught.value.note) == ("broken", None)
    with pytest.raises(LeaseLost):
        await alice.release(of_alice)


@unless("tells_reason")
async def test_a_reason_that_can_not_be_told_does_no_harm(world: World) -> None:
    alice, operator = world.actors(2)
    lease = await alice.acquire("job", ttl=RENEWED_SOON)
    assert await operator.force_release("job", WHY) is True
    assert await alice.hears_of_loss(lease, 5) is True
    assert loss_of(lease).note is None


async def test_a_reason_that_is_too_long_or_no_text_is_refused(world: World) -> None:
    alice, operator = world.actors(2)
    lease = await alice.acquire("job")
    for reason in ("x" * 1025, "☃" * 342, "\ud800", 7, b"bytes"):
        with pytest.raises(ConfigurationError, match="a reason must"):
            await operator.force_release("job", reason)
    await alice.release(lease)


def loss_of(lease: Any) -> LeaseLost:
    with pytest.raises(LeaseLost) as caught:
        lease.ensure_held()
    return caught.value


async def test_a_forced_release_is_logged_as_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    alice, operator = world.actors(2)
    await alice.acquire("job")
    with caplog.at_level(logging.DEBUG, "gripfast"):
        await operator.force_release("job")
    warnings = [r for r in caplog.records if r.name.split(".")[0] == "gripfast" and r.levelno == logging.WARNING]
    assert [record for record in warnings if "job" in record.getMessage()]


async def test_clients_with_different_prefixes_do_not_meet(world: World) -> None:
    alice, bob = world.actor(prefix="one:"), world.actor(prefix="two:")
    await alice.acquire("job")
    assert (await bob.try_acquire("job")).held
    assert (await alice.inspect("job")).name == "job"
