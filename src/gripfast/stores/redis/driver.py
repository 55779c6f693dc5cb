"""Connections that redis-py or valkey-py makes: with TLS, with options that only it knows, and with the settings of its
clients. valkey-py began as a copy of redis-py, and has the same classes."""

from __future__ import annotations

import functools
import importlib
import inspect
import ssl
from collections.abc import Mapping
from typing import Any

from gripfast.errors import ConfigurationError
from gripfast.stores import loaded
from gripfast.stores.redis.plain import Connect, parsed
from gripfast.stores.redis.wire import Wire

_USED = {
    "host", "port", "path", "db", "username", "password", "credential_provider", "client_name", "socket_timeout",
    "socket_connect_timeout", "socket_keepalive", "socket_keepalive_options", "socket_type", "driver_info", "lib_name",
    "lib_version",
}  # fmt: skip
"""Settings of a connection that matter here, beside those of TLS; the others are about commands and replies."""


@functools.cache
def driver(library: str) -> Driver:
    """Of `redis` or `valkey`, as the libraries and our extras are called."""
    return Driver(library, loaded(library, library))


def driver_of(client: Any) -> Driver:
    """The library that a client belongs to, also if its class is the caller's own."""
    homes = [kind.__module__.partition(".")[0] for kind in type(client).__mro__]
    return driver(next(home for home in homes if home in ("redis", "valkey")))


class Driver:
    def __init__(self, library: str, module: Any) -> None:
        self.library = library
        self.kinds: dict[str, Any] = {
            library: module.Connection,
            f"{library}s": module.SSLConnection,
            "unix": module.UnixDomainSocketConnection,
        }
        """By scheme."""
        self._asyncio = importlib.import_module(f"{library}.asyncio")
        self._blocking = importlib.import_module(f"{library}.connection")
        self._connect_func = f"{library}_connect_func"
        self._used = _USED | {self._connect_func}
        retry, backoff = (importlib.import_module(f"{library}.{name}") for name in ("retry", "backoff"))
        self._no_retries = retry.Retry(backoff.NoBackoff(), 0)  # the caller has a patience of its own

    def for_options(self, scheme: str, options: dict[str, Any]) -> tuple[Connect, dict[str, Any]]:
        """How connections are made, and their settings. Takes the options that the library knows out of `options`;
        those about commands and replies are not needed here."""
        kind = self.kinds[scheme]
        known = _known(kind) | {"max_connections"}
        given = {name: options.pop(name) for name in list(options) if name in known}
        settings = {name: parsed(name, value, self._parsers()) for name, value in given.items() if self._is_used(name)}
        is_tls = scheme == f"{self.library}s"
        return functools.partial(self.connect, kind), settings | (_whose_certificate(settings) if is_tls else {})

    def for_client(self, client: Any) -> tuple[str, Connect, dict[str, Any]]:
        """The scheme, and the same for a client, sync or async."""
        pool = client.connection_pool
        if "connection_pool" in pool.connection_kwargs:  # Sentinel's find their server through their pool
            raise ConfigurationError(
                f"the pool of this client finds its server by itself ({type(pool).__qualname__}), in a way that is not "
                "known here: pass a client that Sentinel.master_for() has returned, or one with a host"
            )
        return self.for_pool(pool.connection_class, pool.connection_kwargs)

    def for_pool(self, kind: Any, given: Mapping[str, Any]) -> tuple[str, Connect, dict[str, Any]]:
        """The same for the class of a pool's connections, and their settings."""
        standard = self._standard()
        settings = {name: value for name, value in given.items() if self._is_used(name) or name not in standard}
        if not issubclass(kind, self._blocking.AbstractConnection):
            kind = self.blocking_twin(kind)
            settings = {
                name: value for name, value in settings.items() if self._is_used(name) and name != self._connect_func
            }
        return self.scheme_of(kind), functools.partial(self.connect, kind), settings

    def connect(self, kind: type[Any], settings: Mapping[str, Any]) -> Wire:
        """The library finds the server, and begins the connection; then the socket is ours."""
        connection = kind(**settings, protocol=2, retry=self._no_retries)
        connection.connect()
        wire = Wire(connection._sock, settings["socket_timeout"])
        connection._sock = None
        return wire

    def scheme_of(self, kind: Any) -> str:
        """Of the URL that has such connections, sync or async."""
        kinds: dict[str, Any] = {
            "unix": (self.kinds["unix"], self._asyncio.UnixDomainSocketConnection),
            f"{self.library}s": (self.kinds[f"{self.library}s"], self._asyncio.SSLConnection),
        }
        return next((scheme for scheme, theirs in kinds.items() if issubclass(kind, theirs)), self.library)

    def blocking_twin(self, kind: Any) -> Any:
        return self.kinds[self.scheme_of(kind)]

    def _is_used(self, name: str) -> bool:
        return name in self._used or name.startswith("ssl_")

    def _parsers(self) -> Mapping[str, Any]:
        """What makes a value of an option's text."""
        home = self._blocking if self.library == "redis" else importlib.import_module("valkey._parsers.url_parser")
        parsers: Mapping[str, Any] = home.URL_QUERY_ARGUMENT_PARSERS
        return parsers

    def _standard(self) -> set[str]:
        """What the library itself may set for a connection; the rest is of a class of the caller's own."""
        return {name for kind in (*self.kinds.values(), self._asyncio.Connection) for name in _known(kind)}


def _whose_certificate(given: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a certificate has to be the host's own: always, unless the caller says otherwise, or wants none checked.

    Said in any case, because redis-py before 6.0 would accept one that was made for any host.
    """
    if given.get("ssl_check_hostname") is not None:
        return {}
    return {"ssl_check_hostname": given.get("ssl_cert_reqs", "required") not in ("none", None, ssl.CERT_NONE)}


def _known(kind: type) -> set[str]:
    """The settings that the library's connections of this kind have."""
    makers = [vars(each)["__init__"] for each in kind.__mro__[:-1] if "__init__" in vars(each)]
    return {name for make in makers for name in inspect.signature(make).parameters} - {"self", "args", "kwargs"}
