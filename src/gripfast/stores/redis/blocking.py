"""The blocking driver: a few connections that threads borrow, and one more for notifications when somebody waits."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, cast

from hiredis import HiredisError

from gripfast.core.ports import Inbox
from gripfast.interrupts.guard import Guard
from gripfast.machine import boottime
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.listening import Listening, ListeningInbox
from gripfast.stores.redis import protocol
from gripfast.stores.redis.conversation import IDLE_MOST, Lending, Server, left_for_request, may_repeat, repeated
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.faults import cut, no_reply
from gripfast.stores.redis.unread import Late, Parked, Unread
from gripfast.stores.redis.wire import Wire


class BlockingLink:
    suspends = False

    def __init__(
        self,
        dialer: Dialer,
        idle_most: int = IDLE_MOST,
        clean_up: Callable[[str, bytes], bool | None] | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`clean_up`: where claims were sent whose clean-ups are sent here."""
        self.server = server = Server(dialer.where, dialer.timeout)
        self.inboxes = Inboxes()
        self._dialer = dialer
        self._lending: Lending[Wire] = Lending(server, idle_most)
        self._idle = self._lending.idle
        self._late: Late[Wire] = Late()
        self._unread = self._late.by_name
        self.clean_up = clean_up or functools.partial(server.clean_up, parks=True)
        self._notifications = Notifications(dialer, self.inboxes, server)
        self.inbox = functools.partial(ListeningInbox, self._notifications)
        self._at_end = at_end

    def ask(self, packed: bytes, owner: str | None = None, name: str | None = None) -> Any:
        if self._unread and (parked := self._late.take_for(name, self._dialer.timeout, bool(self._idle))) is not None:
            replies = self._ask_behind(parked, (packed,), owner, name)
            return replies if isinstance(replies, Fault) else replies[0]
        try:
            wire, within = (self._idle.pop(), math.inf) if self._idle else self._dial(math.inf)
        except LinkDown as down:
            return down.fault
        except IndexError:  # another thread was quicker
            return self.ask(packed, owner, name)
        if owner is not None:
            self.server.sends(owner, wire)
        try:
            reply = wire.ask(packed, within)
        except (OSError, HiredisError) as error:
            return self._failed(wire, error)
        self._lending.take_back(wire, owner, (reply,))
        return reply

    def ask_many(self, commands: Sequence[bytes], within: float = math.inf) -> Any:
        return self._ask_many(commands, within, None)

    def ask_behind(self, first: bytes, packed: bytes, owner: str | None = None) -> Any:
        """As `ask`, right behind another command, whose reply does not matter."""
        replies = self._ask_many([first, packed], math.inf, owner)
        return replies if isinstance(replies, Fault) else replies[-1]

    def _ask_many(self, commands: Sequence[bytes], within: float, owner: str | None) -> Any:
        if self._unread and (parked := self._late.take_for(None, 0.0, bool(self._idle))) is not None:
            return self._ask_behind(parked, commands, owner, within=within)
        try:
            wire, left = (self._idle.pop(), within) if self._idle else self._dial(within)
        except LinkDown as down:
            return down.fault
        except IndexError:
            return self._ask_many(commands, within, owner)
        if owner is not None:
            self.server.sends(owner, wire)
        try:
            replies = wire.ask_many(b"".join(commands), len(commands), left)
        except (OSError, HiredisError) as error:
            return self._failed(wire, error, within)
        self._lending.take_back(wire, owner, replies)
        return replies

    # -- releases whose replies nobody waits for (`unread.py`) ---------------------------------------------------

    def send(self, unread: Unread) -> bool:
        parked = self._late.take_to_send(unread.name, bool(self._idle))
        if parked is None and not self._late.is_full and (wire := self._idle_wire()) is not None:
            parked = Parked(wire)
        if parked is None:
            return False
        wire = parked.connection
        try:
            wire.send(unread.words(wire.taught))
        except OSError as error:
            self._failed(wire, error)
            return False
        unread.late_at = boottime() + self._dialer.timeout
        self._late.has_left(parked, unread)
        return True

    async def read_late(self, within: float = 0.0) -> bool:
        until = boottime() + within
        for parked in self._late.take_each():
            self._read_parked(parked, until)
        return bool(self._unread)

    def _read_parked(self, parked: Parked[Wire, Unread], until: float) -> None:
        """What has arrived until then. A server that was silent for too long is asked elsewhere, by a clean-up."""
        wire, reply = parked.connection, None
        try:
            while parked.unread and (reply := wire.late(max(0.0, until - boottime()))) is not None:
                for forgotten in self._late.read(parked, (reply,)):
                    wire.send(forgotten.in_full())
                    self._late.has_left(parked, forgotten)
                    return
        except (OSError, HiredisError) as error:
            self._failed(wire, error)
            return
        if not parked.unread:
            self._lending.take_back(wire, None, (reply,))
        elif boottime() < parked.unread[0].late_at:
            self._late.put_back(parked)

    def _ask_behind(
        self,
        parked: Parked[Wire, Unread],
        commands: Sequence[bytes],
        owner: str | None = None,
        name: str | None = None,
        within: float = math.inf,
    ) -> Any:
        """The replies, when those before them are read. What comes for a name behind its release is asked again if the
        server had forgotten that, and behind it once more if both were lost."""
        wire, owed, packed = parked.connection, len(parked.unread), b"".join(commands)
        if owner is not None:
            self.server.sends(owner, wire)
        try:
            replies = wire.ask_many(packed, owed + len(commands), within)
            forgotten = self._late.read(parked, replies[:owed])
            if forgotten:
                for each in forgotten:
                    self._late.carries(parked, each)
                again = b"".join(each.in_full() for each in forgotten)
                self._late.read(parked, wire.ask_many(again, len(forgotten), within))
                if any(each.name == name for each in forgotten):
                    replies = wire.ask_many(packed, len(commands), within)
        except (OSError, HiredisError) as error:
            fault = self._failed(wire, error, within)
            lost = [each.in_full() for each in parked.unread if each.name == name]
            if not lost or not may_repeat(fault):
                return fault
            replies = repeated(self._ask_many([*lost, *commands], within, owner))
            return replies if isinstance(replies, Fault) else replies[len(lost) :]
        finally:
            parked.unread.clear()  # whoever keeps the frames of an interrupt does not keep these
        replies = replies[-len(commands) :]
        self._lending.take_back(wire, owner, replies)
        return replies

    def _idle_wire(self) -> Wire | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    # ------------------------------------------------------------------------------------------------------------

    def ask_acked(
        self, commands: Sequence[bytes], wait: Sequence[bytes], within: float = math.inf, owner: str | None = None
    ) -> Any:
        """The lent connection carries all of it, and nothing else."""
        return self._ask_many([*commands, *wait], within, owner)

    async def aside(self, call: Callable[[], Any]) -> Any:
        return call()

    def hears(self, inbox: Inbox) -> None:
        """Whoever waits at this inbox, which another Link may have made, waits for notifications from here."""
        cast(ListeningInbox, inbox).listening = self._notifications

    async def listen(self) -> None:
        self._notifications.open()

    def stop_listening(self, channel: bytes) -> None:
        """The idle connections may lead to the server that this one did not lead to: they go with it."""
        self._notifications.end(channel)
        self._lending.drop_idle()

    def disconnect(self) -> None:
        """The next request makes another connection."""
        self._notifications.end(self.server.channel)
        self._lending.drop_idle()

    def stop_waiting(self) -> None:
        self._notifications.close()

    async def close(self) -> None:
        self._notifications.close()
        for wire in self._late.close():
            wire.close()
        self._lending.close()
        self._at_end()

    def _dial(self, within: float) -> tuple[Wire, float]:
        """And the seconds that are left for the request."""
        seconds, started = min(within, self._dialer.timeout), boottime()
        wire = self._dialer.dial(seconds)
        return wire, left_for_request(seconds, boottime() - started)

    def _failed(self, wire: Wire, error: OSError | HiredisError, within: float = math.inf) -> Fault:
        self._lending.drop_idle()
        if not isinstance(error, TimeoutError | BlockingIOError):
            wire.is_sent = False  # nothing can follow on it
        return no_reply(self.server.where, min(within, self._dialer.timeout), error, wire.has_answered)


