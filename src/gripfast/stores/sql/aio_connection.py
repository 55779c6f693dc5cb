"""One connection on an event loop, and those who wait for it.

The loop reads every answer by callbacks, so that a cancelled task leaves nothing unread.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence

from gripfast.machine import boottime
from gripfast.stores.local_aio import AioInbox
from gripfast.stores.sql.conversation import Conversation
from gripfast.stores.sql.faults import broken
from gripfast.stores.sql.pool import Connection
from gripfast.stores.sql.ports import Answer, Fault, Refusal, Wire
from gripfast.stores.sql.statement import Query

Then = Callable[[Answer | Fault], None]


class AioConnection:
    def __init__(self, wire: Wire, where: str, alive: set[AioConnection]) -> None:
        """`alive` keeps it until its end: the loop would not learn that the descriptor is somebody else's by then."""
        self.conversation = Conversation.on(wire)
        self.is_open = True
        self.is_busy = False
        self.on_push: Callable[[str], None] | None = None
        self.at_end: Callable[[], None] | None = None
        self._wire = wire
        self._where = where
        self._loop = asyncio.get_running_loop()
        self._fd = wire.fileno()
        self._then: Then | None = None
        self._answer: asyncio.Future[Answer | Fault] | None = None
        self._alive = alive
        alive.add(self)
        self._loop.add_reader(self._fd, self._read)

    def fileno(self) -> int:
        return self._fd

    def send(self, queries: Sequence[Query]) -> None:
        self._answer = self._loop.create_future()
        self.request(queries, self._set_answer)

    def request(self, queries: Sequence[Query], then: Then) -> None:
        """Have `then` called with the answer, whether somebody still waits for it or not."""
        if self._fd < 0:  # nothing is sent, so that it may be requested elsewhere
            then(broken(self._where, ConnectionError("it is closed"), was_idle=True))
            return
        self.is_busy, self._then = True, then
        self.conversation.sent += 1
        try:
            if not self._wire.send(queries):
                self._loop.add_writer(self._fd, self._write_on)
        except OSError as error:
            self._end(error)

    async def answer(self, until: float, to: Sequence[Query] | None = None) -> Answer | Fault | None:
        if to is not None:
            self.send(to)
        answer = self._answer
        assert answer is not None
        if not answer.done():
            await asyncio.wait([answer], timeout=max(0.0, until - boottime()))
        return answer.result() if answer.done() else None

    def when_answered(self, notify: Callable[[], None]) -> None:
        if self._answer is not None:
            self._answer.add_done_callback(lambda _: notify())

    def cut(self) -> None:
        self.is_open = False
        self._wire.cut()

    def close(self) -> None:
        """On the loop's thread."""
        self._end(ConnectionError("it was closed"))

    def _read(self) -> None:
        try:
            answer = self._wire.receive()
            pushes = self._wire.pushes()
        except OSError as error:
            self._end(error)
            return
        if self.on_push is not None:
            for channel in pushes:
                self.on_push(channel)
        if answer is not None:
            self.conversation.answered, self.conversation.used_at = self.conversation.sent, boottime()
            is_over = isinstance(answer, Refusal) and answer.kind == "gone"
            self.is_open = not is_over  # first: the callback may send again at once
            self._call_back(answer)
            if is_over:
                self._end(ConnectionError("the server ended the session"))

    def _write_on(self) -> None:
        try:
            if self._wire.flush():
                self._loop.remove_writer(self._fd)
        except OSError as error:
            self._end(error)

    def _set_answer(self, answer: Answer | Fault) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _call_back(self, answer: Answer | Fault) -> None:
        then, self._then, self.is_busy = self._then, None, False
        if then is not None:
            then(answer)

    def _end(self, error: OSError) -> None:
        self.is_open = False
        if self._fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
                self._loop.remove_writer(self._fd)
            self._fd = -1
            self._alive.discard(self)
            self._wire.close()
            if self.at_end is not None:
                self.at_end()
        self._call_back(self.conversation.broken(self._where, error))


class AioTurn:
    """One task at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    def take_now(self) -> bool:
        return not self._lock.locked() and self._take()

    def _take(self) -> bool:
        """Free, so that it does not suspend."""
        try:
            self._lock.acquire().send(None)
        except StopIteration:
            return True
        return False

    async def take(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._lock.acquire()
        except TimeoutError:
            return False

    def leave(self) -> None:
        self._lock.release()


class AioSessionInbox(AioInbox):
    """Receives what is delivered, and the answer of the connection on which its waiter is in the engine's queue."""

    def follow(self, connection: Connection) -> None:
        assert isinstance(connection, AioConnection)
        me = weakref.ref(self)

        def notify() -> None:
            if (inbox := me()) is not None:
                inbox.receive(None)

        connection.when_answered(notify)
