"""kazoo's client as it is used here. What is taken from inside it is taken here, and nowhere else.

kazoo connects, pings and matches answers to requests, on a thread of its own; none of its recipes and retries are used.
Why its public interface is not enough:

- Requests whose answers arrive without a mutex: `KazooClient._call`. An interrupted caller must leave nothing locked
  that kazoo's thread needs, and kazoo's own results have a mutex.
- The session's negotiated time-out and why a server could not be reached: `_connect` and `_connect_loop` of its
  connection, which know both and keep them.
- When something last arrived: `_read_socket`. kazoo takes whatever it sends for a ping, answered or not, so it does not
  notice that a busy connection is dead.
- Leaving such a connection: `_socket`. kazoo then connects to another server, and the session goes on.
- Not waiting for a whole session for the first word of a server: `_invoke`.
- How a caller's client was set up, and its session: `_session_timeout`, `_session_id`, `_stopped`, and `sasl_options`
  of its connection.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import operator
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import ForceRetryError, KazooRetry

from gripfast.machine import boottime

_quiet = logging.getLogger("gripfast.zookeeper")
# Below INFO kazoo writes down every request, passwords included. A level would override that of `gripfast`.
_quiet.addFilter(lambda record: record.levelno >= logging.INFO)

CONNECTING_LEAST, CONNECTING_MOST = 1.0, 5.0
"""Seconds for which one server may be silent while a connection is made, however short or long sessions are."""
TLS = ("use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname")
"""What a client keeps of how it was made."""
NO_ANSWER = TimeoutError("no answer in time: check whether the server is overloaded, stopped or cut off")


# Requests -------------------------------------------------------------------------------------------------------------

Listener = Callable[["Reply"], object]
"""Called on kazoo's thread."""


@dataclass(slots=True, eq=False)
class Reply:
    """The answer to one request, or the error that is the answer; NO_ANSWER until there is one."""

    request: Any
    listeners: list[Listener]
    """Each is taken out, then called: once, though kazoo may set an answer twice while it is stopped."""
    answer: Any = NO_ANSWER

    @property
    def is_answered(self) -> bool:
        return self.answer is not NO_ANSWER

    def set(self, value: Any = None) -> None:
        """Called by kazoo, as the next one is."""
        self.answer = value
        while self.listeners:
            try:
                listener = self.listeners.pop(0)
            except IndexError:
                return
            listener(self)

    set_exception = set


ANSWER = operator.attrgetter("answer")


class HasClient(Protocol):
    client: KazooClient


def send(calls: Iterable[tuple[HasClient, Any]], *listeners: Listener) -> list[Reply]:
    """Requests, as kazoo's `serialization` has them, with whole paths. Those of one session leave in this order."""
    replies = []
    for sender, request in calls:
        reply = Reply(request, [*listeners])
        sender.client._call(request, reply)
        replies.append(reply)
    return replies


# Connections ----------------------------------------------------------------------------------------------------------


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    hurries = False
    """A caller wants to know now: the pause before the next attempt to connect is skipped."""

    def __init__(self, patience: float) -> None:
        super().__init__()
        self._patience = patience

    def sleep_func(self, seconds: float) -> None:
        """Between two attempts, and then a tenth of a second at a time."""
        if not self.hurries:
            time.sleep(seconds)

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        return super().create_connection(*args, timeout=min(timeout, self._patience), **kwargs)


