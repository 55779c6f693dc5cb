"""The stores that the conformance suite runs over. A new store joins by one entry in STORES.

An entry says how to get an empty lock space: a context manager that yields a URL nobody else uses. What a store can not
do it tells by its capabilities; no test asks for its name.

`support/sample.py` chooses which of them a test runs over in `make test`.
"""

import functools
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from support import cluster_servers, redis_server, redlock_nodes, sentinel_servers
from support.etcd_servers import Trio, etcd_server
from support.sql_process import SqlServer
from support.sql_servers import mariadb_server, postgres_server
from support.valkey_server import ValkeyServer
from support.zookeeper_servers import zookeeper_server


@dataclass(frozen=True)
class StoreUnderTest:
    name: str
    fresh: Callable[[Path], AbstractContextManager[str]]  # given a scratch directory of the test's own


@contextmanager
def _memory(scratch: Path) -> Iterator[str]:
    yield f"memory://{uuid.uuid4().hex}"


@contextmanager
def _sqlite(scratch: Path) -> Iterator[str]:
    yield f"sqlite:///{scratch.absolute()}/locks.db"


@contextmanager
def _redis(scratch: Path) -> Iterator[str]:
    with redis_server.lock_space(f"{uuid.uuid4().hex}:") as url:
        yield url


@contextmanager
def _cluster(scratch: Path) -> Iterator[str]:
    with cluster_servers.lock_space(f"{uuid.uuid4().hex}:") as url:
        yield url


@contextmanager
def _cluster_replicas(scratch: Path) -> Iterator[str]:
    with cluster_servers.lock_space(f"{uuid.uuid4().hex}:") as url:
        yield f"{url}&replicas=1"  # each primary has one


@contextmanager
def _redis_grace(scratch: Path) -> Iterator[str]:
    with redis_server.lock_space(f"{uuid.uuid4().hex}:", redis_server.GraceServer) as url:
        yield url


@contextmanager
def _redis_replicas(scratch: Path) -> Iterator[str]:
    with redis_server.lock_space(f"{uuid.uuid4().hex}:", redis_server.ReplicatedServer) as url:
        yield url


@contextmanager
def _redlock(scratch: Path) -> Iterator[str]:
    with redlock_nodes.lock_space(f"{uuid.uuid4().hex}:") as url:
        yield f"{url}&max_ttl=86400"  # any ttl that a lock may have


@contextmanager
def _sentinel(scratch: Path) -> Iterator[str]:
    with sentinel_servers.lock_space(f"{uuid.uuid4().hex}:") as url:
        yield url


@contextmanager
def _sentinel_replicas(scratch: Path) -> Iterator[str]:
    with sentinel_servers.lock_space(f"{uuid.uuid4().hex}:") as url:
        yield f"{url}&replicas=2"  # all that there are


@contextmanager
def _valkey(scratch: Path) -> Iterator[str]:
    with redis_server.lock_space(f"{uuid.uuid4().hex}:", ValkeyServer) as url:
        yield url


@functools.cache
def shared_trio() -> Trio:
    """Three members for all tests of this process. Never stop, pause or configure them."""
    return Trio()


def _sql(engine: str, server: Callable[[], SqlServer]) -> Iterator[StoreUnderTest]:
    for mode in ("lease", "row", "advisory"):
        name = engine if mode == "lease" else f"{engine}-{mode}"
        yield StoreUnderTest(name, lambda _, mode=mode: nullcontext(server().lock_space(mode=mode)))


STORES = [
    StoreUnderTest("memory", _memory),
    StoreUnderTest("sqlite", _sqlite),
    StoreUnderTest("redis", _redis),
    StoreUnderTest("redis-grace", _redis_grace),
    StoreUnderTest("redis-replicas", _redis_replicas),
    StoreUnderTest("redlock", _redlock),
    StoreUnderTest("sentinel", _sentinel),
    StoreUnderTest("sentinel-replicas", _sentinel_replicas),
    StoreUnderTest("valkey", _valkey),
    StoreUnderTest("cluster", _cluster),
    StoreUnderTest("cluster-replicas", _cluster_replicas),
    *_sql("postgres", postgres_server),
    *_sql("mysql", mariadb_server),
    StoreUnderTest("zookeeper", lambda _: nullcontext(zookeeper_server().lock_space())),
    StoreUnderTest("etcd", lambda _: nullcontext(etcd_server().lock_space())),
    StoreUnderTest("etcd-trio", lambda _: nullcontext(shared_trio().lock_space())),
]
