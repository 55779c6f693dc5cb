"""A primary and its replica, and who believes what while they change places by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import redis

import gripfast
from gripfast.core.ports import Granted
from gripfast.stores.inboxes import BlockingInbox
from regressions.redis_stage import played
from support.colours import COLOURS, World
from support.lanes import Lanes
from support.redis_server import HOST, RedisServer
from support.waiting import auntil, until


class Pair:
    """Two servers: a primary, and another that follows it."""

    def __init__(self, primary: RedisServer, replica: RedisServer) -> None:
        self.primary, self.replica = primary, replica
        self.of_primary, self.of_replica = primary.client(), replica.client()

    def begin(self) -> None:
        """Empty, and the replica follows the primary."""
        self.of_primary.replicaof("NO", "ONE")
        self.of_primary.flushall()
        self.of_primary.script_flush()
        self._follow(self.of_replica, self.primary)

    def promote(self) -> None:
        """The replica has all that the primary has, and is on its own from now on; so is the primary."""
        assert self.of_primary.wait(1, 10_000) == 1
        self.of_replica.replicaof("NO", "ONE")

    def demote(self) -> None:
        """The former primary follows the former replica."""
        self._follow(self.of_primary, self.replica)

    def close(self) -> None:
        self.of_primary.close()
        self.of_replica.close()

    def _follow(self, follower: redis.Redis, server: RedisServer) -> None:
        follower.replicaof(HOST, server.port)
        until(lambda: follower.info("replication").get("master_link_status") == "up", within=30)


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    quick = ("--repl-diskless-sync-delay", "0")
    with RedisServer(*quick) as primary, RedisServer(*quick) as replica:
        pair = Pair(primary, replica)
        yield pair
        pair.close()


@pytest.fixture
def pair(servers: Pair) -> Pair:
    servers.begin()
    return servers


@pytest.fixture
def address(pair: Pair) -> Iterator[Lanes]:
    """It leads to the primary, until it is moved."""
    with Lanes(pair.primary.port) as lanes:
        yield lanes


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, pair: Pair) -> World:
    return World(pair.primary.url, COLOURS[request.param])


@pytest.fixture
def patient_waiters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter that is not told anything does not ask again while a test lasts."""
    monkeypatch.setattr("gripfast.core.rules.refresh_pace", lambda ttl: 9.0)


PLACES = "{lock:job}\0gripfast:places"


def waiters(admin: redis.Redis) -> int:
    return int(admin.hlen(PLACES))


def holder(admin: redis.Redis) -> Any:
    return admin.get("lock:job")


def channels(admin: redis.Redis) -> list[bytes]:
    """Those that somebody listens to there."""
    return cast(list[bytes], admin.pubsub_channels("gripfast:*"))


def force_release(server: RedisServer) -> None:
    with gripfast.connect(server.url) as operator:
        assert operator.force_release("job")


def owner_of(client: Any) -> str:
    """Of the only one who waits."""
    [owner] = client._store().inboxes._by_owner
    return str(owner)


# Nothing is published that could be taken back ------------------------------------------------------------------------


@played
async def test_a_waiter_left_at_a_demoted_server_is_not_told_what_the_new_primary_gives_to_another(
    world: World, pair: Pair, patient_waiters: None
) -> None:
    left_behind, next_one = world.actor(), world.actor(target=pair.replica.url)
    pair.of_primary.set("lock:job", "someone", px=60_000)
    waiting = left_behind.acquire("job", wait=60, ttl=60)
    await auntil(lambda: waiters(pair.of_primary) == 1)
    pair.promote()
    pair.demote()
    granted = next_one.acquire("job", wait=60, ttl=60)
    await auntil(lambda: waiters(pair.of_replica) == 2)
    with pair.of_primary.pubsub() as heard_below:
        heard_below.psubscribe("gripfast:*")
        assert heard_below.get_message(timeout=10)
        force_release(pair.replica)
        lease = await granted
        message = heard_below.get_message(timeout=10)
    assert message is not None
    assert message["data"].split()[0] == holder(pair.of_replica)  # the only one who was told
    assert lease.held
    assert not waiting.done()


@played
async def test_a_push_of_the_old_primary_does_not_count_once_the_new_one_has_answered(
    world: World, pair: Pair, address: Lanes
) -> None:
    """The old one is cut off from its replica, and goes on: it does not know that the address leads elsewhere."""
    waiter = world.actor(target=address.url())
    pair.of_primary.set("lock:job", "someone", px=60_000)
    waiting = waiter.acquire("job", wait=60, ttl=3)
    await auntil(lambda: waiters(pair.of_primary) == 1)
    pair.promote()
    address.lead_to(pair.replica.port)
    for lane in address.all():
        if b"SUBSCRIBE" not in lane.sent:
            lane.close()
    await auntil(lambda: channels(pair.of_replica) != [] and channels(pair.of_primary) == [])
    await auntil(lambda: channels(pair.of_replica)[0] in pair.of_replica.hvals(PLACES)[0])
    force_release(pair.primary)
    assert holder(pair.of_primary) is None  # the waiter does not listen there any more
    owner = owner_of(waiter.client)
    force_release(pair.replica)
    assert (await waiting).held
    assert holder(pair.of_replica) == owner.encode()


@played
async def test_a_push_from_elsewhere_is_no_grant(world: World, pair: Pair) -> None:
    """It may lie in the inbox already when the answer of another server arrives."""
    other, waiter = world.actors(2)
    lease = await other.acquire("job")
    waiting = waiter.acquire("job", ttl=1)
    await auntil(lambda: waiters(pair.of_primary) == 1)
    inboxes = waiter.client._store().inboxes
    assert inboxes.deliver(owner_of(waiter.client), Granted(lease.token + 1_000_000, 30.0, source=b"gripfast:other"))
    await auntil(lambda: is_empty(inboxes))
    assert not waiting.done()
    await other.release(lease)
    assert (await waiting).token > lease.token


def is_empty(inboxes: Any) -> bool:
    """All that was delivered is taken."""
    return not any(inbox._items if isinstance(inbox, BlockingInbox) else inbox._pushes for inbox in inboxes.all())


# The address leads to the new primary ---------------------------------------------------------------------------------


@played
async def test_after_a_switch_over_requests_reach_the_new_primary(world: World, pair: Pair, address: Lanes) -> None:
    """The connections to the old one are alive, and it answers all of them that it takes no writes."""
    actor = world.actor(target=address.url())
    lease = await actor.acquire("mine", ttl=60)
    pair.promote()
    pair.demote()
    address.lead_to(pair.replica.port)
    assert (await actor.acquire("job", wait=5)).held
    await actor.extend(lease)
    await actor.release(lease)
    assert pair.of_replica.get("lock:mine") is None
