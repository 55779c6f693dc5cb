"""`redis://`, `rediss://`, `unix://`, or a client of redis-py whose connection settings are used again; the same with
`valkey` for Valkey and valkey-py."""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote

from gripfast.core import rules
from gripfast.errors import ConfigurationError
from gripfast.stores import AioStores, StoreFactory
from gripfast.stores.redis import plain
from gripfast.stores.redis.blocking import BlockingLink
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.failover import OPTIONS, Failover, failover_of
from gripfast.stores.redis.grace import Grace
from gripfast.stores.redis.plain import Connect
from gripfast.stores.redis.spec import CAPABILITIES
from gripfast.stores.redis.store import RedisStore

PREFIX = "lock:"
TLS = ("rediss", "valkeys")
SCHEMES = ("redis", "rediss", "unix", "valkey", "valkeys")
"""Of the URLs of one server."""


class RedisFactory(StoreFactory):
    capabilities = CAPABILITIES
    prefix = PREFIX

    def __init__(
        self, scheme: str, connect: Connect, settings: Mapping[str, Any], failover: Failover | None = None
    ) -> None:
        self.where = _where(scheme, settings)
        self._failover = failover
        if failover is not None:
            self.max_ttl = failover.max_ttl
        self._connect = connect
        self._settings = settings
        for name in ("socket_timeout", "socket_connect_timeout"):
            if settings.get(name) is not None:
                rules.checked_request_timeout(name, settings[name])

    def blocking(self, request_timeout: float) -> RedisStore:
        return RedisStore(BlockingLink(self.dialer(request_timeout)), self._grace())

    def aio(self, request_timeout: float) -> AioStores:
        """Clean-ups have a connection of their own, opened when needed and closed again."""
        from gripfast.stores.redis.aio import AioLink  # asyncio, which a lock for threads does not need

        dialer = self.dialer(request_timeout)
        link = AioLink(dialer)
        aside = BlockingLink(dialer, idle_most=0, clean_up=link.clean_up, at_end=link.close_soon)
        grace = self._grace()
        return AioStores(RedisStore(link, grace), RedisStore(aside, grace))

    def _grace(self) -> Grace | None:
        return None if self._failover is None else Grace(self._failover, self.where)

    def dialer(self, request_timeout: float) -> Dialer:
        timeout = min(request_timeout, self._settings.get("socket_timeout") or request_timeout)
        to_connect = min(timeout, self._settings.get("socket_connect_timeout") or timeout)
        timeouts = {"socket_timeout": timeout, "socket_connect_timeout": to_connect}
        return Dialer(self.where, functools.partial(self._connect, {**self._settings, **timeouts}), timeout)


def factory(url: SplitResult, options: dict[str, Any]) -> RedisFactory:
    check_quoting(url, options)
    connect, settings = connecting(url.scheme, options, OPTIONS)
    return RedisFactory(url.scheme, connect, address(url) | settings, failover_of(options))


def factory_of(client: Any, options: dict[str, Any]) -> RedisFactory:
    """From a redis.Redis, a redis.asyncio.Redis, or valkey-py's: each colour can be made from either."""
    from gripfast.stores.redis.driver import driver_of

    scheme, connect, settings = driver_of(client).for_client(client)
    return RedisFactory(scheme, connect, settings, failover_of(options))


def connecting(scheme: str, options: dict[str, Any], others: Container[str] = ()) -> tuple[Connect, dict[str, Any]]:
    """How connections are made, and their settings, which are taken out of the options; not `others` of these."""
    if scheme in TLS or any(name not in plain.OPTIONS and name not in others for name in options):
        from gripfast.stores.redis.driver import driver  # which loads redis-py or valkey-py, and that takes long

        return driver("valkey" if scheme.startswith("valkey") else "redis").for_options(scheme, options)
    given = [name for name in plain.OPTIONS if name in options]
    return plain.connect, {name: plain.parsed(name, options.pop(name), plain.OPTIONS) for name in given}


def check_quoting(url: SplitResult, options: Mapping[str, Any]) -> None:
    """A password that was not quoted ends the host too early; it must not be told as part of what was read instead."""
    if "@" in url.path or any("@" in name for name in options):
        raise ConfigurationError("the URL can't be read: write / ? # @ in a user name or password as %2F %3F %23 %40")


def address(url: SplitResult) -> dict[str, Any]:
    """Where the server is, and who asks."""
    login: dict[str, Any] = {}
    if url.username:
        login["username"] = unquote(url.username)
    if url.password:
        login["password"] = unquote(url.password)
    if url.scheme == "unix":
        if url.hostname or not url.path.strip("/"):
            raise ConfigurationError(
                "a unix URL has three slashes before the path of the socket: unix:///run/redis/redis.sock?db=0"
            )
        return login | {"path": unquote(url.path)}
    if "," in (url.hostname or ""):
        raise ConfigurationError("a Redis URL has one host. For Redlock on several servers: redlock://host,host,host")
    database = url.path.strip("/")
    if database and not database.isdecimal():
        raise ConfigurationError(
            f"the path of a Redis URL must be the number of a database, as in redis://host:6379/0, not {database!r}"
        )
    return login | {"host": url.hostname or "localhost", "port": url.port or 6379, "db": int(database or 0)}


def _where(scheme: str, settings: Mapping[str, Any]) -> str:
    if scheme == "unix":
        return f"unix://{settings.get('path', '')}"
    host = str(settings.get("host", "localhost"))
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{settings.get('port', 6379)}/{settings.get('db', 0) or 0}"
