"""The asyncio colour: all tasks share one connection for requests, and one more for pushes when somebody waits.

Requests of one turn of the loop leave together; replies are matched in order. A cancelled request keeps its place in
that order, so its reply is read and dropped, and never taken for another's. An interrupt (KeyboardInterrupt) may strike
between what is written or read and the note of it: then nobody knows any more whose reply is next, and the connection
is ended (`_tear`).

Connections are made on a thread (names, TLS and passwords take time), which nobody waits for longer than for a request;
after that the loop itself reads and writes.
"""

from __future__ import annotations

import asyncio
import functools
import math
import secrets
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, cast

from hiredis import HiredisError, ReplyError

from gripfast.errors import ConfigurationError
from gripfast.machine import boottime
from gripfast.stores.inboxes import AioInbox, Inboxes
from gripfast.stores.redis import protocol
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.faults import Fault, LinkDown, cut, is_readonly, not_answered
from gripfast.stores.redis.opening import Line, Plan
from gripfast.stores.redis.trail import Trail
from gripfast.stores.redis.wire import CHUNK, Wire, close_the_dead

_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

PARKED_MOST = 4
"""Connections kept open although the server was silent on them: a clean-up may have to follow what they carry."""
LOOKS = 4
"""How often a time-out's length is looked at: a server counts as silent if nothing came between so many looks."""


