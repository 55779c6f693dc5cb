"""`redis+cluster://h1:7000,h2,h3`, `rediss+cluster://…` (TLS), the same with `valkey`, or a RedisCluster of redis-py or
ValkeyCluster of valkey-py, whose settings are used again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult

from gripfast.errors import ConfigurationError
from gripfast.stores import AioStores, StoreFactory
from gripfast.stores.cluster.blocking import BlockingDriver, Clean
from gripfast.stores.cluster.levels import NODE_TIMEOUT, Levels, goes_on
from gripfast.stores.cluster.nodes import Nodes
from gripfast.stores.cluster.spec import CAPABILITIES, SPEC
from gripfast.stores.cluster.store import ClusterStore
from gripfast.stores.cluster.topology import Address, Remap, Topology
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.factory import PREFIX, RedisFactory, check_quoting, connecting
from gripfast.stores.redis.failover import failover_of, with_replicas
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
        options: dict[str, Any],
        remap: Remap | None = None,
    ) -> None:
        """`scheme`: that of a single node. `options`: the levels', which are taken out."""
        _check_database(settings)
        self.where = f"{scheme}+cluster://{','.join(map(str, seeds))}"
        self._scheme = scheme
        self._seeds = seeds
        self._connect = connect
        self._settings = settings
        self._remap = remap
        self._tells_grace = "failover_grace" in options
        self._failover = failover_of(options, goes_on(NODE_TIMEOUT))
        self.capabilities, self.once_needs = with_replicas(self.capabilities, self._failover)
        if self._failover is not None:
            self.max_ttl = self._failover.max_ttl

    def blocking(self, request_timeout: float) -> ClusterStore:
        dialer, topology = functools.partial(self._dialer, request_timeout), Topology(self._seeds, self._remap)
        nodes = Nodes(BlockingDriver(dialer), self._levels(topology, dialer))
        return self._store(topology, nodes, request_timeout)

    def aio(self, request_timeout: float) -> AioStores:
        """Clean-ups have connections of their own, opened when needed and closed again."""
        from gripfast.stores.cluster.aio import AioDriver  # asyncio, which a lock for threads does not need

        dialer, topology = functools.partial(self._dialer, request_timeout), Topology(self._seeds, self._remap)
        levels = self._levels(topology, dialer)
        nodes = Nodes(AioDriver(dialer), levels)
        store = self._store(topology, nodes, request_timeout)
        aside = BlockingDriver(dialer, 0, functools.partial(_clean_up_at, nodes), functools.partial(_close_soon, nodes))
        cleaning = Nodes(aside, levels)
        return AioStores(store, self._store(topology, cleaning, request_timeout, claimed_at=nodes))

    def _store(
        self, topology: Topology, nodes: Nodes, request_timeout: float, claimed_at: Nodes | None = None
    ) -> ClusterStore:
        return ClusterStore(self.where, topology, nodes, request_timeout, claimed_at)

    def _levels(self, topology: Topology, dialer: Callable[[Address], Dialer]) -> Levels | None:
        return None if self._failover is None else Levels(self._failover, topology, dialer, self._tells_grace)

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
    return ClusterFactory(scheme, [Address(*host) for host in hosts], connect, login | settings, options)


def factory_of(client: Any, options: dict[str, Any]) -> ClusterFactory:
    """From a RedisCluster of redis-py or a ValkeyCluster of valkey-py, sync or async: each colour can be made from
    either."""
    from gripfast.stores.redis.driver import driver_of

    driver, manager = driver_of(client), client.nodes_manager
    nodes = list(manager.startup_nodes.values())
    create = getattr(manager, f"create_{driver.library}_node", None)  # which connects to nothing
    if create is None:
        pool = driver.for_pool(nodes[0].connection_class, nodes[0].connection_kwargs)
    else:
        pool = driver.for_client(create(nodes[0].host, nodes[0].port, **manager.connection_kwargs))
    seeds = [Address(node.host, int(node.port)) for node in nodes]
    return ClusterFactory(pool[0], seeds, *pool[1:], options, getattr(manager, "address_remap", None))


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
        f"a Redis Cluster has only database 0, not {given!r}: leave the database out, and keep programs apart by their "
        "prefix: ?prefix=app1:"
    )
