"""How a connection without TLS is made, for a URL with the usual options: with a socket, and without redis-py.

Importing redis-py takes longer than everything else that a short script does with a lock. `driver.py` is for the rest:
TLS, other options, clients of redis-py.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hiredis import ReplyError

from gripfast.errors import ConfigurationError
from gripfast.stores.redis.protocol import command
from gripfast.stores.redis.wire import Wire

Connect = Callable[[Mapping[str, Any]], Wire]
"""How a connection is made, by its settings."""

OPTIONS: Mapping[str, Any] = {
    "db": int, "username": str, "password": str, "client_name": str, "socket_timeout": float,
    "socket_connect_timeout": float,
}  # fmt: skip
"""Those that are known here, and what makes a value of their text."""
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds, seconds, probes: as redis-py has them, where the system does."""
_NAME = ("CLIENT", "SETINFO", "LIB-NAME", "gripfast")
"""For the server's list of clients. Every connection begins with it: one that is answered is one that works."""
_REFUSED = re.compile("NOAUTH|WRONGPASS|DENIED|.*max number of clients")
"""What ends every connection. Other errors do not matter: a server before 7.2, or one that is no Redis, does not know
that command, and some users have no right to it."""


def connect(settings: Mapping[str, Any]) -> Wire:
    """Raises OSError if the server can't be reached, ReplyError if it refuses."""
    wire = Wire(_connected(settings), settings["socket_timeout"])
    try:
        for words in _greetings(settings):
            reply = wire.ask(command(*(word if isinstance(word, bytes) else str(word).encode() for word in words)))
            if isinstance(reply, ReplyError) and (words is not _NAME or _REFUSED.match(str(reply))):
                raise reply
    except BaseException:
        wire.close()
        raise
    wire.has_answered = False  # no request yet
    return wire


def _greetings(settings: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The commands that a connection begins with."""
    user, password = settings.get("username"), settings.get("password")
    if user or password:
        yield ("AUTH", user, password or "") if user else ("AUTH", password)
    if name := settings.get("client_name"):
        yield "CLIENT", "SETNAME", name
    yield _NAME
    if database := settings.get("db"):
        yield "SELECT", database


def _connected(settings: Mapping[str, Any]) -> socket.socket:
    timeout = settings["socket_connect_timeout"]
    if "path" in settings:
        return _connected_locally(settings["path"], timeout)
    sock = socket.create_connection((settings["host"], settings["port"]), timeout)
    with contextlib.suppress(OSError):  # they are no must, and some systems do not have all of them
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name in _KEEPALIVE.keys() & vars(socket).keys():
            sock.setsockopt(socket.IPPROTO_TCP, vars(socket)[name], _KEEPALIVE[name])
    return sock


def _connected_locally(path: str, timeout: float) -> socket.socket:
    with contextlib.ExitStack() as unless_connected:
        sock = unless_connected.enter_context(socket.socket(socket.AF_UNIX))
        sock.settimeout(timeout)
        sock.connect(path)
        unless_connected.pop_all()
    return sock


def parsed(name: str, value: Any, parsers: Mapping[str, Any]) -> Any:
    """The value of an option whose text stands in a URL."""
    if not isinstance(value, str) or name not in parsers:
        return value
    try:
        return parsers[name](value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} can't be {value!r}: redis-py's documentation lists its values") from None
