"""The asyncio driver: sockets on the loop, for the one connection that all tasks share and the one for notifications.

Requests of one turn of the loop leave together. Connections are made on a thread (names, TLS and passwords take time),
which nobody waits for longer than for a request; after that the loop itself reads and writes.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import ssl
from collections.abc import Callable
from typing import Any, cast

from hiredis import HiredisError

from gripfast.bounded import Call, Calls
from gripfast.errors import ConfigurationError
from gripfast.machine import boottime
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.local_aio import AioInbox
from gripfast.stores.redis import protocol
from gripfast.stores.redis.conversation import NOBODY, Conversation, Server
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.faults import cut
from gripfast.stores.redis.opening import AioOpening, Plan
from gripfast.stores.redis.shared import Listener, SharedLink, outcome_of
from gripfast.stores.redis.wire import CHUNK, Wire

_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class AioLink(SharedLink):
    def __init__(self, dialer: Dialer, inboxes: Inboxes | None = None, makes_sure: bool = False) -> None:
        """`makes_sure`: a new connection is one that has answered."""
        self._loop = loop = asyncio.get_running_loop()
        self.inbox = functools.partial(AioInbox, loop)
        self._dialer = dialer
        self._makes_sure = makes_sure
        self._asides: Calls[Any] = Calls(lambda _: None)
        self._asked_aside: dict[Callable[[], Any], asyncio.Future[Any]] = {}
        """Under way."""
        super().__init__(
            Server(dialer.where, dialer.timeout),
            AioOpening(loop, dialer, self._plan_requests),
            AioOpening(loop, dialer, self._plan_notifications),
            Inboxes() if inboxes is None else inboxes,
            boottime,
            functools.partial(asyncio.Future, loop=loop),
            AioOpening(loop, dialer, self._plan_requests),
        )

    def close_soon(self) -> None:
        """From any thread, and also when the loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self.close_now)
        except RuntimeError:
            self.requests.drop()
            self.notifications.drop()
            self.acknowledged.opening.drop()
            self.server.close()

    async def aside(self, call: Callable[[], Any]) -> Any:
        """Who asks for the same meanwhile shares the answer: so all go on in the order in which they came."""
        told = self._asked_aside.get(call)
        if told is None:
            told = self._asked_aside[call] = self._loop.create_future()
            self._begin_aside(call, told)
        outcome = await asyncio.shield(told)
        if isinstance(outcome, Fault):
            raise LinkDown(outcome.copy())
        return outcome

    def _begin_aside(self, call: Callable[[], Any], told: asyncio.Future[Any]) -> None:
        end = functools.partial(self._end_aside, call, told)
        try:
            begun = self._asides.begin(call, functools.partial(self._from_aside, end))
        except TimeoutError as error:
            self._tell_aside(call, told, self._dialer.late(error))
        else:
            timer = self._loop.call_later(self._dialer.timeout, end, begun)
            told.add_done_callback(lambda _: timer.cancel())

    def _from_aside(self, end: Callable[[Call[Any]], None], begun: Call[Any]) -> None:
        """On another thread."""
        try:
            self._loop.call_soon_threadsafe(end, begun)
        except RuntimeError:  # the loop is closed
            pass

    def _end_aside(self, call: Callable[[], Any], told: asyncio.Future[Any], begun: Call[Any]) -> None:
        """It has ended, or its time is over."""
        if told.done():
            return
        self._tell_aside(call, told, outcome_of(begun, self.server.where, self._dialer.late))

    def _tell_aside(self, call: Callable[[], Any], told: asyncio.Future[Any], outcome: Any) -> None:
        del self._asked_aside[call]
        told.set_result(outcome)

    def _plan_requests(self) -> Plan:
        make = self._dialer.connect_and_ask if self._makes_sure else self._dialer.connect
        return make, lambda base: AioConversation(self._loop, base, self.server)

    def _plan_notifications(self) -> Plan:
        channel = protocol.new_channel(secrets.token_hex(16))
        make = functools.partial(self._dialer.connect_and_subscribe, channel)
        return make, lambda base: _Listener(self._loop, base, self.server, channel, self.inboxes)


