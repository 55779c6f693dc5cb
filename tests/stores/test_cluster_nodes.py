"""Nodes that die, stop or hand over to their replica: what the others do meanwhile, and what a client is told."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio.cluster
import redis.cluster
import valkey.asyncio.cluster
import valkey.cluster

import gripfast
from gripfast import StoreUnavailable
from gripfast.stores.redis import keys
from support.both_colours import another, both_colours, each, outcome, staged
from support.cluster_servers import Cluster, shared_cluster, time_passes
from support.redis_server import HOST, RedisServer, shared_server
from support.valkey_server import ValkeyServer
from support.waiting import auntil, until

FAILOVER = 15.0
"""Seconds after which a replica has taken over, on a busy machine."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def name_at(cluster: Cluster, server: RedisServer) -> str:
    """Of a lock that this node has, under the prefix of the URL."""
    slots = cluster.shares()[server]
    return next(name for name in _names() if any(keys.slot(f"lock:{name}".encode()) in each for each in slots))


def _names() -> Iterator[str]:
    while True:
        yield uuid.uuid4().hex


def has_copied(cluster: Cluster, primary: RedisServer, name: str) -> bool:
    replica = cluster.replica_of(primary)
    cluster.call(replica, "READONLY")
    with contextlib.suppress(redis.exceptions.ConnectionError):
        return cluster.client(replica).exists(f"lock:{name}") == 1
    return False


@staged
async def test_leases_survive_a_primary_that_is_killed(cluster: Cluster) -> None:
    """Those that its replica had; renewals find the replica, and so do new claims."""
    async with both_colours(cluster.url(failover_grace="off")) as actors:
        victim = cluster.servers[0]
        names = [name_at(cluster, victim) for _ in actors]
        pairs = list(zip(actors, names, strict=True))
        leases = [await actor.acquire(name, ttl=30) for actor, name in pairs]
        until(lambda: all(has_copied(cluster, victim, name) for name in names))
        victim.kill()
        for actor, lease in zip(actors, leases, strict=True):
            await _extended(actor, lease)
        for (actor, name), lease in zip(pairs, leases, strict=True):
            assert await actor.try_acquire(name) is None
            await actor.release(lease)
            assert (await actor.acquire(name)).token > lease.token


async def _extended(actor: Any, lease: Any) -> None:
    """Once the replica has taken over."""

    async def is_extended() -> bool:
        return (await outcome(actor.extend(lease, 60))).error is None

    await auntil(is_extended, within=FAILOVER)


@staged
async def test_a_primary_that_hands_over_to_its_replica_costs_nothing(cluster: Cluster) -> None:
    async with both_colours(cluster.url(failover_grace="off")) as actors:
        primary = cluster.servers[0]
        replica = cluster.replica_of(primary)
        names = [name_at(cluster, primary) for _ in actors]
        pairs = list(zip(actors, names, strict=True))
        leases = [await actor.acquire(name, ttl=60) for actor, name in pairs]
        others = [another(actor) for actor in actors]
        waits = [asyncio.ensure_future(other.acquire(name, wait=30)) for other, name in zip(others, names, strict=True)]
        until(lambda: all(has_copied(cluster, primary, name) for name in names))
        await asyncio.to_thread(cluster.fail_over_to, replica)
        for actor, lease in zip(actors, leases, strict=True):
            await _extended(actor, lease)
        assert not any(wait.done() for wait in waits)
        for actor, lease in zip(actors, leases, strict=True):
            await actor.release(lease)
        granted = await asyncio.gather(*waits)
        assert [new.token > old.token for new, old in zip(granted, leases, strict=True)] == [True, True]
        for other in others:
            await other.leaves()


@staged
async def test_a_promoted_replica_grants_nothing_until_old_leases_are_over() -> None:
    """Only those of its own primary: the other nodes go on. Owners renew and release."""
    with Cluster(max_ttl=8.0) as cluster:
        async with both_colours(cluster.url(max_ttl=8, failover_grace=3)) as actors:
            victim, other = cluster.servers[0], cluster.servers[1]
            names = [name_at(cluster, victim) for _ in actors]
            free, elsewhere = name_at(cluster, victim), name_at(cluster, other)
            leases = [await actor.acquire(name, ttl=8) for actor, name in zip(actors, names, strict=True)]
            until(lambda: all(has_copied(cluster, victim, name) for name in names))
            await asyncio.to_thread(cluster.fail_over_to, cluster.replica_of(victim))
            promoted = time.monotonic()
            await auntil(cluster.is_healthy, within=FAILOVER)  # others hear of it later
            for actor, lease in zip(actors, leases, strict=True):
                told = await outcome(actor.try_acquire(free, ttl=8))
                assert "grants no lock for another" in str(told.error), told
                await actor.release(await actor.acquire(elsewhere, ttl=8))
                await actor.release(lease)
            for actor in actors:
                await actor.release(await actor.acquire(free, wait=None, ttl=8))
            assert time.monotonic() - promoted > 8.0


@staged
async def test_a_node_that_is_stopped_does_not_delay_the_renewals_at_the_others() -> None:
    """Many leases of one watchdog: those of the other nodes live on for several times their ttl."""
    with Cluster(replicas=0, node_timeout_ms=30000) as cluster:
        async with both_colours(cluster.url(), request_timeout=2.0) as actors:
            stopped, new = cluster.servers[1], name_at(cluster, cluster.servers[0])
            held: dict[str, list[Any]] = {"stopped": [], "others": []}
            for actor in actors:
                for server in cluster.servers:
                    for _ in range(3):
                        lease = await actor.acquire(name_at(cluster, server), ttl=1.5)
                        held["stopped" if server is stopped else "others"].append(lease)
            stopped.pause()
            try:
                await time_passes(6.0)
                assert all(lease.held for lease in held["others"])
                assert not any(lease.held for lease in held["stopped"])
                for actor in actors:
                    started = time.monotonic()
                    await actor.release(await actor.acquire(new))
                    assert time.monotonic() - started < 1.0
            finally:
                stopped.resume()


