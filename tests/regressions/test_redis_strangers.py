"""Servers that follow a primary and are never promoted: none of them acknowledges instead of a replica."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import gripfast
from gripfast.stores.redis import followers
from gripfast.stores.redis.followers import Followers, Replicas
from regressions.redis_failing import Failing
from regressions.redis_stage import played
from support.colours import COLOURS, World
from support.ports import HOST
from support.redis_server import RedisServer
from support.waiting import auntil

TTL = 2.0
LEVEL = f"failover_grace=0.2&max_ttl={TTL:g}&replicas=1"
QUICK = ("--repl-diskless-sync-delay", "0")


@pytest.fixture
def failing() -> Iterator[Failing]:
    stage = Failing()
    yield stage
    stage.close()


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, failing: Failing) -> World:
    """Its clients stay with the old primary."""
    failing.url(LEVEL)
    return World(f"redis://{HOST}:{failing.primary.port}/0?{LEVEL}&request_timeout=4", COLOURS[request.param])


@contextlib.contextmanager
def stranger() -> Iterator[redis.Redis]:
    with RedisServer(*QUICK) as server, server.client() as client:
        yield client


async def followed_by(client: redis.Redis, count: int) -> None:
    await auntil(lambda: client.info("replication")["connected_slaves"] == count, within=20)


async def second_holder(world: World, failing: Failing, follower: redis.Redis) -> Any:
    """The replica is promoted, with a follower of its own, and grants the lock when its grace is over."""
    failing.of_replica.replicaof("NO", "ONE")
    follower.replicaof(HOST, failing.replica.port)
    await followed_by(failing.of_replica, 1)
    other = world.actor(target=f"redis://{HOST}:{failing.replica.port}/0?{LEVEL}")
    return await other.acquire("job", wait=None, ttl=TTL)


@played
async def test_one_that_attaches_while_it_is_waited_acknowledges_nothing(world: World, failing: Failing) -> None:
    actor = world.actor()
    await actor.release(await actor.acquire("warm", ttl=TTL))
    with stranger() as backup, stranger() as follower:
        failing.link.hold("replies")  # the replica is still listed
        second = await second_holder(world, failing, follower)
        claiming = actor.acquire("job", wait=0, ttl=TTL)
        await auntil(lambda: failing.of_primary.get("lock:job") is not None)
        backup.replicaof(HOST, failing.primary.port)
        with pytest.raises(gripfast.OutcomeUnknown, match="has made the change, but "):
            await claiming
        assert second.held


@played
async def test_one_that_took_the_place_of_a_replica_acknowledges_nothing(world: World, failing: Failing) -> None:
    actor = world.actor()
    lease = await actor.acquire("job", ttl=TTL)
    with stranger() as backup, stranger() as follower:
        failing.link.close()
        backup.replicaof(HOST, failing.primary.port)
        await followed_by(failing.of_primary, 1)
        second = await second_holder(world, failing, follower)
        assert not lease.held
        assert second.held
        message = rf"acknowledged by .*:\d+, and the earlier replicas are {HOST}:{failing.replica.port}: if"
        with pytest.raises(gripfast.OutcomeUnknown, match=message):
            await actor.acquire("other", wait=0, ttl=TTL)


@played
async def test_a_user_that_may_not_ask_for_the_role_is_told_so(world: World, failing: Failing) -> None:
    failing.of_primary.acl_setuser("default", enabled=True, nopass=True, commands=["-role"])
    with pytest.raises(gripfast.StoreUnavailable, match="does not let this user do that"):
        await world.actor().acquire("job", wait=0, ttl=TTL)


# The decision itself --------------------------------------------------------------------------------------------------


def role(offset: int, **acknowledged: int) -> list[Any]:
    return [b"master", offset, [[host.encode(), b"6379", b"%d" % each] for host, each in acknowledged.items()]]


def listed(*hosts: str, never: str = "") -> Followers:
    """All of these must acknowledge. `never`: promoted."""
    addresses = {host: f"{host}:6379".encode() for host in hosts}
    found = Followers(len(hosts))
    promotable = frozenset(address for host, address in addresses.items() if host != never)
    found.take(Replicas(promotable, frozenset(addresses.values())))
    return found


@pytest.mark.parametrize(
    ("before", "after", "doubt"),
    [
        (role(7, a=3, b=3), role(9, a=7, b=8), None),
        (role(7, a=3, b=3), role(9, b=7, a=9), None),
        (role(7, a=3), role(9, a=7, b=8), None),
        (role(7, a=3, b=3), role(9, a=7, b=6), "1 of 2 replicas have acknowledged"),
        (role(7, a=3, b=3), role(9, a=7), "1 of 2 replicas have acknowledged"),
        (role(7, a=3, b=3), role(9, a=7, b=8, c=8), "3 servers follow it"),
        (role(7, a=3, b=3), role(9, a=7, c=8), "c:6379, and the listed replicas that may be promoted are a:6379, b"),
        (role(7, a=3, b=3), [b"slave", b"a", 6379, b"connected", 9], "was demoted"),
    ],
)
def test_all_that_are_listed_and_nobody_else_must_have_acknowledged(before: Any, after: Any, doubt: str | None) -> None:
    found = listed("a", "b").doubt(before, 2, after)
    assert found == doubt or (doubt is not None and doubt in str(found))


def test_one_that_is_never_promoted_may_be_listed() -> None:
    assert listed("a", "b", never="b").doubt(role(7, a=3, b=3), 2, role(9, a=7, b=8)) is None


def test_who_came_back_is_there_twice_for_a_while() -> None:
    twice = [b"master", 9, [[b"a", b"6379", b"3"], [b"a", b"6379", b"8"]]]
    assert listed("a").doubt(role(7, a=3), 1, twice) is None


def test_where_nobody_lists_them_those_that_were_seen_first_count_until_there_is_another_primary() -> None:
    found = Followers(1)
    found.belong_to(b"one")
    assert "the earlier replicas are" in str(found.doubt(role(7, a=3), 1, role(9, b=8)))
    assert found.doubt(role(7, a=3), 1, role(9, a=8)) is None
    assert "the earlier replicas are" in str(found.doubt(role(10, b=3), 1, role(11, b=11)))
    found.belong_to(b"one")
    assert "the earlier replicas are" in str(found.doubt(role(10, b=3), 1, role(11, b=11)))
    found.belong_to(b"another")
    assert found.doubt(role(10, b=3), 1, role(11, b=11)) is None


def test_an_error_instead_of_an_acknowledgement_is_a_doubt() -> None:
    assert listed("a").doubt(role(7, a=3), redis.ResponseError("UNBLOCKED"), role(9, a=8)) is not None
    assert followers.read_role(redis.ResponseError("NOPERM")) is None