class AioLink:
    suspends = True

    def __init__(self, dialer: Dialer, inboxes: Inboxes | None = None, makes_sure: bool = False) -> None:
        """`makes_sure`: a new connection is one that has answered."""
        self.where = dialer.where
        self._timeout = dialer.timeout
        self.inboxes = Inboxes() if inboxes is None else inboxes
        self._loop = asyncio.get_running_loop()
        self._trail: Trail[RequestWire] = Trail()
        self.late = self._trail.late
        self._parked: deque[RequestWire] = deque(maxlen=PARKED_MOST)
        self._makes_sure = makes_sure
        self._is_shut = False
        self.requests = Line(self._loop, dialer, self._plan_requests)
        self.pushes = Line(self._loop, dialer, self._plan_pushes)

    @property
    def channel(self) -> bytes | None:
        wire: _PushWire | None = self.pushes.wire
        return None if wire is None else wire.channel

    def inbox(self) -> AioInbox:
        return AioInbox()

    def ask(self, packed: bytes, owner: str | None = None) -> Awaitable[Any]:
        wire: RequestWire | None = self.requests.latest
        if wire is None or not wire.is_open:
            return self._open_and_ask(packed, owner)
        return wire.ask(packed, owner)

    async def ask_many(self, commands: Sequence[bytes], within: float = math.inf) -> Any:
        try:
            wire: RequestWire = self.requests.wire or await self.requests.open()
        except LinkDown as down:
            return down.fault
        replies = wire.ask_many(b"".join(commands), len(commands))
        if within < self._timeout:
            wire.expect_within(within, told=within, spares=True)
        return await replies

    async def _open_and_ask(self, packed: bytes, owner: str | None) -> Any:
        """A request and the connection made for it have one deadline; at least a tenth of it is the request's."""
        until = boottime() + self._timeout
        try:
            wire: RequestWire = await self.requests.open()
        except LinkDown as down:
            return down.fault
        if self._is_shut and owner is not None:  # whoever releases what a closed client had was here before
            return cut(self.where, None)._replace(was_sent=False)
        reply = wire.ask(packed, owner)
        wire.expect_within(max(self._timeout / 10, until - boottime()), told=self._timeout)
        return await reply

    async def listen(self) -> None:
        if self.pushes.wire is None:
            await self.pushes.open()

    def stop_listening(self, channel: bytes) -> None:
        if channel == self.channel:
            self.pushes.wire.end(None)

    def chase(self, owner: str, packed: bytes) -> bool | None:
        """From any thread, and also when the loop is gone."""
        left = [self._send_after(wire, packed) for wire in self._trail.end(owner)]
        return all(left) if left else None

    def follow(self, owner: str, pack: Callable[[], bytes], is_done: bool) -> bool | None:
        """On the loop: the same on connections that are given up. On the one in use, whatever is asked next follows.

        `is_done`: nothing of this owner has to be followed after this.
        """
        unused = [wire for wire in self._trail.of(owner) if not wire.is_open]
        if not unused:
            return None
        if is_done:
            for wire in self._trail.end(owner):
                if wire.is_open:
                    self._trail.unanswered[owner] = wire
        packed = pack()
        left = [wire.is_silent and wire.send_last(packed) for wire in unused]
        return all(left)

    @property
    def owes_nothing(self) -> bool:
        """Every claim was answered."""
        return not self._trail.unanswered and not self._trail.late

    def shut(self) -> None:
        self._is_shut = True
        self.inboxes.ask_again()

    def close_soon(self) -> None:
        """From any thread, and also when the loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self.close_now)
        except RuntimeError:
            self.requests.drop()
            self.pushes.drop()
            self._drop_parked()

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        self.requests.close()
        self.pushes.close()
        self._drop_parked()

    def _drop_parked(self) -> None:
        while self._parked:
            self._parked.pop().close()
        self._trail.clear()
        close_the_dead()

    def _plan_requests(self, dialer: Dialer) -> Plan:
        make = dialer.connect_and_ask if self._makes_sure else dialer.connect
        return make, lambda base: RequestWire(self._loop, base, dialer, self._trail, self._parked)

    def _plan_pushes(self, dialer: Dialer) -> Plan:
        channel = protocol.new_channel(secrets.token_hex(16))
        make = functools.partial(dialer.connect_and_subscribe, channel)
        return make, lambda base: _PushWire(self._loop, base, dialer, channel, self.inboxes)

    def _send_after(self, wire: RequestWire, packed: bytes) -> bool:
        if not wire.is_open:
            return wire.is_silent and wire.send_last(packed)
        try:
            return bool(self._loop.call_soon_threadsafe(wire.ask_now, packed))
        except RuntimeError:  # the loop is closed: nobody else writes any more
            return wire.send_last(packed)


class _Wire:
    """A socket on the loop. Subclasses say what becomes of a reply, and of the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, base: Wire, dialer: Dialer) -> None:
        self.is_open = True
        self.sock = base.sock
        self._base = base
        self._loop = loop
        self._where = dialer.where
        self._reader = base.reader
        self._unsent: list[bytes] = []
        self._is_flushing = False
        self._is_tls = isinstance(self.sock, ssl.SSLSocket)
        self.sock.setblocking(False)
        try:
            loop.add_reader(self.sock, self._readable)
        except NotImplementedError:
            raise ConfigurationError(
                "Redis needs a selector event loop: asyncio.SelectorEventLoop on Windows"
            ) from None

    def take(self, reply: Any) -> None:
        raise NotImplementedError

    def ended(self, fault: Fault) -> None:
        raise NotImplementedError

    def send_soon(self, packed: bytes) -> None:
        """With everything else of this turn of the loop."""
        self._unsent.append(packed)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Without a word to the loop."""
        self.is_open = False
        self._base.close()

    def end(self, fault: Fault | None, keep: bool = False) -> None:
        """Nothing is read or written any more; `keep` leaves the socket open, so that what was sent still arrives."""
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self.sock)
            self._loop.remove_writer(self.sock)
            if not keep:
                self._base.close()
            self.ended(fault or cut(self._where, None))

    def _tear(self) -> None:
        """Interrupted in the middle: the order of the replies is not known any more."""
        self.end(cut(self._where, None))

    def _flush(self) -> None:
        try:
            self._write()
        except BaseException:
            self._tear()
            raise

    def _write(self) -> None:
        self._is_flushing = False
        if not self.is_open or not self._unsent:
            return
        data = self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)
        try:
            sent = self.sock.send(data)
        except _WOULD_BLOCK:
            sent = 0
        except OSError as error:
            self.end(cut(self._where, error))
            return
        if sent == len(data):
            self._unsent.clear()
            return
        self._unsent[:] = [data[sent:]]
        self._is_flushing = True
        self._loop.add_writer(self.sock, self._writable)

    def _writable(self) -> None:
        self._loop.remove_writer(self.sock)
        self._flush()

    def _readable(self) -> None:
        try:
            self._read()
        except BaseException:
            self._tear()
            raise

    def _read(self) -> None:
        try:
            data = self.sock.recv(CHUNK)
            while self._is_tls and cast(ssl.SSLSocket, self.sock).pending():
                data += self.sock.recv(CHUNK)
        except _WOULD_BLOCK:
            return
        except OSError as error:
            self.end(cut(self._where, error))
            return
        if not data:
            self.end(cut(self._where, None))
            return
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                self.take(reply)
        except HiredisError as error:
            self.end(cut(self._where, error))


class Taker(Protocol):
    """Who is told a reply, or a Fault: a future, or whatever has these two."""

    def done(self) -> bool: ...

    def set_result(self, reply: Any, /) -> None: ...


class RequestWire(_Wire):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        base: Wire,
        dialer: Dialer,
        trail: Trail[RequestWire],
        parked: deque[RequestWire],
    ) -> None:
        self.is_silent = False
        self._spares = False
        """It was left earlier than most of those who asked would have left it."""
        self._awaited: deque[tuple[Taker | _Batch, str | None]] = deque()
        self._trail = trail
        self._parked = parked
        self._answers = 0
        self._answers_before = -1
        self._silent_looks = 0
        self._timeout = dialer.timeout
        self._timer: asyncio.TimerHandle | None = None
        super().__init__(loop, base, dialer)

    def ask(self, packed: bytes, owner: str | None = None) -> asyncio.Future[Any]:
        """The reply, or the Fault."""
        future: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        self.ask_for(future, packed, owner)
        return future

    def ask_now(self, packed: bytes) -> None:
        """Not with everything else of this turn, by whose end it may be closed. It may have been given up already."""
        if self.is_open:
            self.ask(packed)
            self._flush()
        elif self.is_silent:
            self.send_last(packed)

    def ask_for(self, taker: Taker, packed: bytes, owner: str | None) -> None:
        try:
            if owner is not None:
                if owner in self._trail.unanswered:
                    self._trail.repeats(owner)
                self._trail.unanswered[owner] = self
            awaited, unsent = self._awaited, self._unsent
            awaited.append((taker, owner))
            if len(awaited) > 1 or unsent:
                self.send_soon(packed)
            else:
                unsent.append(packed)
                self._write()
            if self._timer is None:
                self._watch()
        except BaseException:
            self._tear()
            raise

    def ask_many(self, packed: bytes, count: int) -> asyncio.Future[Any]:
        """The replies, or the Fault."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.ask_many_for(future, packed, [None] * count)
        return future

    def ask_many_for(self, taker: Taker, packed: bytes, owners: Sequence[str | None]) -> None:
        """For each of the commands, whose claim it is."""
        try:
            for owner in filter(None, owners):
                if owner in self._trail.unanswered:
                    self._trail.repeats(owner)
                self._trail.unanswered[owner] = self
            batch = _Batch(taker, len(owners))
            self._awaited.extend([(batch, owner) for owner in owners])
            self.send_soon(packed)
            self._watch()
        except BaseException:
            self._tear()
            raise

    def expect_within(self, seconds: float, told: float, spares: bool = False) -> None:
        """What was just asked can't wait for as long as others: if nothing is heard until then, it is given up.

        `told`: for how long it was waited, with what came before. `spares`: the others, who would have waited for
        longer, may ask again on the next connection.
        """
        self._loop.call_later(seconds, self._check, self._answers, told, spares)

    def cleans_up(self, owner: str) -> None:
        """A clean-up of this owner leaves on it: nobody has to follow the claim that it follows."""
        self._trail.follows(owner, self)

    def send_last(self, packed: bytes) -> bool:
        """The loop does not use it any more: let this follow what was sent. True if it left."""
        if self._unsent:
            return False
        try:
            return self.sock.send(packed) == len(packed)
        except OSError:
            return False

    def take(self, reply: Any) -> None:
        taker, owner = self._awaited.popleft()
        self._answers += 1
        if type(reply) is ReplyError and is_readonly(reply):
            self._loop.call_soon(self.end, None)  # behind what else has arrived; a new one may lead to the new primary
        if owner is not None:
            self._trail.unanswered.pop(owner, None)
        if type(taker) is _Batch:
            taker.take(reply)
        elif not taker.done():  # type: ignore[union-attr]
            taker.set_result(reply)  # type: ignore[union-attr]

    def ended(self, fault: Fault) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        fault = fault._replace(was_idle=self._spares or (self._answers > 0 and not self.is_silent))
        while self._awaited:
            taker, _ = self._awaited.popleft()
            if isinstance(taker, _Batch):
                taker.fail(fault.copy())
            elif not taker.done():
                taker.set_result(fault.copy())

    def _watch(self) -> None:
        if not self.is_open:
            self.ended(cut(self._where, None))
        elif self._timer is None:
            self._timer = self._loop.call_later(self._timeout / LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._awaited:
            return
        self._silent_looks = self._silent_looks + 1 if self._answers == self._answers_before else 0
        self._answers_before = self._answers
        if self._silent_looks >= LOOKS:
            self._give_up(self._timeout)
        else:
            self._watch()

    def _check(self, answers: int, told: float, spares: bool) -> None:
        if self.is_open and self._awaited and self._answers == answers:
            self._spares = spares
            self._give_up(told)

    def _give_up(self, seconds: float) -> None:
        self.is_silent = True
        self._parked.append(self)
        self.end(not_answered(self._where, seconds), keep=True)


class _Batch:
    """The replies to commands that left together."""

    __slots__ = ("_count", "_has_failed", "_replies", "_taker")

    def __init__(self, taker: Taker, count: int) -> None:
        self._taker = taker
        self._count = count
        self._replies: list[Any] = []
        self._has_failed = False

    def take(self, reply: Any) -> None:
        self._replies.append(reply)
        if len(self._replies) == self._count and not self._taker.done():
            self._taker.set_result(self._replies)

    def fail(self, fault: Fault) -> None:
        """Told once, for all of them."""
        if not self._has_failed and not self._taker.done():
            self._has_failed = True
            self._taker.set_result(fault)


class _PushWire(_Wire):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, base: Wire, dialer: Dialer, channel: bytes, inboxes: Inboxes
    ) -> None:
        self.channel = channel
        self._inboxes = inboxes
        super().__init__(loop, base, dialer)

    def take(self, reply: Any) -> None:
        if (push := protocol.read_push(reply)) and (inbox := self._inboxes.find(push.owner)) is not None:
            cast(AioInbox, inbox).receive(push.granted)

    def ended(self, fault: Fault) -> None:
        """Everyone asks, which opens another."""
        self._inboxes.ask_again()