@staged
async def test_a_claim_that_a_stopped_node_did_not_answer_leaves_nothing(cluster: Cluster) -> None:
    """The node goes on after its replica has taken over: what reaches it late gets nothing, here or there."""
    async with both_colours(cluster.url(failover_grace="off"), request_timeout=0.5) as actors:
        primary = cluster.servers[0]
        names = [name_at(cluster, primary) for _ in actors]
        pairs = list(zip(actors, names, strict=True))
        for actor, name in pairs:
            await actor.release(await actor.acquire(name))
        primary.pause()
        try:
            told = await asyncio.gather(*(outcome(actor.acquire(name, wait=0.6)) for actor, name in pairs))
            assert all(isinstance(one.error, StoreUnavailable) for one in told), told
            assert all(f"node {HOST}:{primary.port} of redis+cluster://" in str(one.error) for one in told), told
        finally:
            primary.resume()
        for actor, name in pairs:
            other = another(actor)
            assert (await outcome(other.acquire(name, wait=FAILOVER))).error is None
            await other.leaves()


@staged
async def test_a_cluster_that_is_down_says_which_slots_have_no_node() -> None:
    with Cluster(replicas=0) as cluster:
        async with both_colours(cluster.url(), request_timeout=0.5, connect_patience=0.5) as actors:
            await each(actors, lambda actor: actor.acquire(name_at(cluster, cluster.servers[0])))
            cluster.call(cluster.servers[2], "CLUSTER", "DELSLOTSRANGE", 16000, 16383)
            until(lambda: cluster._view(cluster.servers[2]) is None)
            missing = next(name for name in _names() if keys.slot(f"lock:{name}".encode()) >= 16000)
            told = await each(actors, lambda actor: outcome(actor.try_acquire(missing)))
            for one in told:
                assert "slots 16000-16383 have no node" in str(one.error), one
                assert "CLUSTERDOWN" in str(one.error), one
            cluster.call(cluster.servers[2], "CLUSTER", "ADDSLOTSRANGE", 16000, 16383)
            until(cluster.is_healthy, within=FAILOVER)
            for actor in actors:
                await actor.release(await actor.acquire(missing))


@staged
async def test_any_host_of_the_url_that_answers_will_do(cluster: Cluster) -> None:
    dead, alive = cluster.servers[3], cluster.servers[4]
    dead.kill()
    async with both_colours(f"redis+cluster://{HOST}:{dead.port},{HOST}:{alive.port}") as actors:
        for actor in actors:
            await actor.release(await actor.acquire(actor.colour))


@staged
async def test_a_single_server_is_no_cluster() -> None:
    server = shared_server()
    async with both_colours(f"redis+cluster://{HOST}:{server.port}") as actors:
        for one in await each(actors, lambda actor: outcome(actor.acquire("a"))):
            assert "is no node of a Redis Cluster: use redis://host:port" in str(one.error), one
            assert one.seconds < 2.0, "a retry would not help"


@staged
async def test_a_user_of_one_node_is_told_what_to_write() -> None:
    cluster = shared_cluster()
    async with both_colours(cluster.servers[0].url) as actors:
        for actor in actors:
            one = await outcome(actor.acquire(name_at(cluster, cluster.servers[1])))
            assert "is a node of a Redis Cluster: use redis+cluster://host:port" in str(one.error), one


def test_each_colour_can_be_made_from_the_clients_of_redis_py() -> None:
    port = shared_cluster().servers[0].port
    blocking = redis.cluster.RedisCluster(host=HOST, port=port, socket_timeout=3)
    _works_with(blocking)
    blocking.close()

    async def main() -> None:
        client = redis.asyncio.cluster.RedisCluster(host=HOST, port=port)
        await asyncio.to_thread(_works_with_sync, client)
        await _works_with_async(client)
        await client.aclose()

    asyncio.run(main())


def test_a_cluster_of_valkey_and_the_clients_of_valkey_py() -> None:
    with Cluster(replicas=0, kind=ValkeyServer) as cluster:
        _works_with(cluster.url())
        port = cluster.servers[0].port
        blocking = valkey.cluster.ValkeyCluster(host=HOST, port=port)
        _works_with(blocking)
        blocking.close()

        async def main() -> None:
            client = valkey.asyncio.cluster.ValkeyCluster(host=HOST, port=port)
            await asyncio.to_thread(_works_with_sync, client)
            await _works_with_async(client)
            await client.aclose()

        asyncio.run(main())


def _works_with(target: Any) -> None:
    _works_with_sync(target)
    asyncio.run(_works_with_async(target))


def _works_with_sync(target: Any) -> None:
    with gripfast.connect(target) as client:
        for name in "abcdef":
            with client.lock(f"{target!r}{name}"):
                assert client.inspect(f"{target!r}{name}") is not None


async def _works_with_async(target: Any) -> None:
    async with gripfast.connect_async(target) as client:
        for name in "abcdef":
            async with client.lock(f"{target!r}{name}"):
                assert await client.inspect(f"{target!r}{name}") is not None
