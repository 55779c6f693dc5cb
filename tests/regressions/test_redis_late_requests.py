"""Requests that are held up in the network, given up for lost, asked again elsewhere, and then arrive after all."""

import pytest
import redis

from gripfast import LockTimeout, OutcomeUnknown
from gripfast.stores.redis import keys, scripts
from regressions.redis_stage import arrive, hold_up, played
from support.colours import COLOURS, World
from support.lanes import Lanes
from support.waiting import auntil

TIMEOUT = 0.3
LINE = keys.side_key(b"lock:job", b"line")


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, lanes: Lanes) -> World:
    return World(lanes.url(socket_timeout=TIMEOUT), COLOURS[request.param])


# A lease keeps its time -----------------------------------------------------------------------------------------------


@played
async def test_a_late_claim_does_not_shorten_the_lease(world: World, lanes: Lanes, admin: "redis.Redis") -> None:
    alice = world.actor()
    late = await hold_up(alice, lanes)
    lease = await alice.acquire("job", ttl=2)  # granted on another connection
    await alice.extend(lease, 60)
    await arrive(late)
    assert admin.pttl("lock:job") > 50_000


@played
async def test_a_late_renewal_does_not_shorten_the_lease(world: World, lanes: Lanes, admin: "redis.Redis") -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=5)
    late = await hold_up(alice, lanes)
    with pytest.raises(OutcomeUnknown):
        await alice.extend(lease)
    await alice.extend(lease, 60)
    await arrive(late)
    assert admin.pttl("lock:job") > 50_000


@played
async def test_an_unanswered_wish_to_shorten_may_still_come_true(
    world: World, lanes: Lanes, admin: "redis.Redis"
) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    late = await hold_up(alice, lanes)
    with pytest.raises(OutcomeUnknown):
        await alice.extend(lease, 6)
    await alice.extend(lease, 60)
    assert 0 < lease.remaining() < 6
    await arrive(late)
    await alice.extend(lease, 60)
    assert 0 < lease.remaining() < 6  # nobody knows that it has come


# Nothing is left behind -----------------------------------------------------------------------------------------------


@played
async def test_a_late_claim_of_a_lease_that_is_over_is_given_back(
    world: World, lanes: Lanes, admin: "redis.Redis"
) -> None:
    """Also by a server that does not know the script of the clean-up: nobody is there to send it once more."""
    alice = world.actor()
    late = await hold_up(alice, lanes)
    await alice.release(await alice.acquire("job"))
    assert admin.script_exists(scripts.CLAIM.sha, scripts.ABANDON.sha) == [True, False]
    await arrive(late)
    await auntil(lambda: admin.get("lock:job") is None)


@played
async def test_a_late_claim_of_someone_who_was_refused_is_given_back(
    world: World, lanes: Lanes, admin: "redis.Redis"
) -> None:
    alice = world.actor()
    late = await hold_up(alice, lanes)
    admin.set("lock:job", "someone", px=60_000)
    assert await alice.try_acquire("job") is None  # as another connection says
    admin.delete("lock:job")
    await arrive(late)
    await auntil(lambda: admin.get("lock:job") is None)


@played
async def test_a_late_claim_of_someone_who_has_given_up_waiting_is_no_place_in_line(
    world: World, lanes: Lanes, admin: "redis.Redis"
) -> None:
    alice = world.actor()
    admin.set("lock:job", "someone", px=60_000)
    waiting = alice.acquire("job", wait=1.0, ttl=0.6)
    await auntil(lambda: admin.zcard(LINE) == 1)
    late = lanes.that_said(scripts.CLAIM.sha.encode())
    for lane in late:
        lane.hold()
    with pytest.raises(LockTimeout):
        await waiting
    assert admin.zcard(LINE) == 0
    await arrive(late)
    await auntil(lambda: admin.zcard(LINE) == 0)


@played
async def test_a_late_claim_of_a_lease_that_is_held_is_not_given_back(
    world: World, lanes: Lanes, admin: "redis.Redis"
) -> None:
    """Even if the one that was granted had to be sent twice, because the server had forgotten the script."""
    alice = world.actor()
    late = await hold_up(alice, lanes)
    admin.script_flush()
    lease = await alice.try_acquire("job")
    await arrive(late)
    await alice.extend(lease)


@played
async def test_a_lease_is_not_lost_by_giving_back_its_own_late_claim(
    world: World, lanes: Lanes, admin: "redis.Redis"
) -> None:
    """Its release has to be sent twice, because the server has forgotten the script; the clean-up must not pass it."""
    alice = world.actor()
    late = await hold_up(alice, lanes)
    lease = await alice.acquire("job")
    await arrive(late)
    admin.script_flush()
    await alice.release(lease)
    await auntil(lambda: admin.get("lock:job") is None)
