"""`redis+cluster://h1:7000,h2,h3`, `rediss+cluster://…` (TLS), or a RedisCluster of redis-py whose settings are used
again."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from urllib.parse import SplitResult

from gripfast.errors import ConfigurationError
from gripfast.stores import AioStores, StoreFactory, loaded
from gripfast.stores.cluster.blocking import BlockingDriver, Clean
from gripfast.stores.cluster.nodes import Nodes
from gripfast.stores.cluster.spec import CAPABILITIES, SPEC
from gripfast.stores.cluster.store import ClusterStore
from gripfast.stores.cluster.topology import Address, Remap, Topology
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.factory import PREFIX, RedisFactory, check_quoting, connecting
from gripfast.stores.redis.failover import Failover
from gripfast.stores.redis.hosts import login_and_hosts
from gripfast.stores.redis.plain import Connect

PORT = 6379


class ClusterFactory(StoreFactory):
    capabilities = CAPABILITIES
    prefix = PREFIX

    def __init__(
        self,
        scheme: str,
        seeds: Sequence[Address],
        connect: Connect,
        settings: Mapping[str, Any],
        remap: Remap | None = None,
    ) -> None:
        """`scheme`: that of a single node."""
        _check_database(settings)
        self.where = f"{scheme}+cluster://{','.join(map(str, seeds))}"
        self._scheme = scheme
        self._seeds = seeds
        self._connect = connect
        self._settings = settings
        self._remap = remap

    def blocking(self, request_timeout: float) -> ClusterStore:
        nodes = Nodes(BlockingDriver(functools.partial(self._dialer, request_timeout)), self._failover)
        return self._store(Topology(self._seeds, self._remap), nodes, request_timeout)

    def aio(self, request_timeout: float) -> AioStores:
        """Clean-ups have connections of their own, opened when needed and closed again."""
        from gripfast.stores.cluster.aio import AioDriver  # asyncio, which a lock for threads does not need

        dialer, topology = functools.partial(self._dialer, request_timeout), Topology(self._seeds, self._remap)
        driver = AioDriver(dialer)
        nodes = Nodes(driver, self._failover)
        store = self._store(topology, nodes, request_timeout)
        aside = BlockingDriver(dialer, 0, functools.partial(_clean_up_at, nodes), functools.partial(_close_soon, nodes))
        cleaning = Nodes(aside, self._failover)
        return AioStores(store, self._store(topology, cleaning, request_timeout, claimed_at=nodes))

    def _store(
        self, topology: Topology, nodes: Nodes, request_timeout: float, claimed_at: Nodes | None = None
    ) -> ClusterStore:
        return ClusterStore(self.where, topology, nodes, request_timeout, claimed_at)

    def _failover(self, address: Address) -> Failover | None:
        return None

    def _dialer(self, request_timeout: float, address: Address) -> Dialer:
        settings = {**self._settings, "host": address.host, "port": address.port}
        node = RedisFactory(self._scheme, self._connect, settings)
        node.where = f"node {address} of {self.where}"
        dialer = node.dialer(request_timeout)
        dialer.shares_layout = True
        return dialer


def factory(url: SplitResult, options: dict[str, Any]) -> ClusterFactory:
    check_quoting(url, options)
    scheme = url.scheme.partition("+")[0]
    login, hosts = login_and_hosts(url, PORT)
    if url.path.strip("/") not in ("", "0"):
        raise _no_databases(url.path.strip("/"))
    connect, settings = connecting(scheme, options, SPEC.options)
    return ClusterFactory(scheme, [Address(*host) for host in hosts], connect, login | settings)


def factory_of(client: Any, options: dict[str, Any]) -> ClusterFactory:
    """From a redis.cluster.RedisCluster or its twin of asyncio: each colour can be made from either."""
    manager = client.nodes_manager
    seeds = [Address(node.host, int(node.port)) for node in manager.startup_nodes.values()]
    driver = loaded("gripfast.stores.redis.driver", SPEC.extra)
    scheme, connect, settings = driver.for_client(_of_one_node(client))
    return ClusterFactory(scheme, seeds, connect, settings, manager.address_remap)


def _of_one_node(client: Any) -> Any:
    """As a client of one of its nodes; nothing is connected for it."""
    manager = client.nodes_manager
    node = next(iter(manager.startup_nodes.values()))
    if hasattr(manager, "create_redis_node"):
        return manager.create_redis_node(node.host, node.port, **manager.connection_kwargs)
    pool = SimpleNamespace(connection_class=node.connection_class, connection_kwargs=node.connection_kwargs)
    return SimpleNamespace(connection_pool=pool)


def _clean_up_at(nodes: Nodes, address: Address) -> Clean:
    """Behind claims that the loop has sent, if it has sent any to that node."""

    def clean_up(owner: str, packed: bytes) -> bool | None:
        return next((node.link.clean_up(owner, packed) for node in nodes.all() if node.address == address), None)

    return clean_up


def _close_soon(nodes: Nodes) -> None:
    for node in nodes.all():
        node.link.close_soon()  # type: ignore[attr-defined]


def _check_database(settings: Mapping[str, Any]) -> None:
    if settings.get("db"):
        raise _no_databases(str(settings["db"]))


def _no_databases(given: str) -> ConfigurationError:
    return ConfigurationError(
        f"a Redis Cluster has no databases but 0, and this is for {given!r}: leave it out, and keep programs apart by "
        "their prefix: ?prefix=app1:"
    )
