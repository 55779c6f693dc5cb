"""The asyncio driver: requests of all tasks, over a few connections that the loop reads (`aio_connection.py`).

Connections are made by a thread, because names are looked up and handshakes made by drivers that block.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gripfast.interrupts.threads import Background
from gripfast.machine import boottime
from gripfast.stores.local_aio import AioInbox
from gripfast.stores.sql.aio_connection import AioConnection, AioSessionInbox, AioTurn, Then
from gripfast.stores.sql.faults import broken, closed, no_answer_in, none_free, not_notified
from gripfast.stores.sql.link import HURRY, ROLLBACK, Decide, Link
from gripfast.stores.sql.pool import Connection
from gripfast.stores.sql.ports import Answer, Dialect, Fault, LinkDown, Refusal, Wire
from gripfast.stores.sql.statement import Query

_log = logging.getLogger("gripfast.connection")


@dataclass(slots=True, eq=False)
class _Request:
    queries: Sequence[Query]
    owner: str | None
    started: float
    until: float
    reply: asyncio.Future[Answer | Fault]
    """Done, or cancelled, when nobody waits for it any more: what has not left by then never leaves."""
    decide: Decide | None = None
    was_sent: bool = False

    def answer(self, answer: Answer | Fault) -> None:
        if not self.reply.done():
            self.reply.set_result(answer)


class AioLink(Link):
    def __init__(self, dialect: Dialect, timeout: float, most: int) -> None:
        super().__init__(dialect, timeout, most)
        self.new_inbox = AioInbox
        self.new_session_inbox = AioSessionInbox
        self.new_turn = AioTurn
        self.listener = AioListener(self)
        self._loop = asyncio.get_running_loop()
        self._shared: list[AioConnection] = []
        self._reserve: AioConnection | None = None
        """For what is urgent while all others are in use."""
        self._requests: deque[_Request] = deque()
        self._is_growing = False
        self._alive: set[AioConnection] = set()
        self._is_closed = False

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # -- shared connections --------------------------------------------------------------------------------------

    async def request(
        self,
        queries: Sequence[Query],
        owner: str | None = None,
        until: float | None = None,
        is_urgent: bool = False,
        decide: Decide | None = None,
    ) -> Answer | Fault:
        started = boottime()
        ends = started + self.timeout if until is None else until
        if started >= ends:
            return none_free(self.dialect.where, self._shared_most, 0.0)
        request = _Request(queries, owner, started, ends, self._loop.create_future(), decide)
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

    def _forget_the_unwanted(self) -> None:
        """Those that nobody waits for any more, at the head of the queue: all have the same time, or nearly so."""
        while self._requests and self._requests[0].reply.done():
            self._requests.popleft()

    def _hand_out(self) -> None:
        """Requests to connections that are free; another one is made if some have to wait for too long."""
        self._shared = [connection for connection in self._shared if connection.is_open]
        for connection in self._shared:
            self._forget_the_unwanted()
            while self._requests and connection.is_open and not connection.is_busy:
                self._serve(connection, self._requests.popleft())
                self._forget_the_unwanted()
        if self._requests and not self._is_growing and len(self._shared) < self._shared_most:
            self._is_growing = True
            self._loop.call_later(HURRY if self._shared else 0.0, self._grow)

    def _serve_at_once(self, request: _Request) -> None:
        """On any connection that is free, or on one that is kept for this."""
        reserve = [self._reserve] if self._reserve is not None else []
        for connection in (*self._shared, *reserve):
            if connection.is_open and not connection.is_busy:
                self._serve(connection, request)
                return

        def made(connection: AioConnection | Fault) -> None:
            if isinstance(connection, Fault):
                request.answer(connection)
                return
            kept = self._kept_of(connection)
            if not request.reply.done():
                self._serve(kept, request)

        self._dial(True, made, request.until - request.started)

    def _kept_of(self, made: AioConnection) -> AioConnection:
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

    def _grown(self, made: AioConnection | Fault) -> None:
        self._is_growing = False
        if isinstance(made, AioConnection):
            self._shared.append(made)
        elif not self._shared:
            while self._requests:
                self._requests.popleft().answer(made)
        self._hand_out()

    def _serve(self, connection: AioConnection, request: _Request) -> None:
        if request.owner is not None:
            if not self._takes_claims:  # what a closed client had is released already
                request.answer(closed(self.dialect.where))
                return
            self.claims.note(request.owner, connection.conversation, 1 if request.decide is None else 2)
        request.was_sent = True
        overdue = self._loop.call_later(max(0.0, request.until - boottime()), self._overdue, connection, request)

        def then(answer: Answer | Fault) -> None:
            overdue.cancel()
            self._answered(connection, request, answer)

        if request.decide is None:
            connection.request(request.queries, then)
        else:
            _transact(connection, request, request.decide, then)

    def _overdue(self, connection: AioConnection, request: _Request) -> None:
        request.answer(no_answer_in(self.dialect.where, request.until - request.started))
        connection.close()

    def _answered(self, connection: AioConnection, request: _Request, answer: Answer | Fault) -> None:
        if not isinstance(answer, list):
            answer = self.judged(connection, answer, request.started, request.until)
        request.answer(answer)
        self._hand_out()

    def _close_idle(self, before: float) -> None:
        for other in [each for each in self._shared if not each.is_busy and each.conversation.used_at < before]:
            other.close()

    def reads(self, connection: Connection) -> bool:
        return isinstance(connection, AioConnection)

    # -- making and ending ---------------------------------------------------------------------------------------

    async def dialled(self, is_shared: bool) -> AioConnection | Fault:
        made: asyncio.Future[AioConnection | Fault] = self._loop.create_future()

        def then(connection: AioConnection | Fault) -> None:
            if not made.done():
                made.set_result(connection)
            elif isinstance(connection, AioConnection):
                connection.close()

        self._dial(is_shared, then)
        try:
            return await made
        except asyncio.CancelledError:
            if made.done() and not made.cancelled() and isinstance(connection := made.result(), AioConnection):
                connection.close()  # it was made in the same turn of the loop
            raise

    def _dial(self, is_shared: bool, then: Callable[[AioConnection | Fault], None], within: float = math.inf) -> None:
        def connect() -> None:
            made: Wire | Fault
            try:
                made = self.dialect.dial(self.timeout, is_shared, within)
            except LinkDown as down:
                made = down.fault
            except Exception as error:
                _log.exception("unexpected error while connecting to %s. Please report this", self.dialect.where)
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
                then(AioConnection(made, self.dialect.where, self._alive))

        if self._is_closed:
            then(closed(self.dialect.where))
            return
        Background(connect, "gripfast-dial").start()

    async def close(self) -> None:
        self._close()

    def end(self) -> None:
        """From any thread, with or without a loop."""
        try:
            self._loop.call_soon_threadsafe(self._close)
        except RuntimeError:
            for connection in list(self._alive):
                connection.cut()

    def _close(self) -> None:
        self._is_closed, self._takes_claims = True, False
        self._own.close()
        for connection in list(self._alive):
            connection.close()
        while self._requests:
            self._requests.popleft().answer(closed(self.dialect.where))


def _transact(connection: AioConnection, request: _Request, decide: Decide, then: Then) -> None:
    """By callbacks, so that it ends whether somebody waits for it or not."""

    def finish(answer: Answer | Fault) -> None:
        if isinstance(answer, Refusal) and connection.is_open:
            connection.request(ROLLBACK, lambda undone: then(undone if isinstance(undone, Fault) else answer))
        else:
            then(answer)

    def go_on(answer: Answer | Fault) -> None:
        if not isinstance(answer, list):
            finish(answer)
        else:
            connection.request(ROLLBACK if request.reply.done() else decide(answer), finish)

    connection.request(request.queries, go_on)


class AioListener:
    """The loop reads its connection; whoever listens first makes it."""

    def __init__(self, link: AioLink) -> None:
        self._link = link
        self._connection: AioConnection | None = None
        self._channels: set[str] = set()
        self._unwanted: set[str] = set()
        self._opening = asyncio.Lock()

    def listens_to(self, channel: str) -> bool:
        return self._connection is not None and self._connection.is_open and channel in self._channels

    def session(self) -> int:
        return 0 if self._connection is None else self._connection.conversation.session

    async def listen(self, channel: str) -> Fault | None:
        async with self._opening:
            if self.listens_to(channel):
                return None
            connection = self._connection
            if connection is None or not connection.is_open:
                made = await self._opened()
                if isinstance(made, Fault):
                    return made
                connection = made
            scripts = self._link.dialect.scripts
            over = [query for each in self._unwanted for query in scripts.unlisten(each) if each != channel]
            self._unwanted.clear()
            self._channels.add(channel)
            return await self._request(connection, [*over, *scripts.listen(channel)])

    def unlisten(self, channel: str) -> None:
        """At the next occasion: one notification too many does no harm."""
        self._channels.discard(channel)
        self._unwanted.add(channel)

    async def _opened(self) -> AioConnection | Fault:
        made = await self._link.dialled(is_shared=True)
        if isinstance(made, AioConnection):
            if made.conversation.is_proxied:
                made.close()
                return not_notified(self._link.dialect.where)
            self._channels.clear()
            self._connection = made
            made.on_push, made.at_end = self._link.queues.wake_channel, self._link.queues.wake_first
        return made

    async def _request(self, connection: AioConnection, queries: Sequence[Query]) -> Fault | None:
        link = self._link
        if connection.is_busy:  # the task that sent it was cancelled
            await connection.answer(boottime() + link.timeout)
        answer = await connection.answer(boottime() + link.timeout, to=queries)
        if isinstance(answer, list):
            return None
        connection.close()
        if answer is None:
            return no_answer_in(link.dialect.where, link.timeout)
        return answer if isinstance(answer, Fault) else link.dialect.refused(answer)
