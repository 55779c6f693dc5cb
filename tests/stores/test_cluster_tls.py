"""TLS and passwords to every node of a Cluster: by URL, and by the clients of redis-py and valkey-py."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio.cluster
import redis.cluster
import valkey.asyncio.cluster
import valkey.cluster

import gripfast
from gripfast.stores.redis.keys import slot as slot_of
from stores.test_redis_urls import assert_locks
from support.both_colours import both_colours, each, outcome, staged
from support.certificates import certificate
from support.cluster_servers import Cluster
from support.redis_server import HOST

PASSWORD = "of-the-nodes"
NAMES = [f"job-{number}" for number in range(12)]
"""In slots of all nodes."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(authority: Path) -> Iterator[Cluster]:
    """Clients, nodes and replication use TLS; no node speaks to anybody without the password."""
    with Cluster(replicas=1, node_timeout_ms=15000, certificate=authority, password=PASSWORD) as cluster:
        yield cluster


@pytest.mark.parametrize("library", ["redis", "valkey"])
@staged
async def test_a_url_with_a_password(secured: Cluster, library: str) -> None:
    url = secured.url(prefix="url:").replace("rediss", f"{library}s", 1)
    await assert_locks(url, f"{library}s+cluster://{secured.hosts}")


@staged
async def test_locks_of_all_nodes_and_their_replicas(secured: Cluster) -> None:
    """So the connections to nodes that the URL does not name use TLS and the password, too."""
    assert len({secured.owner(slot_of(f"all:{name}".encode())) for name in NAMES}) == 3
    async with both_colours(secured.url(prefix="all:", replicas=1)) as actors:
        for actor in actors:
            leases = [await actor.acquire(name) for name in NAMES]
            assert {info.name for info in await actor.listing()} == set(NAMES)
            for lease in leases:
                await actor.release(lease)


@staged
async def test_a_slot_that_moved_is_followed(secured: Cluster) -> None:
    name = NAMES[0]
    slot = slot_of(f"moved:{name}".encode())
    async with both_colours(secured.url(prefix="moved:")) as actors:
        for actor in actors:
            lease = await actor.acquire(name)
            source = secured.owner(slot)
            secured.move(slot, source, next(each for each in secured.primaries() if each is not source))
            await actor.extend(lease)
            await actor.release(lease)
            assert await actor.inspect(name) is None


THEIRS: dict[str, Callable[..., Any]] = {
    "redis-py": redis.cluster.RedisCluster,
    "redis-py, asyncio": redis.asyncio.cluster.RedisCluster,
    "valkey-py": valkey.cluster.ValkeyCluster,
    "valkey-py, asyncio": valkey.asyncio.cluster.ValkeyCluster,
}


@asynccontextmanager
async def client_of(make: Callable[..., Any], **settings: Any) -> AsyncIterator[Any]:
    client = await asyncio.to_thread(make, **settings)
    try:
        yield client
    finally:
        await client.aclose() if hasattr(client, "aclose") else client.close()


@pytest.mark.parametrize("which", THEIRS)
@staged
async def test_a_client_of_theirs_with_tls(secured: Cluster, authority: Path, which: str) -> None:
    port = secured.servers[0].port
    settings = {"ssl": True, "ssl_ca_certs": str(authority), "password": PASSWORD}
    async with client_of(THEIRS[which], host=HOST, port=port, **settings) as client:
        async with both_colours(client, prefix="theirs:") as actors:
            for actor in actors:
                assert actor.client.where.partition(":")[0] == f"{which.partition('-')[0]}s+cluster"
                lease = await actor.acquire("job")
                await actor.release(lease)


@staged
async def test_a_certificate_of_another_authority_is_refused(secured: Cluster, tmp_path: Path) -> None:
    other = certificate(tmp_path)
    for told in await told_by(secured.url(ssl_ca_certs=other)):
        assert isinstance(told, gripfast.StoreUnavailable)
        assert "certificate verify failed" in str(told)
        assert "check the certificates" in str(told)


@staged
async def test_a_wrong_password_is_refused_and_not_told(secured: Cluster) -> None:
    for told in await told_by(secured.url().replace(PASSWORD, "guessed")):
        assert isinstance(told, gripfast.GripfastError)
        assert "WRONGPASS" in str(told)
        assert "guessed" not in str(told)


@staged
async def test_without_tls_no_node_answers(secured: Cluster) -> None:
    for told in await told_by(f"redis+cluster://:{PASSWORD}@{secured.hosts}"):
        assert isinstance(told, gripfast.StoreUnavailable)


async def told_by(url: str) -> list[Exception | None]:
    async with both_colours(url, request_timeout=2) as actors:
        return [told.error for told in await each(actors, lambda actor: outcome(actor.try_acquire("job")))]
