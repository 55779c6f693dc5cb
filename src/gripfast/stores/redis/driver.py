"""Connections that redis-py makes: with TLS, with options that only it knows, and with the settings of its clients."""

from __future__ import annotations

import functools
import inspect
import ssl
from collections.abc import Mapping
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.connection import URL_QUERY_ARGUMENT_PARSERS, AbstractConnection
from redis.retry import Retry

from gripfast.errors import ConfigurationError
from gripfast.stores.redis.plain import Connect, parsed
from gripfast.stores.redis.wire import Wire

KINDS: dict[str, Any] = {
    "redis": redis.Connection,
    "rediss": redis.SSLConnection,
    "unix": redis.UnixDomainSocketConnection,
}
"""By scheme."""
_USED = {
    "host", "port", "path", "db", "username", "password", "credential_provider", "client_name", "socket_timeout",
    "socket_connect_timeout", "socket_keepalive", "socket_keepalive_options", "socket_type", "redis_connect_func",
    "driver_info", "lib_name", "lib_version",
}  # fmt: skip
"""Settings of a connection that matter here, beside those of TLS; the others are about commands and replies."""


def for_options(scheme: str, options: dict[str, Any]) -> tuple[Connect, dict[str, Any]]:
    """How connections are made, and their settings. Takes the options that redis-py knows out of `options`; those about
    commands and replies are not needed here."""
    kind = KINDS[scheme]
    known = _known(kind) | {"max_connections"}
    given = {name: options.pop(name) for name in list(options) if name in known}
    settings = {
        name: parsed(name, value, URL_QUERY_ARGUMENT_PARSERS) for name, value in given.items() if _is_used(name)
    }
    return functools.partial(connect, kind), settings | (_whose_certificate(settings) if scheme == "rediss" else {})


def for_client(client: Any) -> tuple[str, Connect, dict[str, Any]]:
    """The scheme, and the same for a client, sync or async."""
    pool = client.connection_pool
    kind, given = pool.connection_class, pool.connection_kwargs
    if "connection_pool" in given:  # Sentinel's find their server through their pool
        raise ConfigurationError(
            "clients made by Redis Sentinel are not supported yet: pass a redis.Redis that connects to the primary"
        )
    settings = {name: value for name, value in given.items() if _is_used(name) or name not in _standard()}
    if not issubclass(kind, AbstractConnection):
        kind = _blocking_twin(kind)
        settings = {name: value for name, value in settings.items() if _is_used(name) and name != "redis_connect_func"}
    scheme = next((each for each in ("unix", "rediss") if issubclass(kind, KINDS[each])), "redis")
    return scheme, functools.partial(connect, kind), settings


def connect(kind: type[Any], settings: Mapping[str, Any]) -> Wire:
    """redis-py finds the server, and begins the connection; then the socket is ours."""
    no_retries = Retry(NoBackoff(), 0)  # the caller has a patience of its own
    connection = kind(**settings, protocol=2, retry=no_retries)
    connection.connect()
    wire = Wire(connection._sock, settings["socket_timeout"])
    connection._sock = None
    return wire


def _whose_certificate(given: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a certificate has to be the host's own: always, unless the caller says otherwise, or wants none checked.

    Said in any case, because redis-py before 6.0 would accept one that was made for any host.
    """
    if given.get("ssl_check_hostname") is not None:
        return {}
    return {"ssl_check_hostname": given.get("ssl_cert_reqs", "required") not in ("none", None, ssl.CERT_NONE)}


def _is_used(name: str) -> bool:
    return name in _USED or name.startswith("ssl_")


def _known(kind: type) -> set[str]:
    """The settings that redis-py's connections of this kind have."""
    makers = [vars(each)["__init__"] for each in kind.__mro__[:-1] if "__init__" in vars(each)]
    return {name for make in makers for name in inspect.signature(make).parameters} - {"self", "args", "kwargs"}


def _standard() -> set[str]:
    """What redis-py itself may set for a connection; the rest is of a class of the caller's own."""
    return {name for kind in (*KINDS.values(), redis.asyncio.Connection) for name in _known(kind)}


def _blocking_twin(kind: type) -> Any:
    twins = {redis.asyncio.SSLConnection: "rediss", redis.asyncio.UnixDomainSocketConnection: "unix"}
    return KINDS[next((scheme for theirs, scheme in twins.items() if issubclass(kind, theirs)), "redis")]
