"""`redis+sentinel://s1,s2,s3/service`, `rediss+sentinel://…` (TLS), the same with `valkey`, or a client that a Sentinel
of redis-py or valkey-py has made for a primary."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, unquote

from gripfast.errors import ConfigurationError
from gripfast.stores.redis.factory import TLS, RedisFactory, check_quoting, connecting
from gripfast.stores.redis.failover import Failover, failover_of, with_replicas
from gripfast.stores.redis.plain import Connect
from gripfast.stores.sentinel.dial import Rules, Sentinel, Service

GOES_ON = 15.0
"""Seconds for which a primary may go on that the Sentinels have replaced: up to 11 were measured, in a failover on
command."""
PORT = 26379
PORT_MOST = 65535
OWN = "sentinel_"
"""What the options for the Sentinels begin with."""
_HOST = re.compile(r"(\[[^\[\]@]+\]|[^\[\]:@,]+)(?::([0-9]{,5}))?")
_INHERITED = ("ssl_", "socket_")
"""Options for the servers that are for the Sentinels, too. Not the password: nobody else is told it."""


class SentinelFactory(RedisFactory):
    def __init__(
        self, scheme: str, service: Service, connect: Connect, settings: Mapping[str, Any], failover: Failover | None
    ) -> None:
        if failover is not None:
            failover = failover._replace(promotable=service.promotable)
        super().__init__(scheme, functools.partial(service.connect, connect), settings, failover)
        self.capabilities, self.once_needs = with_replicas(self.capabilities, failover)
        self.where = service.where
        self.scheme = scheme
        self.service = service


def factory(url: SplitResult, options: dict[str, Any]) -> SentinelFactory:
    check_quoting(url, options)
    scheme, failover = url.scheme.partition("+")[0], failover_of(options, GOES_ON)
    login, hosts = _login_and_hosts(url)
    sentinels = _sentinels(hosts, scheme, options)
    connect, settings = connecting(scheme, options)
    name = _service(url)
    where = _where(url.scheme, [each.name for each in sentinels], name, settings)
    return SentinelFactory(scheme, Service(where, name, sentinels), connect, login | settings, failover)


def factory_of(client: Any, options: dict[str, Any]) -> SentinelFactory:
    """From what `Sentinel.master_for()` of redis-py or valkey-py has returned, sync or async."""
    from gripfast.stores.redis.driver import driver_of

    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise ConfigurationError("a Sentinel may watch several services: write connect(sentinel.master_for('service'))")
    if not pool.is_master:
        raise ConfigurationError("a replica can't keep locks: pass sentinel.master_for(…), not slave_for(…)")
    driver, manager = driver_of(client), pool.sentinel_manager
    given = {name: value for name, value in pool.connection_kwargs.items() if name != "connection_pool"}
    scheme, connect, settings = driver.for_pool(driver.blocking_twin(pool.connection_class), given)
    sentinels = [_sentinel(*driver.for_client(each)[1:]) for each in manager.sentinels]
    rules = Rules(manager.min_other_sentinels, getattr(manager, "_force_master_ip", None))
    where = _where(f"{scheme}+sentinel", [each.name for each in sentinels], pool.service_name, settings)
    service = Service(where, pool.service_name, sentinels, rules)
    return SentinelFactory(scheme, service, connect, settings, failover_of(options, GOES_ON))


def _login_and_hosts(url: SplitResult) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Who asks the servers, and where each Sentinel is."""
    login, _, hosts = url.netloc.rpartition("@")
    found = [_HOST.fullmatch(host) for host in hosts.split(",")]
    addresses = [
        {"host": each[1].strip("[]"), "port": int(each[2] or PORT)}
        for each in found
        if each is not None and int(each[2] or 0) <= PORT_MOST
    ]
    if len(addresses) < len(found) or "," in login:
        raise ConfigurationError(
            f"the URL can't be read: write it as {url.scheme}://host:{PORT},host,[::1]:{PORT}/service, with "
            "user:password@ of the servers before the first host; write a comma in these two as %2C"
        )
    user, _, password = login.partition(":")
    given = {"username": unquote(user), "password": unquote(password)}
    return {name: value for name, value in given.items() if value}, addresses


def _service(url: SplitResult) -> str:
    service = unquote(url.path.strip("/"))
    if not service or "/" in service:
        raise ConfigurationError(
            f"the path of the URL must be the name of the service that the Sentinels watch, as in "
            f"{url.scheme}://host/mymaster?db=0, not {url.path!r}"
        )
    return service


def _sentinels(hosts: Sequence[Mapping[str, Any]], scheme: str, options: dict[str, Any]) -> list[Sentinel]:
    """Takes the options that are for them out of `options`; those that nobody knows stay."""
    own = {name.removeprefix(OWN): options.pop(name) for name in list(options) if name.startswith(OWN)}
    is_tls = own.pop("ssl", scheme in TLS)
    if is_tls == (scheme in TLS):
        own = {name: options[name] for name in options if name.startswith(_INHERITED)} | own
    library = scheme.removesuffix("s") if scheme in TLS else scheme
    connect, settings = connecting(f"{library}s" if is_tls else library, own)
    options |= {OWN + name: value for name, value in own.items()}
    return [_sentinel(connect, {**settings, **host}) for host in hosts]


def _sentinel(connect: Connect, settings: Mapping[str, Any]) -> Sentinel:
    host = str(settings.get("host", "localhost"))
    return Sentinel(f"[{host}]:{settings['port']}" if ":" in host else f"{host}:{settings['port']}", connect, settings)


def _where(scheme: str, sentinels: Sequence[str], service: str, settings: Mapping[str, Any]) -> str:
    database = settings.get("db") or 0
    return f"{scheme}://{','.join(sentinels)}/{service}" + (f"?db={database}" if database else "")
