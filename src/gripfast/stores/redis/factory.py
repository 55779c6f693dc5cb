"""`redis://`, `rediss://`, `unix://`, or a client of redis-py whose connection settings are used again."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, unquote

import redis
import redis.asyncio
from redis.connection import URL_QUERY_ARGUMENT_PARSERS, AbstractConnection

from gripfast.core import rules
from gripfast.errors import ConfigurationError
from gripfast.stores import AioStores
from gripfast.stores.redis.aio import AioLink
from gripfast.stores.redis.blocking import BlockingLink
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.spec import CAPABILITIES
from gripfast.stores.redis.store import RedisStore

PREFIX = "lock:"

KINDS: Mapping[str, Any] = {
    "redis": redis.Connection,
    "rediss": redis.SSLConnection,
    "unix": redis.UnixDomainSocketConnection,
}
_USED = {
    "host", "port", "path", "db", "username", "password", "credential_provider", "client_name", "socket_timeout",
    "socket_connect_timeout", "socket_keepalive", "socket_keepalive_options", "socket_type", "redis_connect_func",
    "driver_info", "lib_name", "lib_version",
}  # fmt: skip
"""Settings of a connection that matter here, beside those of TLS; the others are about commands and replies."""


class RedisFactory:
    capabilities = CAPABILITIES
    request_timeout = 5.0
    max_ttl = rules.TTL_MAX
    prefix = PREFIX

    def __init__(self, kind: type[AbstractConnection], settings: Mapping[str, Any]) -> None:
        self.where = _where(kind, settings)
        self._kind = kind
        self._settings = settings
        self._socket_timeout = settings.get("socket_timeout")
        for name in ("socket_timeout", "socket_connect_timeout"):
            if settings.get(name) is not None:
                rules.checked_request_timeout(name, settings[name])

    def blocking(self, request_timeout: float) -> RedisStore:
        return RedisStore(BlockingLink(self.dialer(request_timeout)))

    def aio(self, request_timeout: float) -> AioStores:
        """Clean-ups have a connection of their own, opened when needed and closed again."""
        dialer = self.dialer(request_timeout)
        link = AioLink(dialer)
        aside = BlockingLink(dialer, idle_most=0, clean_up=link.clean_up, at_end=link.close_soon)
        return AioStores(RedisStore(link), RedisStore(aside))

    def dialer(self, request_timeout: float) -> Dialer:
        timeout = min(request_timeout, self._socket_timeout or request_timeout)
        return Dialer(self.where, self._kind, self._settings, timeout)


def factory(url: SplitResult, options: dict[str, Any]) -> RedisFactory:
    kind = KINDS[url.scheme]
    check_quoting(url, options)
    return RedisFactory(kind, address(url) | driver_options(kind, options))


def factory_of(client: Any, options: dict[str, Any]) -> RedisFactory:
    """From a redis.Redis or a redis.asyncio.Redis: each colour can be made from either."""
    pool = client.connection_pool
    kind, given = pool.connection_class, pool.connection_kwargs
    if "connection_pool" in given:  # Sentinel's find their server through their pool
        raise ConfigurationError("a client made by Sentinel is not supported yet: give one of the primary itself")
    settings = {name: value for name, value in given.items() if _is_used(name) or name not in _standard()}
    if not issubclass(kind, AbstractConnection):
        kind = _blocking_twin(kind)
        settings = {name: value for name, value in settings.items() if _is_used(name) and name != "redis_connect_func"}
    return RedisFactory(kind, settings)


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
            raise ConfigurationError("a unix URL names a socket with three slashes: unix:///run/redis/redis.sock?db=0")
        return login | {"path": unquote(url.path)}
    if "," in (url.hostname or ""):
        raise ConfigurationError("a Redis URL names one host: several nodes are redlock://host,host,host")
    database = url.path.strip("/")
    if database and not database.isdecimal():
        raise ConfigurationError(f"the path of a Redis URL is the number of its database, not {database!r}")
    return login | {"host": url.hostname or "localhost", "port": url.port or 6379, "db": int(database or 0)}


def driver_options(kind: type[AbstractConnection], options: dict[str, Any]) -> dict[str, Any]:
    """Those that redis-py knows, taken out of the options; what is about commands and replies is not needed here."""
    known = _known(kind) | {"max_connections"}
    given = {name: options.pop(name) for name in list(options) if name in known}
    parsed = {name: _parsed(name, value) for name, value in given.items() if _is_used(name)}
    return parsed | _whose_certificate(parsed) if issubclass(kind, redis.SSLConnection) else parsed


def _whose_certificate(given: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a certificate has to be the host's own: always, unless the caller says otherwise, or wants none checked.

    Said in any case, because redis-py before 6.0 would accept one that was made for any host.
    """
    if given.get("ssl_check_hostname") is not None:
        return {}
    return {"ssl_check_hostname": given.get("ssl_cert_reqs", "required") not in ("none", None, ssl.CERT_NONE)}


def _parsed(name: str, value: Any) -> Any:
    if not isinstance(value, str) or name not in URL_QUERY_ARGUMENT_PARSERS:
        return value
    try:
        return URL_QUERY_ARGUMENT_PARSERS[name](value)  # type: ignore[operator]
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} can't be {value!r}") from None


def _is_used(name: str) -> bool:
    return name in _USED or name.startswith("ssl_")


def _known(kind: type) -> set[str]:
    """The settings that redis-py's connections of this kind have."""
    makers = [vars(each)["__init__"] for each in kind.__mro__[:-1] if "__init__" in vars(each)]
    return {name for make in makers for name in inspect.signature(make).parameters} - {"self", "args", "kwargs"}


def _standard() -> set[str]:
    """What redis-py itself may set for a connection; the rest is of a class of the caller's own."""
    return {name for kind in (*KINDS.values(), redis.asyncio.Connection) for name in _known(kind)}


def _blocking_twin(kind: type) -> type[AbstractConnection]:
    if issubclass(kind, redis.asyncio.SSLConnection):
        return redis.SSLConnection
    if issubclass(kind, redis.asyncio.UnixDomainSocketConnection):
        return redis.UnixDomainSocketConnection
    return redis.Connection


def _where(kind: type[AbstractConnection], settings: Mapping[str, Any]) -> str:
    if issubclass(kind, redis.UnixDomainSocketConnection):
        return f"unix://{settings.get('path', '')}"
    scheme = "rediss" if issubclass(kind, redis.SSLConnection) else "redis"
    host = str(settings.get("host", "localhost"))
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{settings.get('port', 6379)}/{settings.get('db', 0) or 0}"
