"""A replica is promoted that lacks what its primary had granted: who believes what, with and without a grace."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

import gripfast
from gripfast.cli.app import main
from gripfast.stores.redis import grace
from gripfast.stores.redis.keys import MARKER
from gripfast.testing.colours import renewal_of
from regressions.redis_failing import GRACE, LEVEL, TTL, Failing
from regressions.redis_stage import played
from support.colours import COLOURS, World
from support.ports import HOST
from support.waiting import auntil


@pytest.fixture
def failing() -> Iterator[Failing]:
    stage = Failing()
    yield stage
    stage.close()


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, failing: Failing) -> World:
    return World(failing.url(), COLOURS[request.param])


async def lost_with_its_primary(world: World, failing: Failing, url: str) -> Any:
    """A lease that the promoted replica does not know."""
    holder = world.actor(target=url)
    await holder.inspect("job")
    failing.link.hold("replies")
    lease = await holder.acquire("job", ttl=TTL)
    failing.fail()
    assert failing.of_replica.get("lock:job") is None
    return lease


@played
async def test_without_a_grace_the_promoted_replica_makes_a_second_holder(world: World, failing: Failing) -> None:
    url = failing.url("")
    lease = await lost_with_its_primary(world, failing, url)
    second = await world.actor(target=url).try_acquire("job", ttl=TTL)
    assert second.held
    assert lease.held


@played
async def test_in_its_grace_the_promoted_replica_makes_no_second_holder(world: World, failing: Failing) -> None:
    lease = await lost_with_its_primary(world, failing, world.url)
    promoted = time.monotonic()
    other = world.actor()
    with pytest.raises(gripfast.StoreUnavailable, match=r"grants no lock for another 1\.\d s.*promoted or restarted"):
        await other.try_acquire("job", ttl=TTL)
    with pytest.raises(gripfast.StoreUnavailable, match="grants no lock"):
        await other.acquire("job", wait=0.3, ttl=TTL)
    second = await other.acquire("job", wait=None, ttl=TTL)
    assert not lease.held
    assert time.monotonic() - promoted > GRACE - 0.1
    assert second.held


@played
async def test_a_wait_without_end_outlasts_the_patience_for_unreachable_servers(world: World, failing: Failing) -> None:
    patient = world.actor(connect_patience=0.2)
    await patient.release(await patient.acquire("job", ttl=TTL))
    failing.of_primary.delete(MARKER)
    failing.demote_and_promote()
    began = time.monotonic()
    assert (await patient.acquire("job", wait=None, ttl=TTL)).held
    assert time.monotonic() - began > GRACE - 0.1


@played
async def test_a_timed_wait_that_is_long_enough_waits_for_the_end_of_the_grace(world: World, failing: Failing) -> None:
    actor = world.actor()
    failing.demote_and_promote()
    assert (await actor.acquire("job", wait=10, ttl=TTL)).held


@played
async def test_a_server_that_was_demoted_and_promoted_again_is_another_one(world: World, failing: Failing) -> None:
    """Its run id is the same, and so are the connections."""
    actor = world.actor()
    await actor.release(await actor.acquire("job", ttl=TTL))
    run_id = failing.of_primary.info("server")["run_id"]
    failing.demote_and_promote()
    with pytest.raises(gripfast.StoreUnavailable, match="grants no lock"):
        await actor.try_acquire("job", ttl=TTL)
    assert failing.of_primary.info("server")["run_id"] == run_id


@played
async def test_in_grace_an_owner_renews_and_releases_and_nobody_is_handed_the_lock(
    world: World, failing: Failing
) -> None:
    holder, first, second = world.actors(3)
    lease = await holder.acquire("job", ttl=TTL)
    waiting = []
    for number, actor in enumerate((first, second), start=1):
        waiting.append(actor.acquire("job", wait=None, ttl=TTL))
        await world.queued("job", number)
    failing.demote_and_promote()
    changed = time.monotonic()
    await holder.extend(lease)
    assert lease.held
    await holder.release(lease)
    assert failing.of_primary.get("lock:job") is None
    assert failing.of_primary.zcard("{lock:job}\0gripfast:line") == 2
    granted = await waiting[0]
    assert time.monotonic() - changed > GRACE - 0.2
    assert not waiting[1].done()
    await first.release(granted)
    assert (await waiting[1]).token > granted.token


@played
async def test_the_clean_up_of_a_holder_hands_over_to_nobody_either(world: World, failing: Failing) -> None:
    holder, waiter = world.actors(2)
    lease = await holder.acquire("job", ttl=TTL)
    waiting = waiter.acquire("job", wait=None, ttl=TTL)
    await world.queued("job", 1)
    failing.demote_and_promote()
    with gripfast.connect(world.url) as operator:
        assert operator.force_release("job")
    assert failing.of_primary.get("lock:job") is None
    assert await holder.hears_of_loss(lease)
    assert (await waiting).held


@played
async def test_permits_are_not_granted_in_grace(world: World, failing: Failing) -> None:
    actor, other = world.actors(2)
    kept = await actor.acquire(actor.client.semaphore("pool", 2, ttl=TTL))
    failing.demote_and_promote()
    for kind in (other.client.semaphore("pool", 2, ttl=TTL), other.client.rwlock("index", ttl=TTL).read()):
        with pytest.raises(gripfast.StoreUnavailable, match="grants no lock"):
            await other.try_acquire(kind)
    waiting = other.acquire(other.client.semaphore("pool", 2, ttl=TTL), wait=None)
    await world.queued("pool", 1, kind="semaphore")
    await actor.extend(kept)
    await actor.release(kept)
    assert not waiting.done()
    assert (await waiting).slots == (0,)


@played
async def test_nothing_is_adopted_in_grace(world: World, failing: Failing) -> None:
    actor, other = world.actors(2)
    lease = await actor.acquire("job", ttl=TTL)
    text = await actor.does(lambda: lease.detach(ttl=TTL))
    failing.demote_and_promote()
    with pytest.raises(gripfast.StoreUnavailable, match="grants no lock"):
        await other.does(lambda: other.client.adopt(text, ttl=TTL))


# The marker -----------------------------------------------------------------------------------------------------------


@played
async def test_a_lost_marker_begins_a_grace_and_is_logged_once(
    world: World, failing: Failing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(grace, "LOOK_EVERY", 0.0)
    actor = world.actor()
    await actor.release(await actor.acquire("job", ttl=TTL))
    failing.of_primary.delete(MARKER)
    with caplog.at_level(logging.WARNING, "gripfast.connection"):
        for _ in range(3):
            with pytest.raises(gripfast.StoreUnavailable, match="it had no marker"):
                await actor.try_acquire("job", ttl=TTL)
    told = [record for record in caplog.records if "grants no lock" in record.message]
    assert len(told) == 1
    assert "gripfast init" in told[0].message


@played
async def test_a_ttl_above_the_one_in_force_is_refused_until_it_is_raised(
    world: World, failing: Failing, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grace, "LOOK_EVERY", 0.0)
    larger = f"redis://{HOST}:{failing.primary.port}/0?failover_grace=0.5&max_ttl=5"
    actor = world.actor(target=larger)
    with pytest.raises(gripfast.ConfigurationError, match=r"a ttl of 4 s .* in force .*, 1 s: .* init URL --max-ttl 4"):
        await actor.try_acquire("job", ttl=4)
    assert main(["init", larger, "--max-ttl", "5s"]) == 0
    assert capsys.readouterr().out == "prepared: locks are granted at once, with a ttl of at most 5 s\n"
    lease = await actor.try_acquire("job", ttl=4)
    assert lease.held
    assert str(failing.of_primary.get(MARKER)).endswith(" 0 5000'")


@played
async def test_no_lease_is_extended_beyond_the_ttl_in_force(world: World, failing: Failing) -> None:
    """The next primary would grant the lock before such a lease is over. Other leases are renewed as ever."""
    larger = f"redis://{HOST}:{failing.address.port}/0?failover_grace=0.5&max_ttl=30"
    holder = world.actor(target=larger)
    others = await holder.acquire("other", ttl=TTL)
    lease = await holder.acquire("job", ttl=TTL)
    with pytest.raises(gripfast.StoreUnavailable, match=r"a ttl of 20 s .* in force .*, 1 s"):
        await holder.extend(lease, 20)
    await auntil(renewal_of(others))
    failing.fail()
    second = await world.actor().acquire("job", wait=None, ttl=TTL)
    assert second.held
    assert not lease.held


def test_init_needs_no_longer_than_a_request_may_take(failing: Failing, capsys: pytest.CaptureFixture[str]) -> None:
    url = failing.url() + "&request_timeout=0.8"
    assert main(["init", url]) == 0, capsys.readouterr().err


def test_init_ends_no_grace_after_a_failover_unless_it_is_told_to(
    failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the promoted replica lacks is not in its list: that nothing is held there says nothing."""
    url = failing.url("failover_grace=5&max_ttl=10")
    with gripfast.connect(url) as client, gripfast.connect(url) as other:
        client.inspect("job")
        failing.link.hold("replies")
        lease = client.lock("job", ttl=10).acquire()
        failing.fail()
        for _ in range(2):
            assert main(["init", url, "--max-ttl", "10s"]) == 1
            assert "grants no lock for another 1" in capsys.readouterr().err
            with pytest.raises(gripfast.StoreUnavailable, match="grants no lock"):
                other.lock("job", ttl=9).try_acquire()
        assert lease.held
        assert main(["init", url, "--yes"]) == 0
        assert other.lock("job", ttl=9).try_acquire() is not None


