"""Nothing is believed that the replicas have not acknowledged, and nothing else waits for them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

import gripfast
from gripfast.core import rules
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.redis import followers, grace
from gripfast.stores.redis.failover import Failover
from gripfast.stores.redis.followers import Replicas
from gripfast.testing.colours import renewal_of
from regressions.redis_failing import Failing
from regressions.redis_stage import played
from support.colours import COLOURS, World
from support.ports import HOST
from support.redis_server import RedisServer
from support.waiting import auntil

TTL = 3.0
LEVEL = f"failover_grace=0.5&max_ttl={TTL:g}&replicas=1"


@pytest.fixture
def failing() -> Iterator[Failing]:
    stage = Failing()
    yield stage
    stage.close()


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, failing: Failing) -> World:
    return World(failing.url(LEVEL) + "&request_timeout=1&connect_patience=1", COLOURS[request.param])


def listed(failing: Failing, count: int) -> Replicas:
    """The replica, and more that there are not."""
    names = frozenset(f"{HOST}:{port}".encode() for port in (failing.replica.port, *range(1, count)))
    return Replicas(names, names)


def cut_off(failing: Failing) -> None:
    """The replica stays connected, and gets nothing any more."""
    failing.link.hold("replies")


@played
async def test_a_lock_lives_its_life_with_acknowledgements(world: World, failing: Failing) -> None:
    actor, other = world.actors(2)
    lease = await actor.acquire("job", ttl=TTL)
    assert failing.of_replica.get("lock:job") == lease.owner.encode()
    await auntil(renewal_of(lease))
    assert await other.try_acquire("job", ttl=TTL) is None
    await actor.extend(lease)
    await actor.release(lease)
    assert (await other.acquire("job", ttl=TTL)).token > lease.token


@played
async def test_a_grant_that_no_replica_has_is_not_believed_and_given_back(world: World, failing: Failing) -> None:
    actor = world.actor()
    await actor.release(await actor.acquire("job", ttl=TTL))
    cut_off(failing)
    with pytest.raises(gripfast.OutcomeUnknown, match="0 of 1 replicas have acknowledged"):
        await actor.acquire("job", wait=0.2, ttl=TTL)
    await auntil(lambda: failing.of_primary.get("lock:job") is None, within=2)
    failing.link.let_go()
    assert (await actor.acquire("job", wait=10, ttl=TTL)).held


@played
async def test_a_renewal_that_no_replica_has_is_not_believed(world: World, failing: Failing) -> None:
    """The server itself goes on renewing: only the client knows that it must not believe that."""
    actor = world.actor()
    lease = await actor.acquire("job", ttl=TTL)
    cut_off(failing)
    began = time.monotonic()
    assert await actor.hears_of_loss(lease)
    assert time.monotonic() - began < TTL + 0.3
    assert failing.of_primary.get("lock:job") is not None


@played
async def test_a_repeated_claim_writes_so_that_there_is_something_to_acknowledge(
    world: World, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = world.actor()
    lease = await actor.acquire("job", ttl=TTL)
    before = failing.of_primary.info("replication")["master_repl_offset"]
    await actor.extend(lease)
    await actor.extend(lease)
    cut_off(failing)
    with pytest.raises(gripfast.StoreUnavailable, match="have acknowledged"):
        await actor.extend(lease)
    assert failing.of_primary.info("replication")["master_repl_offset"] > before


@played
async def test_releases_and_inspections_do_not_wait_for_a_replica_that_is_down(world: World, failing: Failing) -> None:
    actor, *others = world.actors(3, world.connect())
    lease = await actor.acquire("job", ttl=TTL)
    cut_off(failing)
    stuck = [other.acquire(f"job of {number}", wait=0.5, ttl=TTL) for number, other in enumerate(others)]
    await auntil(lambda: failing.of_primary.get("lock:job of 1") is not None)
    assert (await actor.inspect("job")) is not None
    await actor.release(lease)
    assert not any(each.done() for each in stuck)
    for each in stuck:
        with pytest.raises(gripfast.StoreUnavailable):
            await each


@played
async def test_a_pushed_grant_is_confirmed_before_it_is_believed(world: World, failing: Failing) -> None:
    """The hand-over is written and published although the replica gets nothing."""
    holder, waiter = world.actors(2)
    lease = await holder.acquire("job", ttl=TTL)
    waiting = waiter.acquire("job", wait=3, ttl=TTL)
    await world.queued("job", 1)
    cut_off(failing)
    await holder.release(lease)
    with pytest.raises(gripfast.OutcomeUnknown, match="have acknowledged"):
        await waiting


@played
async def test_a_push_is_followed_by_an_acknowledged_claim(world: World, failing: Failing) -> None:
    holder, waiter = world.actors(2)
    lease = await holder.acquire("job", ttl=TTL)
    waiting = waiter.acquire("job", wait=None, ttl=TTL)
    await world.queued("job", 1)
    await holder.release(lease)
    granted = await waiting
    assert granted.held
    assert failing.of_replica.get("lock:job") == granted.owner.encode()


@played
async def test_permits_are_acknowledged_too(world: World, failing: Failing) -> None:
    actor = world.actor()
    lease = await actor.acquire(actor.client.semaphore("pool", 2, ttl=TTL))
    writer = await actor.acquire(actor.client.rwlock("index", ttl=TTL).write())
    await actor.does(writer.downgrade)
    await actor.release(writer)
    await auntil(renewal_of(lease))
    cut_off(failing)
    with pytest.raises(gripfast.OutcomeUnknown, match="have acknowledged"):
        await actor.acquire(actor.client.semaphore("pool", 2, ttl=TTL), wait=0.2)
    assert await actor.hears_of_loss(lease)


@played
async def test_done_is_recorded_only_when_it_is_acknowledged(world: World, failing: Failing) -> None:
    client = gripfast.connect(world.url)
    try:
        with client.once("digest", keep=60, ttl=TTL) as run:
            assert run
        assert str(failing.of_replica.get("lock:digest")).startswith("b'done:")
        with pytest.raises(gripfast.OutcomeUnknown), client.once("report", keep=60, ttl=TTL) as run:
            cut_off(failing)
    finally:
        client.close()


@played
async def test_nobody_is_told_done_before_it_is_acknowledged(world: World, failing: Failing) -> None:
    """A failover may forget it, and then the next one begins it again."""
    with gripfast.connect(world.url) as client:
        with pytest.raises(gripfast.OutcomeUnknown), client.once("digest", keep=60, ttl=TTL):
            cut_off(failing)
        assert str(failing.of_primary.get("lock:digest")).startswith("b'done:")
        with gripfast.connect(world.url) as other:
            with (
                pytest.raises(gripfast.OutcomeUnknown, match="have acknowledged"),
                other.once("digest", keep=60, ttl=TTL),
            ):
                pass
            failing.link.let_go()
            await auntil(lambda: str(failing.of_replica.get("lock:digest")).startswith("b'done:"), within=10)
            with other.once("digest", keep=60, ttl=TTL) as run:
                assert run.done


@played
async def test_a_follower_too_many_is_refused(world: World, failing: Failing) -> None:
    """A backup, say, which is never promoted, could acknowledge what the replica lacks."""
    actor = world.actor()
    lease = await actor.acquire("job", ttl=TTL)
    with RedisServer("--repl-diskless-sync-delay", "0") as backup, backup.client() as client:
        client.replicaof(HOST, failing.primary.port)
        # Until it has read the first copy, it counts as connected, and acknowledges nothing.
        await auntil(lambda: len(failing.of_primary.role()[2]) == 2, within=20)
        with pytest.raises(
            gripfast.StoreUnavailable, match=r"2 servers follow it \(.*\), and replicas=1: set replicas"
        ):
            await actor.acquire("other", wait=0.1, ttl=TTL)
        assert await actor.hears_of_loss(lease)


@played
async def test_fewer_than_may_be_promoted_are_refused_also_later(
    world: World, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grace, "LOOK_EVERY", 0.0)
    promotable: list[int | LinkDown | None] = [1]

    def count() -> Replicas | None:
        if isinstance(promotable[0], LinkDown):
            raise promotable[0]
        return None if promotable[0] is None else listed(failing, promotable[0])

    failover = Failover(TTL, 0.5, 1, count)
    monkeypatch.setattr("gripfast.stores.redis.factory.failover_of", lambda options: (options.clear(), failover)[1])
    actor = world.actor()
    lease = await actor.acquire("job", ttl=TTL)
    promotable[0] = 2
    with pytest.raises(gripfast.StoreUnavailable, match=r"has 2 replicas that may be promoted, and replicas=1"):
        await actor.acquire("other", wait=None, ttl=TTL)
    assert await actor.hears_of_loss(lease)
    promotable[0] = LinkDown(Fault(gripfast.StoreUnavailable("no Sentinel can be reached")))
    with pytest.raises(gripfast.StoreUnavailable, match="no Sentinel"):
        await actor.try_acquire("other", ttl=TTL)
    promotable[0] = 1
    assert (await actor.acquire("other", wait=5, ttl=TTL)).held


@played
async def test_nobody_slips_in_while_another_counts_what_may_be_promoted(
    world: World, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a while, because the Sentinels are slow. Whoever comes meanwhile has no right to an answer either."""
    counting = threading.Event()

    def count() -> Replicas:
        counting.set()
        threading.Event().wait(0.3)
        return listed(failing, 2)

    failover = Failover(TTL, 0.5, 1, count)
    monkeypatch.setattr("gripfast.stores.redis.factory.failover_of", lambda options: (options.clear(), failover)[1])
    first, second = world.actors(2, world.connect())
    for _ in range(2):
        counting.clear()
        asked = first.acquire("job", wait=0, ttl=TTL)
        await auntil(counting.is_set)
        for number in range(2):
            with pytest.raises(gripfast.StoreUnavailable, match=r"has 2 replicas that may be promoted"):
                await second.try_acquire(f"other {number}", ttl=TTL)
        with pytest.raises(gripfast.StoreUnavailable, match=r"has 2 replicas that may be promoted"):
            await asked