class Attempts:
    """A client's attempts to connect: one object for each client, however many sessions of ours it serves."""

    def __init__(self, client: KazooClient) -> None:
        connection: Any = client._connection
        self.negotiated = 0
        """The session's time-out in milliseconds, as the last server gave it."""
        self.errors: Mapping[str, str] = {}
        """By server, of the last attempt that failed since there was a connection. Replaced, never changed."""
        self.begun = 0
        """How often kazoo has begun with its first server."""
        self.received = -math.inf
        """When the last message came, or the connection was made."""
        self._are_all_refused = True
        self._handler = connection.handler
        self._listeners: list[weakref.ref[Any]] = []
        """Sessions, called on kazoo's thread."""
        self._connect, self._loop = connection._connect, connection._connect_loop
        self._read = connection._read_socket
        connection._connect, connection._connect_loop = self._attempt, self._all_servers
        connection._read_socket = self._receive
        client.add_listener(self._changed)

    @classmethod
    def of(cls, client: KazooClient) -> Attempts:
        if not hasattr(client, "_gripfast"):
            client._gripfast = cls(client)
        found: Attempts = client._gripfast
        return found

    def add(self, session: Any) -> None:
        self._listeners[:] = [each for each in self._listeners if each() is not None] + [weakref.ref(session)]

    def remove(self, session: Any) -> None:
        self._listeners[:] = [each for each in self._listeners if each() not in (None, session)]

    def _sessions(self) -> list[Any]:
        return [session for each in list(self._listeners) if (session := each()) is not None]

    def _changed(self, state: str) -> None:
        for session in self._sessions():
            session.on_changed(state)

    def hurry(self) -> None:
        self._handler.hurries = True

    def _attempt(self, host: str, address: str, port: int) -> Any:
        try:
            read_timeout, connect_timeout = self._connect(host, address, port)
        except Exception as error:
            cause = error.__context__
            text = getattr(cause, "strerror", None) or str(error) or type(error).__name__
            self.errors = {**self.errors, f"{host}:{port}": text}
            self._are_all_refused &= isinstance(cause, ConnectionRefusedError)
            raise
        self.errors, self._are_all_refused, self.received = {}, False, boottime()
        self.negotiated = round(read_timeout * 3 / 2)  # a read may take two thirds of the time-out
        for session in self._sessions():
            session.on_connected(self.negotiated)
        return read_timeout, connect_timeout

    def _all_servers(self, retry: Any) -> Any:
        self.begun += 1
        self._are_all_refused, self._handler.hurries = True, False
        try:
            return self._loop(retry)
        except ForceRetryError:
            for session in self._sessions() if self._are_all_refused else ():
                session.on_refused()
            raise

    def _receive(self, read_timeout: float) -> Any:
        response = self._read(read_timeout)
        self.received = boottime()
        return response


def disconnect(client: KazooClient) -> None:
    """kazoo connects again; the session goes on."""
    with contextlib.suppress(AttributeError, OSError):  # kazoo has just left the connection, too
        client._connection._socket.shutdown(socket.SHUT_RDWR)


# Clients --------------------------------------------------------------------------------------------------------------


def new_client(hosts: str, timeout: float, settings: Mapping[str, Any]) -> KazooClient:
    """It tries to connect for ever, and repeats no request by itself: each caller has a deadline of its own."""
    patience = max(CONNECTING_LEAST, min(CONNECTING_MOST, timeout / 4))
    handler = Handler(patience)
    pauses = handler.sleep_func
    client = KazooClient(
        hosts=hosts,
        timeout=timeout,
        handler=handler,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0, sleep_func=pauses),
        command_retry=KazooRetry(max_tries=0, sleep_func=pauses),
        logger=_quiet,
        **settings,
    )
    connection: Any = client._connection
    connection._invoke = functools.partial(_greet, connection._invoke, patience)
    return client


def _greet(invoke: Callable[..., Any], patience: float, timeout: float, *args: Any, **kwargs: Any) -> Any:
    """kazoo requests a session, or to go on with one. A server that has just been started may have accepted a
    connection on which it never answers. kazoo would wait for as long as a session lives, though the same server
    answers on the next connection."""
    return invoke(min(timeout, patience), *args, **kwargs)


def is_stopped(client: KazooClient) -> bool:
    """Or was never started. A client that runs need not be connected."""
    return bool(client._stopped.is_set())


def has_sasl(client: KazooClient) -> bool:
    return bool(client._connection.sasl_options)


def session_id(client: KazooClient) -> int:
    """Also while it is not connected."""
    return int(client._session_id)


def probed_timeout(client: KazooClient) -> int | None:
    """What the server gives a session of this client, in milliseconds; None if that can't be learned in time. A client
    that was connected before we came does not show it. Another session that requests the same gets the same."""
    timeout = client._session_timeout / 1000
    hosts = ",".join(f"{host}:{port}" for host, port in client.hosts)
    settings = {name: getattr(client, name) for name in TLS}
    settings |= {"auth_data": list(client.auth_data), "sasl_options": client._connection.sasl_options}
    probe = new_client(hosts, timeout, settings)
    attempts = Attempts.of(probe)
    try:
        probe.start(timeout=timeout)
    except KazooTimeoutError:
        return None
    finally:
        probe.stop()
        probe.close()
    return attempts.negotiated
