"""How a connection begins: `plain.py` or, with TLS, redis-py makes it (`driver.py`); then its server is looked at, and
the layout of its locks.

Sync and async connections begin here, on threads of their own (`bounded`): how long a resolver, TLS or a password's
provider take is nobody's to say, and the caller has a deadline.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from hiredis import HiredisError, ReplyError

from gripfast.bounded import Calls
from gripfast.stores import layout
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.redis import protocol
from gripfast.stores.redis.conversation import PING
from gripfast.stores.redis.faults import MAX_CLIENTS, is_elsewhere, no_reply, not_connected, other_layout, refused
from gripfast.stores.redis.wire import Wire

_log = logging.getLogger("gripfast.connection")


class Dialer:
    def __init__(self, where: str, connect: Callable[[], Wire], timeout: float) -> None:
        self.where = where
        self.timeout = timeout
        """Seconds that one request may take, and the making of a connection."""
        self.calls: Calls[Wire] = Calls(Wire.close)
        self.shares_layout = False
        """Other servers have the same locks, and one of them has the number of their layout: a Cluster."""
        self._connect = connect
        self._has_looked = False

    def dial(self, within: float = math.inf) -> Wire:
        """A connection with nothing under way on it. Seconds, if that is less than the time-out."""
        return self._in_time(self.connect, within)

    def dial_unseen(self) -> Wire:
        """A connection on which nothing was looked at yet: not for locks."""
        return self._in_time(self._connected)

    def dial_and_ask(self) -> Wire:
        return self._in_time(self.connect_and_ask)

    def subscribe(self, channel: bytes) -> Wire:
        return self._in_time(lambda: self.connect_and_subscribe(channel))

    def _in_time(self, make: Callable[[], Wire], within: float = math.inf) -> Wire:
        try:
            return self.calls.run(make, min(within, self.timeout))
        except TimeoutError as error:
            raise LinkDown(self.late(error)) from None

    def late(self, error: TimeoutError) -> Fault:
        return not_connected(self.where, error)

    # -- for whoever keeps the time: nothing bounds how long these take ------------------------------------------

    def connect(self) -> Wire:
        return self._look_at(self._connected())

    def connect_and_subscribe(self, channel: bytes) -> Wire:
        """A connection on which nothing but the messages of this channel arrives. They are for somebody who has looked
        at the layout on another one."""
        wire = self._connected()
        (reply,) = self._first_replies(wire, protocol.subscribe(channel))
        if isinstance(reply, ReplyError):
            wire.close()
            raise LinkDown(refused(self.where, reply))
        return wire

    def connect_and_ask(self) -> Wire:
        """One that has answered: a server that is stopped accepts connections, too."""
        return self._look_at(self._connected(), PING)

    def _connected(self) -> Wire:
        try:
            wire = self._connect()
        except LinkDown:
            raise
        except Exception as error:  # of any kind: names that can't be encoded, a credential provider's own trouble
            raise LinkDown(not_connected(self.where, error)) from None
        _log.info("connected to %s", self.where, extra={"gripfast_store": self.where})
        return wire

    def _look_at(self, wire: Wire, *questions: bytes) -> Wire:
        """One round trip: at its layout, and at its memory if this is the first connection."""
        if not self._has_looked:
            questions = (protocol.command(b"INFO", b"memory"), *questions)
        *replies, found = self._first_replies(wire, *questions, protocol.read_layout)
        if not self._has_looked:
            self._look_at_memory(wire, replies[0])
            self._has_looked = True
        self._check_layout(wire, found)
        wire.has_answered = bool(questions)
        return wire

    def _check_layout(self, wire: Wire, found: Any) -> None:
        """`stores/layout.py` has the rules."""
        if self.shares_layout and is_elsewhere(found):
            return
        ours = b"%d" % layout.REDIS
        if found is None:
            written, found = self._first_replies(wire, protocol.write_layout(ours), protocol.read_layout)
            found = written if found is None else found
        if found != ours:
            wire.close()
            raise LinkDown(other_layout(self.where, found, layout.REDIS))

    def _look_at_memory(self, wire: Wire, info: Any) -> None:
        """A server that makes room by forgetting keys forgets locks. Only if this user may know."""
        if isinstance(info, ReplyError):
            fault = refused(self.where, info)
            if fault.kind == "login" or MAX_CLIENTS in str(info):
                wire.close()
                raise LinkDown(fault)
        elif (policy := protocol.read_policy(info)) not in ("", "noeviction"):
            _log.warning(
                "%s may evict locks when its memory is full: set its maxmemory-policy to noeviction (it is %s)",
                self.where,
                policy,
                extra={"gripfast_store": self.where},
            )

    def _first_replies(self, wire: Wire, *commands: bytes) -> list[Any]:
        try:
            return wire.ask_stranger(b"".join(commands), len(commands))
        except (OSError, HiredisError) as error:
            wire.close()
            raise LinkDown(no_reply(self.where, self.timeout, error)) from None
