"""One session of ZooKeeper: a KazooClient, and what may be believed of it.

- Only a write proves that a session lives, dated by the moment before it was sent. kazoo says "connected" until it has
  read that it is not. A follower that is cut off from its leader answers reads and pings. A leader that was stopped and
  replaced answers even a `sync`, and shows nodes, before it knows: measured, 6 of 6.
- A proof counts for 3/4 of the negotiated time-out. The last quarter is for what the leader learns late from its
  followers: at most half a tick.
- A session that is over is another epoch: what was made in an earlier one is gone, and no answer revives it. A time-out
  that became shorter at a reconnection is a new epoch, too: what was believed no longer holds.
- Callers of one client are served in the order they came. A caller that comes together with the connection goes behind
  those that waited for it.

Answers arrive on kazoo's own thread, without a mutex: a caller that is interrupted while it waits leaves nothing locked
that this thread would need.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import SessionExpiredError, WriterNotClosedException
from kazoo.protocol.serialization import Delete, GetChildren, Sync
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from gripfast.core import rules
from gripfast.interrupts.guard import Guard
from gripfast.interrupts.threads import Background
from gripfast.machine import boottime
from gripfast.stores.zookeeper import driver, protocol
from gripfast.stores.zookeeper.deleted import DeletedNodes
from gripfast.stores.zookeeper.driver import Attempts, Reply, send
from gripfast.stores.zookeeper.guardian import Guardian
from gripfast.stores.zookeeper.janitor import Janitor
from gripfast.stores.zookeeper.protocol import Queued
from gripfast.stores.zookeeper.watches import Watches

_log = logging.getLogger("gripfast.connection")

SHARE = 0.75
"""Of the session's time-out, for which its holder believes in it after the last proof."""
TTL_LEAST = 0.75
"""Seconds: sessions for less are lost by a hiccup of the machine. Leases for less end by themselves, in time."""
SESSIONS_MOST = 8
"""Sessions of a client: one for each ttl that its locks have."""


