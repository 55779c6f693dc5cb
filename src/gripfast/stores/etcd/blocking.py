"""The blocking driver: a few connections that threads borrow, and one more for watches when somebody waits.

A request takes its connection out of a deque, and puts it back only when its answers were read. So one that an
interrupt left in the middle never serves again: it is closed when it dies, and its member cancels what was under way.

The connection for watches has several users: whoever begins a watch writes on it, and one of the waiters reads it
(`stores/listening.py`). Each step on it is guarded; nobody waits in there.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from gripfast.interrupts.guard import Guard
from gripfast.machine import boottime
from gripfast.stores.etcd import faults
from gripfast.stores.etcd.calling import Calling
from gripfast.stores.etcd.dial import Dialer
from gripfast.stores.etcd.link import Notice
from gripfast.stores.etcd.messages import Request
from gripfast.stores.etcd.watches import Watch
from gripfast.stores.etcd.wire import Wire
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.listening import Listening, ListeningInbox

IDLE_MOST = 8
"""Connections that are kept for the next request."""
PING_EVERY = 6.0
"""Seconds in which nothing came, before a member is asked whether it lives. One that is asked more often than every 5 s
ends the connection."""


class BlockingLink(Calling):
    def __init__(self, dialer: Dialer, idle_most: int = IDLE_MOST, at_end: Callable[[], None] = lambda: None) -> None:
        super().__init__(dialer)
        self._idle: deque[tuple[str, Wire]] = deque()
        self._idle_most = idle_most
        self._logging_in = Guard()
        self._login_failures = 0
        self._login_failure: Fault
        self._notifications = Notifications(self, dialer)
        self.inbox = functools.partial(ListeningInbox, self._notifications)
        self._at_end = at_end

    async def watch(
        self,
        key: bytes,
        revision: int,
        notify: Callable[[Notice], None],
        until: float,
        range_end: bytes = b"",
        puts: bool = False,
    ) -> Watch | Fault:
        watch = Watch(notify)
        endpoint = self.members.current
        seconds = min(self.timeout, until - boottime())
        if (trouble := await self._ready_to_watch(endpoint, until)) is None:
            trouble = self._notifications.add(endpoint, seconds, watch, (key, range_end, revision, puts))
        if trouble is None:
            return watch
        if trouble.kind == "down":
            self._leave(endpoint)
        return trouble

    def stop_waiting(self) -> None:
        self._notifications.close()

    async def close(self) -> None:
        self._idle_most = 0  # what is still under way closes its own
        self._notifications.close()
        self._drop_idle(self.endpoints)
        self._at_end()

    # -- requests --------------------------------------------------------------------------------------------------

    async def _exchange(
        self, endpoint: str, requests: Sequence[Request[Any]], until: float, token: str, with_leader: bool
    ) -> list[Any]:
        return self._exchange_now(endpoint, requests, until, token, with_leader)

    def _exchange_now(
        self, endpoint: str, requests: Sequence[Request[Any]], until: float, token: str, with_leader: bool
    ) -> list[Any]:
        try:
            wire = self._idle_wire(endpoint) or self._dialer.dial(endpoint, until - boottime())
        except LinkDown as down:
            return [down.fault.copy() for _ in requests]
        answers = wire.exchange(requests, until, token, with_leader)
        if wire.conversation.takes_calls and len(self._idle) < self._idle_most:
            self._idle.append((endpoint, wire))
        else:
            wire.close()
        return answers

    def _idle_wire(self, endpoint: str) -> Wire | None:
        while True:
            try:
                at, wire = self._idle.pop()
            except IndexError:
                return None
            if at == endpoint and wire.refresh():
                return wire
            wire.close()

    async def _log_in(self, endpoint: str, old: str | None, until: float) -> Fault | None:
        return self._logging_in.run(self._log_in_now, endpoint, old, until, self._login_failures)

    def _log_in_now(self, endpoint: str, old: str | None, until: float, failures: int) -> Fault | None:
        """One try for all who came while it was made."""
        if self.token != old:
            return None
        if self._login_failures != failures:
            return self._login_failure.copy()
        (answer,) = self._exchange_now(endpoint, [self._login_request()], until, "", True)
        trouble = self._took_token(answer)
        if trouble is not None:
            self._login_failures, self._login_failure = self._login_failures + 1, trouble
        return trouble

    def _leave(self, endpoint: str) -> None:
        """Watches that are there may be silent, too."""
        self.members.leave(endpoint)
        self._drop_idle((endpoint,))
        self._notifications.leave(endpoint)

    def _drop_idle(self, endpoints: Sequence[str]) -> None:
        for _ in range(len(self._idle)):
            try:
                at, wire = self._idle.popleft()
            except IndexError:
                return
            if at in endpoints:
                wire.close()
            else:
                self._idle.append((at, wire))


class Notifications(Listening):
    """The connection on which watches are, and who reads it."""

    def __init__(self, link: Calling, dialer: Dialer) -> None:
        super().__init__()
        self._link = link
        self._dialer = dialer
        self._wire: Wire | None = None
        self._endpoint = ""
        self._using = Guard()
        self._opening = Guard()
        self._failures = 0
        self._failure: Fault
        self._is_busy = False
        """An interrupt has left a step in the middle: nothing is known of the connection any more."""
        self._heard_at = 0.0
        self._is_closed = False

    def add(self, endpoint: str, seconds: float, watch: Watch, what: tuple[bytes, bytes, int, bool]) -> Fault | None:
        try:
            self._opening.run(self._open, endpoint, seconds, self._failures)
        except LinkDown as down:
            return down.fault
        if self._using.run(self._step, self._add, watch, what):
            return None
        return faults.cut(self._dialer.where_is(endpoint), None, was_sent=False)

    def _open(self, endpoint: str, seconds: float, failures: int) -> None:
        """If it is not open. One try for all who came while it was made."""
        wire = self._wire
        if wire is not None and wire.conversation.takes_calls and not self._is_busy:
            return
        if self._failures != failures:
            raise LinkDown(self._failure.copy())
        self._using.run(self._end, wire)
        try:
            wire = self._dialer.dial(endpoint, seconds)
        except LinkDown as down:
            self._failures, self._failure = self._failures + 1, down.fault
            raise
        if self._is_closed:
            wire.close()
            raise LinkDown(faults.cut(self._dialer.where, "the client is closed"))
        wire.conversation.when_refused = self._link.watch_refused
        self._endpoint, self._heard_at, self._is_busy, self._wire = endpoint, boottime(), False, wire

    def _step(self, step: Callable[..., None], *args: Any) -> bool:
        """False if there is no connection after it."""
        wire = self._wire
        if wire is None:
            return False
        if not self._is_busy:
            self._is_busy = True
            step(wire, *args)
            self._is_busy = False
            if not wire.conversation.is_over:
                return True
        self._end(wire)
        return False

    def _add(self, wire: Wire, watch: Watch, what: tuple[bytes, bytes, int, bool]) -> None:
        wire.conversation.watch(watch, *what, token=self._link.token or "")
        wire.flush()

    # -- who waits reads -------------------------------------------------------------------------------------------

    def can_read(self) -> bool:
        return self._wire is not None

    def read(self, seconds: float) -> None:
        wire = self._wire
        if wire is None:
            return
        quiet = self._heard_at + PING_EVERY
        asked = wire.conversation.frames.pings_unanswered
        if wire.wait(min(boottime() + seconds, quiet + self._dialer.timeout * asked)):
            self._using.run(self._step, self._receive)
        elif boottime() >= quiet:
            self._using.run(self._step, self._ask_whether_it_lives)

    def _receive(self, wire: Wire) -> None:
        self._heard_at = boottime()
        wire.receive()

    def _ask_whether_it_lives(self, wire: Wire) -> None:
        if boottime() < self._heard_at + PING_EVERY + self._dialer.timeout * wire.conversation.frames.pings_unanswered:
            return
        if wire.conversation.ping():
            wire.flush()
        else:
            wire.conversation.end(faults.not_answered(wire.conversation.where, self._dialer.timeout))
            self._link.members.leave(self._endpoint)

    # -- the end ---------------------------------------------------------------------------------------------------

    def leave(self, endpoint: str) -> None:
        if endpoint == self._endpoint:
            self._using.run(self._end, self._wire)

    def close(self) -> None:
        self._is_closed = True
        self._using.run(self._end, self._wire)

    def _end(self, wire: Wire | None) -> None:
        """Every waiter reads its queue again, and begins another watch."""
        if wire is None:
            return
        if self._wire is wire:
            self._wire = None
        wire.conversation.end()
        wire.hang_up()  # its reader may be in the middle of it: the last to know it closes it