class Notifications(Listening):
    """The connection on which grants are pushed, and who reads it."""

    def __init__(self, dialer: Dialer, inboxes: Inboxes, server: Server) -> None:
        super().__init__()
        self._server = server
        """Its `channel` is another one for each connection, so that none is blamed for another."""
        self._wire: Wire | None = None
        self._dialer = dialer
        self._inboxes = inboxes
        self._opening = Guard()
        self._failures = 0
        self._failure: Fault
        self._is_closed = False

    def open(self) -> None:
        self._opening.run(self._open, self._failures)

    def close(self) -> None:
        """Whoever listens is told of the end, asks, and is told why."""
        self._is_closed = True
        self._end()

    def end(self, channel: bytes | None) -> None:
        """Nothing can be received on it, though nobody has said so."""
        if channel == self._server.channel:
            self._end()

    def _open(self, failures: int) -> None:
        """One try for all who came while it was made."""
        if self._wire is not None and self._server.channel is not None:
            return
        if self._failures != failures:
            raise LinkDown(self._failure.copy())
        channel = protocol.new_channel(os.urandom(16).hex())
        try:
            wire = self._dialer.subscribe(channel)
        except LinkDown as down:
            self._failures, self._failure = self._failures + 1, down.fault
            raise
        if self._is_closed:
            wire.close()
            raise LinkDown(cut(self._dialer.where, None))
        self._wire, self._server.channel = wire, channel

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
        self._server.channel = None
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.hang_up()  # its reader may be in the middle of it: the last to know it closes it
        self._inboxes.ask_again()
