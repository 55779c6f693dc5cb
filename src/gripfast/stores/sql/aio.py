"""The asyncio colour: requests of all tasks, over a few connections that the loop reads (`aio_channel.py`).

Connections are made by a thread, because names are looked up and handshakes made by drivers that block.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gripfast.living import Living
from gripfast.machine import boottime
from gripfast.stores.sql.aio_channel import AioChannel, AioTurn, SessionAioInbox
from gripfast.stores.sql.asking import Channel
from gripfast.stores.sql.blocking import HURRY, IDLE_MOST, SHARED_MOST, count_open
from gripfast.stores.sql.faults import (
    all_in_use,
    broken,
    closed,
    gone_is_down,
    is_read_only,
    no_answer_in,
    none_free,
    not_told,
)
from gripfast.stores.sql.line import Lines
from gripfast.stores.sql.ports import Answer, Dialect, Fault, Wire, WireDown
from gripfast.stores.sql.statement import Ask

_log = logging.getLogger("gripfast.connection")


@dataclass(slots=True, eq=False)
class _Request:
    asks: Sequence[Ask]
    owner: str | None
    started: float
    until: float
    reply: asyncio.Future[Answer | Fault]
    """Done, or cancelled, when nobody waits for it any more: what has not left by then never leaves."""
    was_sent: bool = False

    def answer(self, answer: Answer | Fault) -> None:
        if not self.reply.done():
            self.reply.set_result(answer)


class AioLink:
    def __init__(self, dialect: Dialect, timeout: float, most: int) -> None:
        self.dialect = dialect
        self.timeout = timeout
        self.lines = Lines()
        self.claims: dict[str, list[tuple[int, str]]] = {}
        self.now = boottime
        self._loop = asyncio.get_running_loop()
        self._most = most
        self._shared: list[AioChannel] = []
        self._reserve: AioChannel | None = None
        """For what is urgent while all others are in use."""
        self._requests: deque[_Request] = deque()
        self._is_growing = False
        self._alive: set[AioChannel] = set()
        self._own: Living[AioChannel] = Living()
        self._own_dialling = 0
        self._own_idle: list[AioChannel] = []
        self._ear: AioChannel | None = None
        self._heard: set[str] = set()
        self._unwanted: set[str] = set()
        self._listening = asyncio.Lock()
        self._is_shut = False
        self._is_closed = False

    def chance(self) -> float:
        return random.random()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def inbox(self) -> SessionAioInbox:
        return SessionAioInbox()

    def turn(self) -> AioTurn:
        return AioTurn()

    # -- shared connections --------------------------------------------------------------------------------------

    async def ask(
        self, asks: Sequence[Ask], owner: str | None = None, until: float | None = None, is_urgent: bool = False
    ) -> Answer | Fault:
        started = boottime()
        ends = started + self.timeout if until is None else until
        if started >= ends:
            return none_free(self.dialect.where, self._shared_most, 0.0)
        request = _Request(asks, owner, started, ends, self._loop.create_future())
        if is_urgent:
            self._serve_at_once(request)
        else:
            self._requests.append(request)
            self._hand_out()
        try:
            if not request.reply.done():
                await asyncio.wait([request.reply], timeout=max(0.0, ends - started))
            if request.reply.done():
                return request.reply.result()
        finally:
            request.reply.cancel()
            self._forget_the_unwanted()
        if request.was_sent:
            return no_answer_in(self.dialect.where, ends - started)
        return none_free(self.dialect.where, self._shared_most, ends - started)

    @property
    def _shared_most(self) -> int:
        return min(self._most, SHARED_MOST)

    def _forget_the_unwanted(self) -> None:
        """Those that nobody waits for any more, at the head of the queue: all have the same time, or nearly so."""
        while self._requests and self._requests[0].reply.done():
            self._requests.popleft()

    def _hand_out(self) -> None:
        """Requests to connections that are free; another one is made if some have to wait for too long."""
        self._shared = [channel for channel in self._shared if channel.is_open]
        for channel in self._shared:
            self._forget_the_unwanted()
            while self._requests and channel.is_open and not channel.is_busy:
                self._serve(channel, self._requests.popleft())
                self._forget_the_unwanted()
        if self._requests and not self._is_growing and len(self._shared) < self._shared_most:
            self._is_growing = True
            self._loop.call_later(HURRY if self._shared else 0.0, self._grow)

    def _serve_at_once(self, request: _Request) -> None:
        """On any connection that is free, or on one that is kept for this."""
        reserve = [self._reserve] if self._reserve is not None else []
        for channel in (*self._shared, *reserve):
            if channel.is_open and not channel.is_busy:
                self._serve(channel, request)
                return

        def made(channel: AioChannel | Fault) -> None:
            if isinstance(channel, Fault):
                request.answer(channel)
                return
            kept = self._kept_of(channel)
            if not request.reply.done():
                self._serve(kept, request)

        self._dial(True, made, request.until - request.started)

    def _kept_of(self, made: AioChannel) -> AioChannel:
        """The one that is kept, which may be another that was made at the same time."""
        kept = self._reserve
        if kept is not None and kept.is_open and not kept.is_busy:
            made.close()
            return kept
        if kept is not None and kept.is_open:
            self._shared.append(kept)  # it is free when it has answered
        self._reserve = made
        return made

    def _grow(self) -> None:
        self._forget_the_unwanted()
        if self._requests and (not self._shared or boottime() >= self._requests[0].started + HURRY):
            self._dial(True, self._grown)
        else:
            self._is_growing = False
            self._hand_out()

    def _grown(self, made: AioChannel | Fault) -> None:
        self._is_growing = False
        if isinstance(made, AioChannel):
            self._shared.append(made)
        elif not self._shared:
            while self._requests:
                self._requests.popleft().answer(made)
        self._hand_out()

    def _serve(self, channel: AioChannel, request: _Request) -> None:
        if self._is_shut and request.owner is not None:  # whoever releases what a closed client had was here before
            request.answer(closed(self.dialect.where)._replace(was_sent=False))
            return
        request.was_sent = True
        if request.owner is not None:
            late = self.claims.setdefault(request.owner, [])
            late.append((0 if channel.is_proxied else channel.session, channel.birth))
        overdue = self._loop.call_later(max(0.0, request.until - boottime()), self._overdue, channel, request)

        def then(answer: Answer | Fault) -> None:
            overdue.cancel()
            self._answered(channel, request, answer)

        channel.ask(request.asks, then)

    def _overdue(self, channel: AioChannel, request: _Request) -> None:
        request.answer(no_answer_in(self.dialect.where, request.until - request.started))
        channel.close()

    def _answered(self, channel: AioChannel, request: _Request, answer: Answer | Fault) -> None:
        if isinstance(answer, Fault):
            self._drop_idle(request.started)
        elif request.owner is not None:
            late = self.claims.get(request.owner, [])
            session = (0 if channel.is_proxied else channel.session, channel.birth)
            if session in late:  # unless whoever gives back has ended it meanwhile
                late.remove(session)
        if not isinstance(answer, Fault) and is_read_only(answer):
            self.leave_server()
            channel.close()
        request.answer(answer if isinstance(answer, Fault) else gone_is_down(self.dialect, answer))
        self._hand_out()

    def _drop_idle(self, before: float) -> None:
        """Those that have not answered since: they are as old as the one that turned out to be closed, or silent."""
        for other in [each for each in self._shared if not each.is_busy and each.used_at < before]:
            other.close()

    def leave_server(self) -> None:
        self._drop_idle(math.inf)
        while self._own_idle:
            self._own_idle.pop().close()

    async def settle(self, owners: Sequence[str]) -> None:
        """The loop reads the answers; who gives back waits for them on a thread of its own."""

    # -- connections of one's own --------------------------------------------------------------------------------

    async def open(self) -> Channel | Fault:
        while self._own_idle:
            channel = self._own_idle.pop()
            if channel.is_open:
                return channel
        if count_open(self._own) + self._own_dialling >= self._most:
            return all_in_use(self.dialect.where, self._most)
        self._own_dialling += 1
        try:
            made = await self._dialled()
        finally:
            self._own_dialling -= 1
        if isinstance(made, AioChannel):
            self._own.add(made)
        return made

    def give_back(self, channel: Channel) -> None:
        assert isinstance(channel, AioChannel)
        if channel.is_open and not self._is_shut and len(self._own_idle) < IDLE_MOST:
            self._own_idle.append(channel)
        else:
            channel.close()

    def reads(self, channel: Channel) -> bool:
        return isinstance(channel, AioChannel)

    def drop(self, channel: Channel) -> None:
        channel.cut()

    # -- hearing -------------------------------------------------------------------------------------------------

    def hears(self, channel: str) -> bool:
        return self._ear is not None and self._ear.is_open and channel in self._heard

    async def listen(self, channel: str) -> Fault | None:
        async with self._listening:
            if self.hears(channel):
                return None
            ear = self._ear
            if ear is None or not ear.is_open:
                made = await self._dialled(is_shared=True)
                if isinstance(made, Fault):
                    return made
                if made.is_proxied:
                    made.close()
                    return not_told(self.dialect.where)
                self._heard.clear()
                ear = self._ear = made
                ear.on_push, ear.at_end = self.lines.wake_channel, self.lines.wake_first
            scripts = self.dialect.scripts
            over = [ask for each in self._unwanted for ask in scripts.unlisten(each) if each != channel]
            self._unwanted.clear()
            self._heard.add(channel)
            return await self._tell_ear(ear, [*over, *scripts.listen(channel)])

    def stop_listening(self, channel: str) -> None:
        """At the next occasion: one notification too many does no harm."""
        self._heard.discard(channel)
        self._unwanted.add(channel)

    async def _tell_ear(self, ear: AioChannel, asks: Sequence[Ask]) -> Fault | None:
        if ear.is_busy:  # whoever asked was cancelled
            await ear.answer(boottime() + self.timeout)
        ear.send(asks)
        answer = await ear.answer(boottime() + self.timeout)
        if isinstance(answer, list):
            return None
        ear.close()
        if answer is None:
            return no_answer_in(self.dialect.where, self.timeout)
        return answer if isinstance(answer, Fault) else self.dialect.refused(answer)

    # -- making and ending ---------------------------------------------------------------------------------------

    async def _dialled(self, is_shared: bool = False) -> AioChannel | Fault:
        made: asyncio.Future[AioChannel | Fault] = self._loop.create_future()

        def then(channel: AioChannel | Fault) -> None:
            if not made.done():
                made.set_result(channel)
            elif isinstance(channel, AioChannel):
                channel.close()

        self._dial(is_shared, then)
        return await made

    def _dial(self, is_shared: bool, then: Callable[[AioChannel | Fault], None], within: float = math.inf) -> None:
        def connect() -> None:
            made: Wire | Fault
            try:
                made = self.dialect.dial(self.timeout, is_shared, within)
            except WireDown as down:
                made = down.fault
            except Exception as error:
                _log.exception("unexpected error while connecting")
                made = broken(self.dialect.where, OSError(str(error)), was_idle=False)._replace(was_sent=False)
            try:
                self._loop.call_soon_threadsafe(finish, made)
            except RuntimeError:  # the loop is closed
                if not isinstance(made, Fault):
                    made.close()

        def finish(made: Wire | Fault) -> None:
            if isinstance(made, Fault):
                then(made)
            elif self._is_closed:
                made.close()
                then(closed(self.dialect.where))
            else:
                then(AioChannel(made, self.dialect.where, self._alive))

        if self._is_closed:
            then(closed(self.dialect.where))
            return
        threading.Thread(target=connect, name="gripfast-dial", daemon=True).start()

    def shut(self) -> None:
        self._is_shut = True

    async def close(self) -> None:
        self._close()

    def end(self) -> None:
        """From any thread, with or without a loop."""
        try:
            self._loop.call_soon_threadsafe(self._close)
        except RuntimeError:
            for channel in list(self._alive):
                channel.cut()

    def _close(self) -> None:
        self._is_shut = self._is_closed = True
        for channel in list(self._alive):
            channel.close()
        while self._requests:
            self._requests.popleft().answer(closed(self.dialect.where))