class _Socket:
    """A socket on the loop. Subclasses say what becomes of a reply, and of the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, base: Wire, where: str) -> None:
        self.sock = base.sock
        self._base = base
        self._loop = loop
        self._where = where
        self._reader = base.reader
        self._unsent: list[bytes] = []
        self._is_flushing = False
        self._is_tls = isinstance(self.sock, ssl.SSLSocket)
        self.sock.setblocking(False)
        try:
            loop.add_reader(self.sock, self._readable)
        except NotImplementedError:
            raise ConfigurationError(
                "Redis needs an event loop with add_reader(): on Windows use asyncio.SelectorEventLoop"
            ) from None

    is_open: bool
    _is_crowded = False
    """Several requests were made in the last turn of the loop that had to be flushed."""

    def take(self, reply: Any) -> None:
        raise NotImplementedError

    def end(self, fault: Fault | None) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Without a word to the loop."""
        self.is_open = False
        self._base.close()

    def let_go(self, keep: bool) -> None:
        self._loop.remove_reader(self.sock)
        self._loop.remove_writer(self.sock)
        if not keep:
            self._base.close()

    def _flush(self) -> None:
        try:
            self._write()
        except BaseException:
            self.end(None)
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
            self.end(None)
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
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                self.take(reply)
            if self._is_crowded:
                self._flush_next()
        except HiredisError as error:
            self.end(cut(self._where, error))

    def _flush_next(self) -> None:
        pass


class AioConversation(_Socket, Conversation):
    def __init__(self, loop: asyncio.AbstractEventLoop, base: Wire, server: Server) -> None:
        Conversation.__init__(self, server, loop)
        _Socket.__init__(self, loop, base, server.where)

    take = Conversation.take
    end = Conversation.end

    def write(self, packed: bytes) -> None:
        """At once if nothing is under way; otherwise with everything else of this turn of the loop. Where many tasks
        ask in one turn, the first of them waits for the others: the server would answer it alone, and from then on they
        would come in two halves."""
        self._unsent.append(packed)
        if self._is_flushing:
            return
        if not self._is_crowded and len(self.owed) == 1 and len(self._unsent) == 1:
            self._write()
        else:
            self._is_flushing = True
            self._loop.call_soon(self._flush_turn)

    def _flush_turn(self) -> None:
        self._is_crowded = len(self._unsent) > 1
        self._flush()

    def _flush_next(self) -> None:
        """Whoever was told something runs in the next turn of the loop, and may ask again: what they ask leaves at the
        end of that turn, not of the one after it."""
        if self.is_open and not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush_turn)

    def flush(self) -> None:
        if self._unsent and self.is_open:
            self._flush()

    def follow(self, packed: bytes) -> bool:
        if not self.is_open:
            return self.is_silent and self._send_last(packed)
        try:
            return bool(self._loop.call_soon_threadsafe(self._follow_now, packed))
        except RuntimeError:  # the loop is closed: nobody else writes any more
            return self._send_last(packed)

    def _follow_now(self, packed: bytes) -> None:
        """Not with everything else of this turn, by whose end it may be closed. It may have been given up already."""
        if self.is_open:
            self.ask_many_for(NOBODY, packed, [None] * protocol.replies_to(packed))
            self._flush()
        elif self.is_silent:
            self._send_last(packed)

    def _send_last(self, packed: bytes) -> bool:
        """The loop does not use it any more."""
        if self._unsent:
            return False
        try:
            return self.sock.send(packed) == len(packed)
        except OSError:
            return False


class _Listener(_Socket, Listener):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, base: Wire, server: Server, channel: bytes, inboxes: Inboxes
    ) -> None:
        Listener.__init__(self, server, channel, inboxes)
        _Socket.__init__(self, loop, base, server.where)  # the loop calls it from now on, even after an interrupt
        self.begin()

    end = Listener.end

    def take(self, message: Any) -> None:
        """It is on the loop already."""
        if (push := protocol.read_push(message)) and (inbox := self._inboxes.find(push.owner)) is not None:
            cast(AioInbox, inbox).receive(push.granted)
