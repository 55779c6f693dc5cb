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
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState

from gripfast.core.ports import Inbox
from gripfast.machine import boottime
from gripfast.stores.zookeeper import protocol
from gripfast.stores.zookeeper.departed import Departed
from gripfast.stores.zookeeper.driver import Attempts, new_client
from gripfast.stores.zookeeper.janitor import Janitor
from gripfast.stores.zookeeper.protocol import Contender
from gripfast.stores.zookeeper.watches import Watches

_log = logging.getLogger("gripfast.connection")

TLS = ("use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname")
"""What a client keeps of how it was made."""

GUARD_PACE = 0.1
"""Seconds between two looks for those who were not heard of in time."""

SHARE = 0.75
"""Of the session's time-out, for which its holder believes in it after the last proof."""


class Guardian:
    """Deletes the nodes of those who have not been heard of in time: a loop that stands still, a thread that hangs.

    kazoo's thread goes on pinging for them, so the ensemble would keep their nodes as long as the process lives.
    """

    def __init__(self, delete: Callable[[str], Any], janitor: Janitor) -> None:
        self._delete = delete
        self._janitor = janitor
        """Has no thread of its own."""
        self._looked = -math.inf
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
            with contextlib.suppress(queue.Empty):
                goes_on = self._told.get(timeout=GUARD_PACE if self._until or self._janitor.is_busy else 1.0)
            now = boottime()
            if goes_on and now >= self._looked + GUARD_PACE:  # it may be told of something much more often
                self._looked = now
                self._look(now)
                self._tidy(now)

    def _look(self, now: float) -> None:
        for path, until in list(self._until.items()):
            if now > until and self._until.pop(path, None) is not None:
                _log.warning("nobody has kept %s: it is deleted", path)
                self._delete(path).rawlink(functools.partial(self._deleted, path))

    def _tidy(self, now: float) -> None:
        try:
            self._janitor.tick(now)
        except Exception:
            _log.exception("unexpected error while idle names were cleared away; it is tried again")

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
        self._impatient: dict[Callable[[], None], int] = {}
        """Those of them who do not wait for servers that refuse, and what had begun by then: only later ones count."""
        self._arriving: dict[Callable[[], None], None] = {}
        """Who waits for a connection, or was told of it and has not gone on yet: whoever comes is behind them."""
        self._waiting: weakref.WeakValueDictionary[int, Inbox] = weakref.WeakValueDictionary()
        self.watches = Watches()
        self.janitor = Janitor(self.client)
        self.guardian = Guardian(self.client.delete_async, self.janitor)
        self._attempts = Attempts.of(self.client)
        self._attempts.when_negotiated(self._negotiated)
        self._attempts.when_refused(self._refused)
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

    @property
    def troubles(self) -> Mapping[str, str]:
        """Why there is no connection, by server, as far as it is known."""
        return self._attempts.errors

    def when_connected(self, tell: Callable[[], None], or_refused: bool) -> None:
        """In the order they came; once, or now and then twice. It is to be ended by `no_longer`. With `or_refused` also
        when all servers have refused, or none was found, after one more attempt at once."""
        self._arriving[tell] = None
        self._connected.append(tell)
        if or_refused:
            self._impatient[tell] = self._attempts.begun
            self._attempts.hurry()
        if self.is_connected:
            self._tell_connected()

    def no_longer(self, tell: Callable[[], None]) -> None:
        with contextlib.suppress(ValueError):
            self._connected.remove(tell)
        self._impatient.pop(tell, None)
        self._arriving.pop(tell, None)

    def waits(self, inbox: Inbox) -> None:
        """Have it ask when there is a new connection or a new session: its watch may be gone."""
        self._waiting[id(inbox)] = inbox

    def wake(self) -> None:
        for ref in self._waiting.valuerefs():  # in one step of C: others come and go meanwhile
            if (inbox := ref()) is not None:
                inbox.deliver(None)

    def leave_if_silent(self, since: float) -> None:
        """For another connection, with which the session goes on. What was asked for at that moment was not answered,
        nor has anything come since. kazoo does not notice: whatever is sent counts as a ping, answered or not."""
        if self._attempts.heard < since and self.client.connected:
            _log.warning(
                "%s: the connection has been silent for %.1f s: another one is made", self.where, boottime() - since
            )
            with contextlib.suppress(AttributeError, OSError):  # kazoo has just left it, too
                self.client._connection._socket.shutdown(socket.SHUT_RDWR)

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
        Attempts.of(probe).when_negotiated(self._negotiated)
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

    def _refused(self) -> None:
        for tell, begun in self._impatient.copy().items():
            if begun < self._attempts.begun:
                tell()

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
