"""The blocking colour: a few connections that threads borrow, and one more for pushes when somebody waits."""

from __future__ import annotations

import math
import secrets
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from hiredis import HiredisError, ReplyError

from gripfast.guard import Guard
from gripfast.machine import boottime
from gripfast.stores.inboxes import BlockingInbox, Inboxes
from gripfast.stores.redis import protocol
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.faults import Fault, LinkDown, cut, is_readonly, no_reply
from gripfast.stores.redis.hearing import Hearing, HearingInbox
from gripfast.stores.redis.trail import Trail
from gripfast.stores.redis.wire import Wire, close_the_dead

IDLE_MOST = 8
"""Connections kept for the next request; more are open only while more threads ask at once."""
PARKED_MOST = 16
"""Connections kept open although their reply is not awaited: a clean-up is still on its way through them."""


class BlockingLink:
    suspends = False

    def __init__(
        self,
        dialer: Dialer,
        idle_most: int = IDLE_MOST,
        chase: Callable[[str, bytes], bool | None] | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.where = dialer.where
        self.inboxes = Inboxes()
        self.channel: bytes | None = None
        self._dialer = dialer
        self._idle: list[Wire] = []
        self._idle_most = idle_most
        self._trail: Trail[Wire] = Trail()
        self.late = self._trail.late
        self._parked: deque[Wire] = deque(maxlen=PARKED_MOST)
        self._pushes = Pushes(dialer, self.inboxes, self)
        self._chase_elsewhere = chase
        self._at_end = at_end

    def inbox(self) -> BlockingInbox:
        return HearingInbox(self._pushes)

    def ask(self, packed: bytes, owner: str | None = None) -> Any:
        within = math.inf
        try:
            if self._idle:
                wire = self._idle.pop()
            else:
                wire, within = self._dial(math.inf)
        except LinkDown as down:
            return down.fault
        except IndexError:  # another thread was quicker
            return self.ask(packed, owner)
        if owner is not None:
            unanswered = self._trail.unanswered
            if owner in unanswered:
                self._trail.repeats(owner)
            unanswered[owner] = wire
        try:
            reply = wire.ask(packed, within)
        except (OSError, HiredisError) as error:
            return self._down(wire, error)
        if owner is not None and unanswered.pop(owner, None) is None:
            return reply  # a clean-up has followed meanwhile, and its reply is still to come
        if type(reply) is ReplyError and is_readonly(reply):
            self._retire(wire)
        elif len(self._idle) < self._idle_most:
            self._idle.append(wire)
        else:
            wire.close()
        return reply

    def ask_many(self, commands: Sequence[bytes], within: float = math.inf) -> Any:
        try:
            wire, left = self._take(within)
        except LinkDown as down:
            return down.fault
        try:
            replies = wire.ask_many(b"".join(commands), len(commands), left)
        except (OSError, HiredisError) as error:
            return self._down(wire, error, within)
        if any(type(reply) is ReplyError and is_readonly(reply) for reply in replies):
            self._retire(wire)
        else:
            self._put_back(wire)
        return replies

    async def listen(self) -> None:
        self._pushes.open()

    def stop_listening(self, channel: bytes) -> None:
        """The idle connections may lead to the server that this one did not lead to: they go with it."""
        self._pushes.end(channel)
        self._drop(self._idle)

    def chase(self, owner: str, packed: bytes) -> bool | None:
        if self._chase_elsewhere is not None:
            return self._chase_elsewhere(owner, packed)
        wires = self._trail.end(owner)
        left = [wire.send_after(packed) for wire in wires]
        self._parked.extend(wires)
        return all(left) if wires else None

    def shut(self) -> None:
        self._pushes.close()

    async def close(self) -> None:
        self._idle_most = 0  # what is still under way closes its own
        self._pushes.close()
        self._drop(self._idle)
        self._drop(self._parked)
        self._trail.clear()
        close_the_dead()
        self._at_end()

    def _drop(self, wires: list[Wire] | deque[Wire]) -> None:
        while True:
            try:
                wires.pop().close()
            except IndexError:
                return

    def _take(self, within: float) -> tuple[Wire, float]:
        """And the seconds that are left for the request."""
        try:
            return self._idle.pop(), within
        except IndexError:
            pass
        return self._dial(within)

    def _dial(self, within: float) -> tuple[Wire, float]:
        """A request and the connection made for it have one deadline; at least a tenth of it is the request's."""
        seconds = min(within, self._dialer.timeout)
        until = boottime() + seconds
        wire = self._dialer.dial(seconds)
        return wire, max(seconds / 10, until - boottime())

    def _put_back(self, wire: Wire) -> None:
        if len(self._idle) < self._idle_most:
            self._idle.append(wire)
        else:
            wire.close()

    def _retire(self, wire: Wire) -> None:
        """Its server was demoted, and stays connected. A new connection may lead to the one that was promoted."""
        wire.close()
        self._drop(self._idle)

    def _down(self, wire: Wire, error: OSError | HiredisError, within: float = math.inf) -> Fault:
        """The idle connections are as old, so they go with it."""
        self._drop(self._idle)
        if not isinstance(error, TimeoutError | BlockingIOError):
            wire.is_sent = False  # nothing can follow on it
        return no_reply(self.where, min(within, self._dialer.timeout), error, wire.has_answered)


class Pushes(Hearing):
    """The connection on which grants are pushed, and who reads it."""

    def __init__(self, dialer: Dialer, inboxes: Inboxes, link: BlockingLink) -> None:
        super().__init__()
        self._link = weakref.proxy(link)
        """Its `channel` is what is listened to: another one for each connection, so that none is blamed for another."""
        self._wire: Wire | None = None
        self._dialer = dialer
        self._inboxes = inboxes
        self._opening = Guard()
        self._failures = 0
        self._failure: Fault
        self._is_shut = False

    def open(self) -> None:
        self._opening.run(self._open, self._failures)

    def close(self) -> None:
        """Whoever listens hears the end, asks, and is told why."""
        self._is_shut = True
        self._end()

    def end(self, channel: bytes) -> None:
        """Nothing can be heard on it, though nobody has said so."""
        if channel == self._link.channel:
            self._end()

    def _open(self, failures: int) -> None:
        """One try for all who came while it was made."""
        if self._wire is not None:
            return
        if self._failures != failures:
            raise LinkDown(self._failure.copy())
        channel = protocol.new_channel(secrets.token_hex(16))
        try:
            wire = self._dialer.subscribe(channel)
        except LinkDown as down:
            self._failures, self._failure = self._failures + 1, down.fault
            raise
        if self._is_shut:
            wire.close()
            raise LinkDown(cut(self._dialer.where, None))
        self._wire, self._link.channel = wire, channel

    def read(self, seconds: float) -> None:
        """One message at most. The end of the connection has everyone ask, which opens another."""
        wire = self._wire
        if wire is None or wire.is_busy:
            self._end()
            return
        try:
            push = protocol.read_push(wire.hear(seconds))
        except (OSError, HiredisError):
            self._end()
            return
        if push is not None:
            self._inboxes.deliver(push.owner, push.granted)

    def _end(self) -> None:
        self._link.channel = None
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.hang_up()  # its reader may be in the middle of it: the last to know it closes it
        self._inboxes.ask_again()
