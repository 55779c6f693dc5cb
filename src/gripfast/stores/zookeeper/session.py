"""One session of ZooKeeper: a KazooClient, and what may be believed of it.

kazoo says "connected" until it has read that it is not, so its state decides nothing here but that a session is over.
What counts is the last write that was answered, dated by its sending: a follower that is cut off from its leader, and a
leader that does not know yet that it is none, answer reads and pings; the latter even a sync.

Answers are told on kazoo's own thread, at once and without a mutex: a caller that is interrupted while it waits leaves
nothing locked behind that this thread would need.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import queue
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from gripfast.core.ports import Inbox
from gripfast.machine import boottime
from gripfast.stores.zookeeper import protocol
from gripfast.stores.zookeeper.departed import Departed
from gripfast.stores.zookeeper.protocol import Contender
from gripfast.stores.zookeeper.watches import Watches

_log = logging.getLogger("gripfast.connection")

_quiet = logging.getLogger("gripfast.zookeeper")
_quiet.setLevel(logging.INFO)  # below that kazoo writes down every request, passwords included

TLS = ("use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname")
"""What a client keeps of how it was made."""

GUARD_PACE = 0.1
"""Seconds between two looks for those who were not heard of in time."""

CONNECTING_LEAST, CONNECTING_MOST = 1.0, 5.0
"""Seconds for which one server may be silent while a connection is made, however short or long sessions are."""

SHARE = 0.75
"""Of the session's time-out, for which its holder believes in it after the last proof."""


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
    def __init__(self, patience: float) -> None:
        super().__init__()
        self._patience = patience

    def async_result(self) -> Result:
        return Result()

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        return super().create_connection(*args, timeout=min(timeout, self._patience), **kwargs)


class Guardian:
    """Deletes the nodes of those who have not been heard of in time: a loop that stands still, a thread that hangs.

    kazoo's thread goes on pinging for them, so the ensemble would keep their nodes as long as the process lives.
    """

    def __init__(self, delete: Callable[[str], Any]) -> None:
        self._delete = delete
        self._until: dict[str, float] = {}
        self._told: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="gripfast-guardian", daemon=True)

    def believe(self, path: str, until: float) -> None:
        is_first = not self._until
        self._until[path] = until
        if is_first:
            if self._thread.ident is None:
                with contextlib.suppress(RuntimeError):  # another thread has just started it
                    self._thread.start()
            self._told.put(True)

    def forget(self, path: str) -> None:
        self._until.pop(path, None)

    def doubt_all(self) -> None:
        for path in list(self._until):
            self._until[path] = -math.inf

    def stop(self) -> None:
        self._told.put(False)

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            try:
                goes_on = self._told.get(timeout=GUARD_PACE if self._until else 1.0)
            except queue.Empty:
                self._look()

    def _look(self) -> None:
        now = boottime()
        for path, until in list(self._until.items()):
            if now > until and self._until.pop(path, None) is not None:
                _log.warning("nobody has kept %s: it is deleted", path)
                self._delete(path).rawlink(functools.partial(self._deleted, path))

    def _deleted(self, path: str, result: Any) -> None:
        """On kazoo's thread. What a broken connection has left undone is done again."""
        if isinstance(result.exception, ConnectionLoss):
            self.believe(path, -math.inf)