class Session:
    def __init__(self, where: str, client: KazooClient, is_ours: bool) -> None:
        self.where = where
        self.client = client
        self.epoch = 0
        """Counts what may be believed: a lease of an earlier one is lost."""
        self.life = 0
        """Counts sessions: what was made in an earlier one is gone."""
        self.met = -1
        """In which life the layout was looked at (`meeting.py`)."""
        self.share = 0.0
        """Seconds for which a proof counts, as the server has negotiated it; 0 before there is a session."""
        self.connections = 0
        """How many were made."""
        self.proved = -math.inf
        """When the last write was sent that was answered: the session lived, and has had its whole time-out since."""
        self.deleted = DeletedNodes()
        self.watches = Watches()
        self.janitor = Janitor(client)
        self.guardian = Guardian(client, self.janitor)
        self._is_ours = is_ours
        self._has_sasl = driver.has_sasl(client)
        self._is_stopped = False
        self._starts = [True]
        """Taken out by the one thread that starts it."""
        self._starting = Guard()
        """kazoo can't be stopped while it is being started: its thread would never end, or break."""
        self._may_have_ended: list[bool] = []
        """The client's thread, since its state last changed. Taken out by the one thread that finds that it has."""
        self._pid = os.getpid()
        self._connected: list[Callable[[], None]] = []
        """Not notified yet."""
        self._arriving: dict[Callable[[], None], float] = {}
        """Callers that wait for a connection, or were notified of it and have not gone on yet. For those that do not
        wait for servers that refuse, the attempts begun before they came, as only later ones count; else infinite."""
        self._attempts = Attempts.of(client)
        self._attempts.add(self)

    # Connecting -------------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return bool(self.client.connected) and self.share > 0.0

    @property
    def lets_pass(self) -> bool:
        """Connected, and no caller that came earlier still waits for that."""
        return bool(self.client.connected) and self.share > 0.0 and not self._arriving

    @property
    def acl(self) -> Any:
        """For a new node. As the client is now: an identity may be added at any time."""
        has_identity = self.client.auth_data or self._has_sasl
        return self.client.default_acl or (CREATOR_ALL_ACL if has_identity else OPEN_ACL_UNSAFE)

    @property
    def troubles(self) -> Mapping[str, str]:
        """Why there is no connection, by server, as far as it is known."""
        return self._attempts.errors

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
            self._starting.run(self._start_client)
        elif self.client.connected and not self.share:
            Background(self._probe, "gripfast-probe").start()

    def _start_client(self) -> None:
        if not self._is_stopped:
            self.client.start_async()

    def stop(self) -> None:
        if self._pid != os.getpid():
            return
        self._is_stopped = True
        self.guardian.stop()
        self._attempts.remove(self)
        if self._is_ours and not self._starting.run(self._starts.copy):
            self._stop_client()

    def _stop_client(self) -> None:
        try:
            self.client.stop()
        except WriterNotClosedException as error:
            _log.warning("%s: the thread of the connection does not end: %s", self.where, error)
        else:
            self.client.close()

    def when_connected(self, notify: Callable[[], None], or_refused: bool) -> None:
        """Notifies in the order they came; once, or now and then twice, until `no_longer`. With `or_refused` also when
        all servers have refused, or none was found, after one more attempt at once."""
        self._arriving[notify] = self._attempts.begun if or_refused else math.inf
        self._connected.append(notify)
        if or_refused:
            self._attempts.hurry()
        if self.is_connected:
            self._notify_connected()

    def no_longer(self, notify: Callable[[], None]) -> None:
        with contextlib.suppress(ValueError):
            self._connected.remove(notify)
        self._arriving.pop(notify, None)

    def leave_if_silent(self, since: float) -> None:
        """What was requested at that moment has not been answered. If nothing has come since, the connection is dead,
        which kazoo does not notice: another one is made, with which the session goes on."""
        if self._attempts.received < since and self.client.connected:
            silent = boottime() - since
            what = "%s: received nothing for %.1f s; reconnecting"
            _log.warning(what, self.where, silent, extra={"gripfast_store": self.where})
            driver.disconnect(self.client)

    def _notify_connected(self) -> None:
        """Notified first, then taken out: if another thread notifies the next caller, this one has been notified."""
        while self._connected:
            with contextlib.suppress(IndexError, ValueError):
                notify = self._connected[0]
                notify()
                self._connected.remove(notify)

    def on_refused(self) -> None:
        for notify, begun in self._arriving.copy().items():
            if begun < self._attempts.begun:
                notify()

    def _probe(self) -> None:
        if milliseconds := driver.probed_timeout(self.client):
            self.on_connected(milliseconds)
        else:
            what = "%s: a second session, to learn the time-out of your KazooClient, got no answer in time; will retry"
            _log.warning(what, self.where, extra={"gripfast_store": self.where})
            self._starts.append(True)

    def on_connected(self, milliseconds: int) -> None:
        """On kazoo's thread, with the negotiated time-out. A server may give less than the one before: then what was
        believed is over, though the session is not."""
        share = SHARE * milliseconds / 1000
        if share < self.share and self._is_ours:
            raise SessionExpiredError("the server granted a shorter time-out, so a new session begins")  # by kazoo
        if share < self.share:
            self.epoch += 1  # before anything is dated by the new one
            self.guardian.doubt_all()
        self.share = share
        self.connections += 1
        for parent in self.deleted.reconnected():  # the ensemble may have another leader
            send([(self, Sync(parent)), (self, GetChildren(parent, None))], functools.partial(self._listed, parent))
        self._notify_connected()
        self.watches.notify_all()

    def on_changed(self, state: str) -> None:
        """On kazoo's thread."""
        if state == KazooState.LOST:
            self.life += 1  # first: nothing that is made in the new session may be taken for something of the old one
            self.epoch += 1
            self.deleted = DeletedNodes()
            self.share = 0.0
        if not self._is_stopped:
            self._may_have_ended[:] = [True]
        self.watches.notify_all()

    def without_deleted(self, parent: str, queue: list[Queued]) -> list[Queued]:
        """The queue without deleted nodes that have reappeared; they are deleted again. If that fails, a new connection
        comes."""
        queued, back = self.deleted.split(queue)
        for each in back:
            _log.warning("%s/%s reappeared after it was deleted; deleting it again", parent, each.node)
            send([(self, Delete(f"{parent}/{each.node}", -1))])
        return queued

    def _listed(self, parent: str, reply: Reply) -> None:
        if isinstance(reply.request, GetChildren) and not isinstance(reply.answer, BaseException):
            self.without_deleted(parent, protocol.with_owners(reply.answer))


class Sessions:
    """By ttl: the time-out of a session is what a lock with that ttl requests."""

    def __init__(self, make: Callable[[float], Session], is_one: bool) -> None:
        self._make = make
        self._is_one = is_one
        self._making = Guard()
        self._by_ttl: dict[float, Session] = {}

    def __call__(self, ttl: float) -> Session:
        if self._is_one or (not ttl and self._by_ttl):
            ttl = next(iter(self._by_ttl), ttl)
        ttl = max(ttl or rules.TTL_DEFAULT, TTL_LEAST)
        found = self._by_ttl.get(ttl)
        return self._making.run(self._add, ttl) if found is None else found

    def _add(self, ttl: float) -> Session:
        if ttl in self._by_ttl:
            return self._by_ttl[ttl]
        if len(self._by_ttl) >= SESSIONS_MOST:
            fitting = [each for each in self._by_ttl if each <= ttl] or list(self._by_ttl)
            return self._by_ttl[max(fitting)]
        session = self._by_ttl[ttl] = self._make(ttl)
        return session

    def stop(self) -> None:
        for session in list(self._by_ttl.values()):
            session.stop()
