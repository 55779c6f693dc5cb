"""kazoo's client as it is used here: results without a mutex, attempts to connect that are looked at.

kazoo connects on a thread of its own and goes on for ever. It keeps to itself what a server has negotiated, and why no
server could be reached; both are taken from the inside of its connection.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import queue
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import ForceRetryError, KazooRetry

from gripfast.machine import boottime

_quiet = logging.getLogger("gripfast.zookeeper")
_quiet.setLevel(logging.INFO)  # below that kazoo writes down every request, passwords included

CONNECTING_LEAST, CONNECTING_MOST = 1.0, 5.0
"""Seconds for which one server may be silent while a connection is made, however short or long sessions are."""


class Result:
    """What kazoo calls an async result. Its listeners are called by whoever sets it, and none waits for another."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: BaseException | None = None
        self._is_set = False
        self._listeners: list[Callable[[Any], None]] = []

    def ready(self) -> bool:
        return self._is_set

    def successful(self) -> bool:
        return self._is_set and self.exception is None

    def set(self, value: Any = None) -> None:
        self.value = value
        self._tell()

    def set_exception(self, exception: BaseException) -> None:
        self.exception = exception
        self._tell()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self.wait(timeout if block else 0.0):
            raise KazooTimeoutError
        if self.exception is not None:
            raise self.exception
        return self.value

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def wait(self, timeout: float | None = None) -> bool:
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.rawlink(told.put)
        with contextlib.suppress(queue.Empty):
            told.get(timeout=timeout)
        return self._is_set

    def rawlink(self, callback: Callable[[Any], None]) -> None:
        self._listeners.append(callback)
        if self._is_set:  # added first, then looked: whoever sets it does so the other way round
            self._call_all()

    def unlink(self, callback: Callable[[Any], None]) -> None:
        with contextlib.suppress(ValueError):
            self._listeners.remove(callback)

    def _tell(self) -> None:
        self._is_set = True
        self._call_all()

    def _call_all(self) -> None:
        """Each once, whoever takes it out."""
        while self._listeners:
            try:
                listener = self._listeners.pop(0)
            except IndexError:
                return
            listener(self)


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

    def async_result(self) -> Result:
        return Result()

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        return super().create_connection(*args, timeout=min(timeout, self._patience), **kwargs)


class Attempts:
    """How a client gets on with connecting. Listened to once for each client, however many sessions of ours it serves.
    Everything is told on kazoo's thread."""

    def __init__(self, connection: Any) -> None:
        self.errors: dict[str, str] = {}
        """By server, of the last attempt that failed since there was a connection. Replaced, never changed."""
        self.begun = 0
        """How often kazoo has begun with its first server."""
        self.heard = -math.inf
        """When the last message came, or the connection was made."""
        self._are_all_refused = True
        self._handler = connection.handler
        self._negotiated: list[weakref.WeakMethod[Callable[[int], None]]] = []
        self._refused: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._connect, self._loop = connection._connect, connection._connect_loop
        self._read = connection._read_socket
        connection._connect, connection._connect_loop = self._attempt, self._all_servers
        connection._read_socket = self._hear

    @classmethod
    def of(cls, client: KazooClient) -> Attempts:
        connection: Any = client._connection
        if not hasattr(connection, "_gripfast"):
            connection._gripfast = cls(connection)
        found: Attempts = connection._gripfast
        return found

    def when_negotiated(self, tell: Callable[[int], None]) -> None:
        """With milliseconds: two thirds of the time-out are what a read may take. Held weakly."""
        self._negotiated[:] = [each for each in self._negotiated if each() is not None] + [weakref.WeakMethod(tell)]

    def when_refused(self, tell: Callable[[], None]) -> None:
        """By all servers, one after the other. Held weakly."""
        self._refused[:] = [each for each in self._refused if each() is not None] + [weakref.WeakMethod(tell)]

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
        self.errors, self._are_all_refused, self.heard = {}, False, boottime()
        _call_all(self._negotiated, round(read_timeout * 3 / 2))
        return read_timeout, connect_timeout

    def _all_servers(self, retry: Any) -> Any:
        self.begun += 1
        self._are_all_refused, self._handler.hurries = True, False
        try:
            return self._loop(retry)
        except ForceRetryError:
            if self._are_all_refused:
                _call_all(self._refused)
            raise

    def _hear(self, read_timeout: float) -> Any:
        response = self._read(read_timeout)
        self.heard = boottime()
        return response


def _call_all(methods: list[Any], *args: Any) -> None:
    for method in [each() for each in list(methods)]:
        if method is not None:
            method(*args)


def new_client(hosts: str, timeout: float, settings: Mapping[str, Any]) -> KazooClient:
    """That tries to connect for ever, and repeats no request by itself: whoever asks has a patience of its own."""
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
    """kazoo asks a server for a session, or to go on with one. A server that has just been started may have accepted a
    connection on which it never says anything. Left to itself, kazoo would wait for as long as a session lives, though
    the same server serves whoever comes next."""
    return invoke(min(timeout, patience), *args, **kwargs)
