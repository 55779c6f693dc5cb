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
from gripfast.stores.redis import protocol
from gripfast.stores.redis.conversation import IDLE_MOST, Lending, Server, left_for_request
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.faults import cut, no_reply
from gripfast.stores.redis.listening import Listening, ListeningInbox
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
        self.clean_up = clean_up or functools.partial(server.clean_up, parks=True)
        self._notifications = Notifications(dialer, self.inboxes, server)
        self.inbox = functools.partial(ListeningInbox, self._notifications)
        self._at_end = at_end

    def ask(self, packed: bytes, owner: str | None = None) -> Any:
        try:
            wire, within = (self._idle.pop(), math.inf) if self._idle else self._dial(math.inf)
        except LinkDown as down:
            return down.fault
        except IndexError:  # another thread was quicker
            return self.ask(packed, owner)
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

    def ask_acked(
        self, commands: Sequence[bytes], wait: bytes, within: float = math.inf, owner: str | None = None
    ) -> Any:
        """The lent connection carries both, and no other."""
        return self._ask_many([*commands, wait], within, owner)

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