def test_init_changes_nothing_where_locks_are_held(failing: Failing) -> None:
    url = failing.url()
    with gripfast.connect(url) as client, client.lock("job", ttl=TTL):
        before = failing.of_primary.get(MARKER)
        assert main(["init", url, "--max-ttl", "1h"]) == 1
        assert failing.of_primary.get(MARKER) == before


def test_a_client_without_grace_needs_no_init(failing: Failing, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", failing.primary.url]) == 64
    assert "failover_grace" in capsys.readouterr().err


@played
async def test_where_info_is_not_allowed_the_level_is_refused(world: World, failing: Failing) -> None:
    failing.of_primary.acl_setuser(
        "blind", enabled=True, passwords=["+x"], keys=["*"], channels=["*"], categories=["+@all"], commands=["-info"]
    )
    actor = world.actor(target=f"redis://blind:x@{HOST}:{failing.primary.port}/0?{LEVEL}")
    began = time.monotonic()
    with pytest.raises(gripfast.StoreUnavailable, match=r"can't be used with failover_grace: scripts need INFO"):
        await actor.acquire("job", wait=None, ttl=TTL)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("max_ttl=5", "max_ttl is for failover_grace only"),
        ("replicas=1", "replicas is for failover_grace only"),
        ("failover_grace=soon", "failover_grace must be a duration"),
        ("failover_grace=15&replicas=-1", "replicas must be a whole number"),
        ("failover_grace=15&max_ttl=0", "max_ttl"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_sent(options: str, message: str) -> None:
    with pytest.raises(gripfast.ConfigurationError, match=message):
        gripfast.connect(f"redis://localhost/0?{options}")


def test_off_is_off() -> None:
    with gripfast.connect("redis://localhost/0?failover_grace=off") as client:
        assert client.lock("job", ttl=3600) is not None