@played
async def test_a_limit_is_changed_only_when_that_is_acknowledged(world: World, failing: Failing) -> None:
    """Otherwise a failover forgets it, and the promoted replica grants more than its operator was told."""
    actor = world.actor()
    semaphore = actor.client.semaphore("pool", 3, ttl=TTL)
    await actor.release(await actor.acquire(semaphore))
    await actor.does(lambda: semaphore.resize(2))
    cut_off(failing)
    # A busy server answers WAIT later than the request's time-out, which says as little.
    with pytest.raises(gripfast.OutcomeUnknown, match=r"have acknowledged|did not answer"):
        await actor.does(lambda: semaphore.resize(1))


@played
async def test_the_promoted_replica_has_what_was_believed(world: World, failing: Failing) -> None:
    """The old primary is cut off with its holder and goes on, the replica is promoted: one of them is believed."""
    holder = world.actor(target=f"redis://{HOST}:{failing.primary.port}/0?{LEVEL}&request_timeout=1")
    other = world.actor()
    lease = await holder.acquire("job", ttl=TTL)
    cut_off(failing)
    failing.of_replica.replicaof("NO", "ONE")
    failing.address.lead_to((HOST, failing.replica.port))
    failing.address.cut()
    failing.link.close()
    with RedisServer("--repl-diskless-sync-delay", "0") as follower, follower.client() as client:
        client.replicaof(HOST, failing.replica.port)
        second = await other.acquire("job", wait=None, ttl=TTL)
        assert not lease.held
        assert second.held
    assert await holder.hears_of_loss(lease)


@played
async def test_many_tasks_share_a_wait(failing: Failing) -> None:
    url = failing.url(LEVEL)
    client = gripfast.connect_async(url)
    try:

        async def pair(number: int) -> None:
            async with client.lock(f"job {number}", ttl=TTL):
                pass

        await pair(0)
        failing.of_primary.config_resetstat()
        await asyncio.gather(*[pair(number) for number in range(200)])
        waits = failing.of_primary.info("commandstats")["cmdstat_wait"]["calls"]
        assert waits <= 20
    finally:
        await client.aclose()


def test_the_time_for_an_acknowledgement_is_below_that_of_the_request() -> None:
    _, wait, _ = followers.wait(2, rules.RENEWAL_LEAST)
    assert wait.startswith(b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n")
