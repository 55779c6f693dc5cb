"""Slots that leave a node in its grace, and nodes that look new because they were promoted: no lock comes early."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis.exceptions

import gripfast
from gripfast.cli import codes
from gripfast.cli.app import main
from gripfast.stores.cluster.stamps import Stamps
from gripfast.stores.redis import keys
from support.both_colours import both_colours, outcome, staged
from support.cluster_servers import Cluster
from support.redis_server import HOST, RedisServer
from support.waiting import auntil, until

TTL = 8.0
GRACE = {"max_ttl": f"{TTL:g}", "failover_grace": 1}
SOON = 2.0
"""Seconds after which a slot that has moved grants again."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(max_ttl=TTL) as cluster:
        yield cluster


class Place:
    """A slot with names of its own, at a primary that dies."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.tag = uuid.uuid4().hex
        self.slot = keys.slot(self.tag.encode())
        self.old = cluster.owner(self.slot)
        self.promoted = cluster.replica_of(self.old)
        self.other = next(server for server in cluster.primaries() if server is not self.old)
        self.url = cluster.url(prefix=f"{{{self.tag}}}:", **GRACE)

    async def fails(self) -> None:
        """What is in the slot dies with its primary, but for its stamp."""
        await asyncio.to_thread(self._fail)

    def _fail(self) -> None:
        self.old.kill()
        until(lambda: self._is_promoted() and self.cluster.is_healthy(), within=30)
        for key in self.cluster.keys_in(self.slot, self.promoted, 100):
            if not key.endswith(b"stamp"):
                self.cluster.client(self.promoted).delete(key)

    def _is_promoted(self) -> bool:
        with suppress(redis.exceptions.ConnectionError):
            role = self.cluster.client(self.promoted).role()[0]
            return role == "master" and self.cluster._view(self.promoted) is not None
        return False

    async def moves(self, source: RedisServer, target: RedisServer) -> None:
        """Without a word to the node that may be dead."""
        await asyncio.to_thread(self._move, source, target)

    def _move(self, source: RedisServer, target: RedisServer) -> None:
        self.cluster.begin_move(self.slot, source, target)
        if found := self.cluster.keys_in(self.slot, source, 1000):
            self.cluster.move_keys(source, target, found)
        self.cluster.end_move(self.slot, source, target)

    def stamp(self, server: RedisServer) -> object:
        return self.cluster.client(server).get(keys.stamp_of(self.slot))


@pytest.fixture
def place(cluster: Cluster) -> Place:
    return Place(cluster)


CLAIMS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "lock": lambda actor: actor.try_acquire("job", ttl=TTL),
    "semaphore": lambda actor: actor.try_acquire(actor.client.semaphore("pool", 2, ttl=TTL)),
    "reader": lambda actor: actor.try_acquire(actor.client.rwlock("index", ttl=TTL).read()),
}


@staged
async def test_a_slot_that_leaves_a_node_in_its_grace_grants_nothing_until_that_is_over(place: Place) -> None:
    async with both_colours(place.url) as actors:
        for actor in actors:
            await actor.release(await actor.acquire("job", ttl=TTL))
        lease = await actors[0].acquire("job", ttl=TTL)
        await place.fails()
        await place.moves(place.promoted, place.other)
        moved = time.monotonic()
        for actor in actors:
            for kind, claim in CLAIMS.items():
                told = await outcome(claim(actor))
                assert "grants no lock for another" in str(told.error), (kind, told)
                assert "promoted" in str(told.error)
        second = await actors[1].acquire("job", wait=None, ttl=TTL)
        assert time.monotonic() - moved > TTL / 2
        assert not lease.held
        assert second.held


@staged
async def test_what_is_released_there_is_handed_to_nobody_and_what_is_detached_is_not_adopted(place: Place) -> None:
    async with both_colours(place.url) as (holder, waiter):
        held = await holder.acquire("job", ttl=TTL, renew=False)
        detached = await holder.acquire("ship", ttl=TTL)
        text = await holder.does(detached.detach)
        waiting = waiter.acquire("job", wait=None, ttl=TTL)
        await auntil(
            lambda: place.cluster.client(place.old).zcard(f"{{{place.tag}}}\0gripfast:line:{{{place.tag}}}:job")
        )
        await place.moves(place.old, place.other)
        place.cluster.client(place.other).set(keys.stamp_of(place.slot), "another node")
        blind = pytest.MonkeyPatch()
        blind.setattr(Stamps, "certify", _never)
        try:
            await holder.release(held)
            with pytest.raises(gripfast.StoreUnavailable, match="whether it may grant locks of a slot"):
                await holder.does(lambda: holder.client.adopt(text))
            assert place.cluster.client(place.other).get(f"{{{place.tag}}}:job") is None
            assert not waiting.done()
        finally:
            blind.undo()
        assert (await waiting).held


async def _never(*_: object) -> Any:
    from gripfast.core.ports import unreachable

    return unreachable(gripfast.StoreUnavailable("does not know whether it may grant locks of a slot"))


@staged
async def test_a_slot_that_moves_between_healthy_nodes_grants_again_at_once(place: Place) -> None:
    async with both_colours(place.url) as actors:
        for actor in actors:
            await actor.release(await actor.acquire("job", ttl=TTL))
        first = place.stamp(place.old)
        await place.moves(place.old, place.other)
        assert place.stamp(place.other) == first
        for actor in actors:
            told = await outcome(actor.acquire("job", wait=5, ttl=TTL))
            assert told.error is None
            assert told.seconds < SOON
            await actor.release(told.result)
        assert place.stamp(place.other) not in (None, first)


@staged
async def test_a_stamp_that_is_lost_costs_a_few_requests(place: Place) -> None:
    async with both_colours(place.url) as actors:
        for actor in actors:
            await actor.release(await actor.acquire("job", ttl=TTL))
            place.cluster.client(place.old).delete(keys.stamp_of(place.slot))
            assert (await outcome(actor.acquire(f"job {actor.colour}", wait=0, ttl=TTL))).result.held
            assert place.stamp(place.old) is not None


@staged
async def test_a_slot_that_has_been_at_its_node_all_the_time_does_not_wait_for_another_node(place: Place) -> None:
    """Nobody has used it before. But one that has come since does, wherever it came from."""
    other = Place(place.cluster)
    while other.old is not place.other:
        other = Place(place.cluster)
    await place.fails()
    async with both_colours(place.url) as (promoted, _), both_colours(other.url) as actors:
        told = await outcome(promoted.try_acquire("job", ttl=TTL))
        assert "grants no lock for another" in str(told.error)
        for actor in actors:
            await actor.release(await actor.acquire("job", wait=0, ttl=TTL))
        await place.moves(place.promoted, place.other)
        for actor in actors:  # stamped before the move
            await actor.release(await actor.acquire("job", wait=0, ttl=TTL))
        told = await outcome(promoted.try_acquire("job", ttl=TTL))
        assert "grants no lock for another" in str(told.error)


def test_init_ends_no_grace_of_a_promoted_node_unless_it_is_told_to(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place._fail()
    assert main(["init", place.url]) == codes.DECLINED
    assert "has no marker, but other nodes of this Cluster have one: it was just promoted" in capsys.readouterr().err
    with gripfast.connect(place.url) as client:
        with pytest.raises(gripfast.StoreUnavailable, match=r"grants no lock for another .* was just promoted"):
            client.lock("job", ttl=TTL).acquire(wait=0)
        assert main(["init", place.url]) == codes.DECLINED
        assert "run this again with --yes" in capsys.readouterr().err
        assert main(["init", place.url, "--yes"]) == 0
        client.lock("job", ttl=TTL).acquire(wait=0).release()


def test_init_may_be_repeated_where_every_node_is_marked(place: Place) -> None:
    assert main(["init", place.url]) == 0
    assert main(["init", place.url, "--max-ttl", "20"]) == 0


@staged
async def test_the_replica_of_a_node_acknowledges_and_nobody_else_does(place: Place) -> None:
    cluster, quick = place.cluster, ("--repl-diskless-sync-delay", "0")
    async with both_colours(f"{place.url}&replicas=1") as actors:
        for actor in actors:
            lease = await actor.acquire("job", wait=5, ttl=TTL)
            cluster.call(place.promoted, "READONLY")
            assert cluster.client(place.promoted).get(f"{{{place.tag}}}:job") == lease.owner
            await actor.extend(lease)
            await actor.release(lease)
            await actor.release(await actor.acquire(actor.client.semaphore("pool", 2, ttl=TTL)))
        with RedisServer(*quick) as server, server.client() as stranger:
            stranger.replicaof(HOST, place.old.port)
            await auntil(lambda: len(cluster.client(place.old).role()[2]) == 2, within=20)
            for actor in actors:
                with pytest.raises(gripfast.StoreUnavailable, match="2 servers follow it"):
                    await actor.acquire(f"job {actor.colour}", wait=0, ttl=TTL)
            place.promoted.kill()
            await auntil(lambda: len(cluster.client(place.old).role()[2]) == 1, within=20)
            for actor in actors:
                message = rf"and the listed replicas that may be promoted are {HOST}:{place.promoted.port}: connect"
                with pytest.raises(gripfast.StoreUnavailable, match=message):
                    await actor.acquire(f"job {actor.colour}", wait=0, ttl=TTL)