class Session:
    def __init__(self, where: str, make: Callable[[], KazooClient], is_ours: bool) -> None:
        self.where = where
        self.epoch = 0
        """Counts what may be believed: a lease of an earlier one is lost."""
        self.life = 0
        """Counts sessions: what was made in an earlier one is gone."""
        self.departed = Departed()
        self.timeout = 0.0
        """Seconds, as the server has negotiated it; 0 before there is a session."""
        self.proved = -math.inf
        """When the last write left that was answered: by then the session was there, and has its whole time-out."""
        self.client = make()
        self._is_ours = is_ours
        self._is_stopped = False
        self._starts = [True]
        """Taken out by whoever starts it: one of all threads."""
        self._may_have_ended: list[bool] = []
        """The client's thread, by itself, since it has last been heard of: taken out by whoever finds that it has."""
        self._pid = os.getpid()
        self._connected: list[Callable[[], None]] = []
        self._arriving: dict[Callable[[], None], None] = {}
        """Who waits for a connection, or was told of it and has not gone on yet: whoever comes is behind them."""
        self._waiting: weakref.WeakValueDictionary[int, Inbox] = weakref.WeakValueDictionary()
        self.watches = Watches()
        self.guardian = Guardian(self.client.delete_async)
        _watch_negotiation(self.client, weakref.WeakMethod(self._negotiated))
        self._listener = _weakly(weakref.WeakMethod(self._changed))
        self.client.add_listener(self._listener)

    @property
    def is_connected(self) -> bool:
        return bool(self.client.connected) and self.timeout > 0.0

    @property
    def lets_pass(self) -> bool:
        """Connected, and nobody is in line for it who came earlier."""
        return self.is_connected and not self._arriving

    @property
    def share(self) -> float:
        """Seconds for which a proof of the session lasts."""
        return SHARE * self.timeout

    def start(self) -> None:
        """Begins to connect, in the background, and goes on until it is stopped."""
        if self._may_have_ended and self.client.client_state == KeeperState.CLOSED:
            with contextlib.suppress(IndexError):
                self._may_have_ended.pop()
                self._starts.append(True)
        try:
            self._starts.pop()
        except IndexError:
            return
        if self._is_ours:
            self.client.start_async()
        elif self.client.connected and not self.timeout:
            threading.Thread(target=self._probe, name="gripfast-probe", daemon=True).start()

    def when_connected(self, tell: Callable[[], None]) -> None:
        """In the order they came; once, or now and then twice. It is to be ended by `no_longer`."""
        self._arriving[tell] = None
        self._connected.append(tell)
        if self.is_connected:
            self._tell_connected()

    def no_longer(self, tell: Callable[[], None]) -> None:
        with contextlib.suppress(ValueError):
            self._connected.remove(tell)
        self._arriving.pop(tell, None)

    def waits(self, inbox: Inbox) -> None:
        """Have it ask when there is a new connection or a new session: its watch may be gone."""
        self._waiting[id(inbox)] = inbox

    def wake(self) -> None:
        for ref in self._waiting.valuerefs():  # in one step of C: others come and go meanwhile
            if (inbox := ref()) is not None:
                inbox.deliver(None)

    def stop(self) -> None:
        if self._pid != os.getpid():
            return
        self._is_stopped = True
        self.guardian.stop()
        self.client.remove_listener(self._listener)
        if self._is_ours and not self._starts:
            self.client.stop()
            self.client.close()

    def _probe(self) -> None:
        """A client that was connected before we came does not tell what was negotiated. Another session is asked: for
        the same time-out the server gives the same."""
        mine = self.client
        hosts = ",".join(f"{host}:{port}" for host, port in mine.hosts)
        settings = {name: getattr(mine, name) for name in TLS}
        settings |= {"auth_data": list(mine.auth_data), "sasl_options": mine._connection.sasl_options}
        probe = new_client(hosts, mine._session_timeout / 1000, settings)
        _watch_negotiation(probe, weakref.WeakMethod(self._negotiated))
        try:
            probe.start(timeout=mine._session_timeout / 1000)
        except KazooTimeoutError:
            _log.warning("%s: no second session could be had to learn the session's time-out", self.where)
            self._starts.append(True)
        finally:
            probe.stop()
            probe.close()

    def _negotiated(self, milliseconds: int) -> None:
        """On kazoo's thread, after it has told that it is connected. A server may give less than the one before: then
        what was believed is over, though the session is not."""
        timeout = milliseconds / 1000
        if timeout < self.timeout and self._is_ours:
            raise SessionExpiredError("the session's time-out has shrunk: a new one begins")  # kazoo then makes it
        if timeout < self.timeout:
            self.epoch += 1  # before anything is dated by the new one
            self.guardian.doubt_all()
        self.timeout = timeout
        self._look_for_departed()
        self._tell_connected()
        self.wake()

    def _changed(self, state: str) -> None:
        """On kazoo's thread."""
        if state == KazooState.LOST:
            self.life += 1  # first: nobody may take what is made in the new session for something of the old one
            self.epoch += 1
            self.departed = Departed()
            self.timeout = 0.0
        if not self._is_stopped:
            self._may_have_ended[:] = [True]
        self.watches.clear()  # as kazoo does with its own; before the waiters are woken and register anew
        self.wake()

    def _look_for_departed(self) -> None:
        """With every new connection: the servers may have another leader."""
        for parent in self.departed.reconnected():
            self.client.sync_async(parent)
            self.client.get_children_async(parent).rawlink(functools.partial(self._looked, parent))

    def _looked(self, parent: str, children: Any) -> None:
        if children.successful():
            self.send_off(parent, protocol.in_order(children.value))

    def send_off(self, parent: str, line: list[Contender]) -> list[Contender]:
        """The line without those who have left it; they are deleted. If that fails, a new connection comes."""
        stand, back = self.departed.split(line)
        for each in back:
            _log.warning("%s/%s is there again after it was deleted: it is deleted once more", parent, each.node)
            self.client.delete_async(f"{parent}/{each.node}")
        return stand

    def _tell_connected(self) -> None:
        """Told first, then taken out: another thread that tells the next one finds nobody before it untold."""
        while self._connected:
            with contextlib.suppress(IndexError, ValueError):
                tell = self._connected[0]
                tell()
                self._connected.remove(tell)


def _weakly(method: weakref.WeakMethod[Callable[[str], None]]) -> Callable[[str], bool | None]:
    def listener(state: str) -> bool | None:
        call = method()
        if call is None:
            return True  # which removes it
        call(state)
        return None

    return listener


def _watch_negotiation(client: KazooClient, told: weakref.WeakMethod[Callable[[int], None]]) -> None:
    """kazoo keeps what the server has negotiated to itself: two thirds of it are what a read may take. Listened to once
    for each client, however many of ours it serves."""
    connection: Any = client._connection
    if not hasattr(connection, "_gripfast"):
        connection._gripfast = []
        connection._connect = functools.partial(_connect_and_tell, connection._connect, connection._gripfast)
    connection._gripfast[:] = [each for each in connection._gripfast if each() is not None] + [told]


def _connect_and_tell(connect: Callable[..., Any], tellers: list[Any], *args: Any, **kwargs: Any) -> Any:
    read_timeout, connect_timeout = connect(*args, **kwargs)
    for tell in [method() for method in list(tellers)]:
        if tell is not None:
            tell(round(read_timeout * 3 / 2))
    return read_timeout, connect_timeout


def new_client(hosts: str, timeout: float, settings: Mapping[str, Any]) -> KazooClient:
    """That tries to connect for ever, and repeats no request by itself: whoever asks has a patience of its own."""
    patience = max(CONNECTING_LEAST, min(CONNECTING_MOST, timeout / 4))
    client = KazooClient(
        hosts=hosts,
        timeout=timeout,
        handler=Handler(patience),
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0),
        command_retry=KazooRetry(max_tries=0),
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
