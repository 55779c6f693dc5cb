"""`redlock://h1,h2,h3`, `redlocks://…` (TLS), or a list of the URLs or clients of several independent Redis servers."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult

from gripfast.core import rules
from gripfast.core.redlock.ballot import majority
from gripfast.core.redlock.records import Records
from gripfast.core.redlock.store import CAPABILITIES, RedlockStore
from gripfast.errors import ConfigurationError
from gripfast.stores import Address, AioStores, spec_of
from gripfast.stores.options import COMMON
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.factory import PREFIX, SCHEMES, RedisFactory, address, check_quoting, connecting
from gripfast.stores.redis.store import card_of_this_process
from gripfast.stores.redlock.aio import AioNodes
from gripfast.stores.redlock.blocking import BlockingNodes
from gripfast.stores.redlock.protocol import Wording
from gripfast.stores.redlock.spec import SPEC

_log = logging.getLogger("gripfast.client")

NODES_LEAST = 3
MAX_TTL = 60.0
_OF_ALL = COMMON.keys() | SPEC.options.keys()
_KIND_OF_NODES = {"redlock": "redis", "redlocks": "rediss"}
_HOST = re.compile(r"(\[[^\[\]@]+\]|[^\[\]:@]*)(:[0-9]{,5})?")
PORT_MOST = 65535
_THIS_MACHINE = {"localhost", "127.0.0.1", "[::1]"}


class RedlockFactory:
    capabilities = CAPABILITIES
    prefix = PREFIX
    request_timeout = 0.05
    """Of one node: it should be small, because a claim waits so long for a node that is gone."""

    def __init__(self, nodes: Sequence[RedisFactory], options: dict[str, Any]) -> None:
        self.where = _where([node.where for node in nodes])
        self.max_ttl = rules.checked_max_ttl(options.pop("max_ttl", MAX_TTL))
        self._nodes = nodes
        self._grace = _checked_grace(options.pop("restart_grace", self.max_ttl), self.max_ttl)
        _check_nodes([node.where for node in nodes])

    def blocking(self, request_timeout: float) -> RedlockStore:
        return RedlockStore(BlockingNodes(self._dialers(request_timeout), self._wording()), Records())

    def aio(self, request_timeout: float) -> AioStores:
        """Clean-ups have connections of their own, opened when needed and closed again."""
        dialers, wording, records = self._dialers(request_timeout), self._wording(), Records()
        nodes = AioNodes(dialers, wording)
        aside = BlockingNodes(dialers, wording, beside=nodes.talk.talks, at_end=nodes.close_soon)
        return AioStores(RedlockStore(nodes, records), RedlockStore(aside, records))

    def _dialers(self, request_timeout: float) -> list[Dialer]:
        return [node.dialer(request_timeout) for node in self._nodes]

    def _wording(self) -> Wording:
        return Wording(self._grace, functools.lru_cache(maxsize=256)(card_of_this_process))


def factory(url: SplitResult, options: dict[str, Any]) -> RedlockFactory:
    check_quoting(url, options)
    scheme = _KIND_OF_NODES[url.scheme]
    addresses = [address(url._replace(scheme=scheme, netloc=host)) for host in _hosts(url.netloc)]
    connect, common = connecting(scheme, options, SPEC.options)
    return RedlockFactory([RedisFactory(scheme, connect, each | common) for each in addresses], options)


def factory_of_several(targets: Sequence[Address | object], options: dict[str, Any]) -> RedlockFactory:
    """What the driver knows of the options is for all nodes that are given by URL."""
    common = {name: options[name] for name in options if name not in _OF_ALL}
    unused = set(common)
    nodes: list[RedisFactory] = []
    for target in targets:
        if isinstance(target, Address):
            rest = target.options | common
            nodes.append(_node(target, rest))
            unused &= set(rest)
        else:
            nodes.append(_node_of(target))
    for name in set(common) - unused:
        del options[name]
    return RedlockFactory(nodes, options)


def _node(target: Address, options: dict[str, Any]) -> RedisFactory:
    """Takes the options that it knows out of `options`."""
    url = target.url
    if url.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ConfigurationError(
            f"each node in a list must be a URL with {known} or a client of redis-py, not {url.scheme}://"
        )
    check_quoting(url, target.options)
    for name in sorted(target.options.keys() & _OF_ALL):
        raise ConfigurationError(
            f"{name} must be the same for all nodes: pass it as connect([…], {name}=…), not in the URL of one node"
        )
    connect, settings = connecting(url.scheme, options)
    node = RedisFactory(url.scheme, connect, address(url) | settings)
    if unknown := target.options.keys() & options.keys():
        raise ConfigurationError(f"unknown option for {node.where}: {', '.join(sorted(unknown))}")
    return node


def _node_of(client: object) -> RedisFactory:
    node = spec_of(client).load().factory_of(client, {})
    if type(node) is not RedisFactory:  # nor one of a kind that stands for several servers
        raise ConfigurationError(f"Redlock needs single Redis servers, and {node.where} is not one")
    return node


def _hosts(netloc: str) -> list[str]:
    """Each with the login of the first one, unless it has its own."""
    parts = netloc.split(",")
    login = parts[0].rpartition("@")[0]
    for part in parts:
        own, _, host = part.rpartition("@")
        found = _HOST.fullmatch(host)
        if not part or found is None or int((found[2] or ":")[1:] or 0) > PORT_MOST:
            raise ConfigurationError(
                "the URL can't be read: write it as redlock://host:port,host:port,[::1]:port/0, and write a comma in a "
                "user name or password as %2C"
            )
        if own and not login:
            raise ConfigurationError(
                "the URL can't be read: put user:password@ before the first host (it then applies to all), or before "
                "every host. Write a comma in a user name or password as %2C"
            )
    return [part if "@" in part or not login else f"{login}@{part}" for part in parts]


def _checked_grace(grace: object, max_ttl: float) -> float:
    seconds = rules.checked_patience("restart_grace", grace)
    if 0.0 < seconds < max_ttl:
        raise ConfigurationError(
            f"restart_grace must be at least max_ttl ({max_ttl:g} seconds), not {seconds:g}. Otherwise a node "
            "that restarted without its data could vote before the leases that it has forgotten are over. In tests, 0 "
            "turns this protection off"
        )
    return seconds


def _check_nodes(names: Sequence[str]) -> None:
    count = len(names)
    if count < NODES_LEAST:
        raise ConfigurationError(
            f"Redlock needs at least {NODES_LEAST} nodes, not {count}: with fewer, not a single node may fail. For one "
            "server use redis://host"
        )
    servers = [_server(name) for name in names]
    for server in servers:
        if servers.count(server) > 1:
            raise ConfigurationError(
                f"{server} occurs twice: each node must be a different server, because two databases of one server "
                "fail together"
            )
    if count % 2 == 0:
        spare = count - majority(count)
        _log.warning(
            "with %d Redlock nodes only %d may fail, as with %d: add one node, or remove one",
            *(count, spare, count - 1),
        )


def _server(name: str) -> str:
    """Without scheme and database."""
    scheme, _, rest = name.partition("://")
    if scheme == "unix":
        return rest
    host, _, port = rest.partition("/")[0].rpartition(":")
    return f"{'localhost' if host in _THIS_MACHINE else host}:{port}"


def _where(names: Sequence[str]) -> str:
    """As short as a URL, if one could say it."""
    schemes = {name.partition("://")[0] for name in names}
    databases = {name.rpartition("/")[2] for name in names}
    for ours, theirs in _KIND_OF_NODES.items():
        if schemes == {theirs} and len(databases) == 1:
            hosts = [name.partition("://")[2].partition("/")[0] for name in names]
            return f"{ours}://{','.join(hosts)}/{databases.pop()}"
    return f"Redlock on {', '.join(names)}"
