"""The blocking driver: threads borrow connections, and wait for their descriptors."""

from __future__ import annotations

import math
import queue
import time
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Sequence

from gripfast.core.ports import Granted
from gripfast.interrupts.guard import Guard
from gripfast.interrupts.living import Living
from gripfast.machine import boottime
from gripfast.stores.inboxes import BlockingInbox, Nothing
from gripfast.stores.sql.conversation import Claims, Conversation
from gripfast.stores.sql.descriptors import is_ready, new_poll
from gripfast.stores.sql.faults import closed, none_free
from gripfast.stores.sql.link import HURRY, ROLLBACK, Decide, Link
from gripfast.stores.sql.listener import BlockingListener
from gripfast.stores.sql.pool import Connection, count_open
from gripfast.stores.sql.ports import Answer, Dialect, Fault, LinkDown, Refusal, Wire
from gripfast.stores.sql.queues import Queues
from gripfast.stores.sql.statement import Query

AWAIT_CLAIMS = 0.25
"""Seconds for an answer that another thread reads."""


class BlockingConnection:
    def __init__(self, wire: Wire, where: str) -> None:
        self.conversation = Conversation.on(wire)
        self.is_open = True
        self._wire = wire
        self._where = where
        self._is_written = True
        self._broken: Fault | None = None
        self._poll = new_poll(wire.fileno())

    def fileno(self) -> int:
        return self._wire.fileno()

    def send(self, queries: Sequence[Query]) -> None:
        if self._broken is not None:
            return
        self.conversation.sent += 1
        try:
            self._is_written = self._wire.send(queries)
        except OSError as error:
            self._broken = self._down(error)

    async def answer(self, until: float, to: Sequence[Query] | None = None) -> Answer | Fault | None:
        wire, conversation = self._wire, self.conversation
        try:
            if to is not None and self._broken is None:  # as send() does: this is on the way of every request
                conversation.sent += 1
                self._is_written = wire.send(to)
            while self._broken is None:
                left = max(0.0, until - boottime())
                if not (self._poll(left * 1000) if self._is_written else is_ready(wire.fileno(), left, to_write=True)):
                    return None
                answer = wire.receive()
                if answer is not None:
                    conversation.answered = conversation.sent
                    conversation.used_at = boottime()
                    if isinstance(answer, Refusal) and answer.kind == "gone":
                        self.is_open = False
                    return answer
                self._is_written = self._is_written or wire.flush()
        except OSError as error:
            self._broken = self._down(error)
        return self._broken

    def cut(self) -> None:
        self.is_open = False
        self._wire.cut()

    def close(self) -> None:
        self.is_open = False
        self._wire.close()

    def _down(self, error: OSError) -> Fault:
        self.is_open = False
        return self.conversation.broken(self._where, error)


def _taken(idle: queue.SimpleQueue[BlockingConnection]) -> BlockingConnection | None:
    try:
        return idle.get_nowait()
    except queue.Empty:
        return None


class Place:
    """Of one waiting thread. It is woken to look for an idle connection, which another thread may take before it: that
    is quick, because a thread that runs goes on. After HURRY it is handed one: that is fair. So nobody starves."""

    __slots__ = ("_handed", "_has_left", "_is_over", "_is_woken", "hurries_at")

    def __init__(self, hurries_at: float) -> None:
        self.hurries_at = hurries_at
        self._has_left = False
        self._handed: BlockingConnection | None = None
        self._is_over = allocate_lock()
        """Taken by the thread that hands it a connection or by the one that leaves, whoever is first."""
        self._is_woken = allocate_lock()
        self._is_woken.acquire()

    def wait(self, seconds: float) -> None:
        self._is_woken.acquire(timeout=seconds)

    def wake(self) -> None:
        try:
            self._is_woken.release()
        except RuntimeError:  # it is awake already
            pass

    def hand(self, connection: BlockingConnection) -> bool:
        if not self._is_over.acquire(blocking=False):
            return False
        self._handed = connection
        self.wake()
        return True

    def take(self) -> BlockingConnection | None:
        """What it was handed. Then there is nothing more to come."""
        connection, self._handed = self._handed, None
        self._has_left = self._has_left or connection is not None
        return connection

    def leave(self) -> BlockingConnection | None:
        """What it was handed; from now on nothing is."""
        if self._has_left:
            return None
        self._has_left = True
        if self._is_over.acquire(blocking=False):
            return None
        if self._handed is None:  # it is being handed one
            self.wait(HURRY)
        return self.take()


class SharedConnections:
    """Those that requests share: as few as do it."""

    def __init__(self, dialect: Dialect, timeout: float, most: int) -> None:
        self._dialect = dialect
        self._timeout = timeout
        self._most = most
        self._idle: queue.SimpleQueue[BlockingConnection] = queue.SimpleQueue()
        self._waiting: deque[Place] = deque()
        """In order of arrival."""
        self._open: Living[BlockingConnection] = Living()
        self._growing = Guard()
        self._reserve: BlockingConnection | None = None
        """For what is urgent while all others are in use."""
        self._failed_at = 0.0
        self._failure: Fault | None = None
        self._is_closed = False

    def borrow(self, started: float, until: float, is_urgent: bool) -> BlockingConnection | Fault:
        if started >= until:
            return none_free(self._dialect.where, self._most, 0.0)
        try:
            return self._idle.get_nowait()  # as _taken() does: this is on the way of every request
        except queue.Empty:
            pass
        if is_urgent:
            return self._borrow_reserve(until)
        connection = None if count_open(self._open) else self._growing.run(self._grow, started, 1, until)
        return connection or self._wait(started, until) or none_free(self._dialect.where, self._most, until - started)

    def _wait(self, started: float, until: float) -> BlockingConnection | Fault | None:
        place = Place(boottime() + HURRY)
        connection: BlockingConnection | Fault | None = None
        try:
            self._waiting.append(place)
            self._hand_out()  # what was put back just before
            while connection is None and (left := until - boottime()) > 0.0:
                place.wait(min(HURRY, left))
                connection = place.take() or _taken(self._idle)
                if connection is None and boottime() >= place.hurries_at and count_open(self._open) < self._most:
                    # Nobody hands it one meanwhile: to dial may take long.
                    connection = self._leave(place) or self._growing.run(self._grow, started, self._most, until)
                    if connection is None:
                        place = Place(place.hurries_at)
                        self._waiting.appendleft(place)
        finally:
            late = self._leave(place)
            if late is not None and late is not connection:  # it took another meanwhile, or gave up
                self.put_back(late)
            self._hand_out()
        return connection

    def _leave(self, place: Place) -> BlockingConnection | None:
        handed = place.leave()
        try:
            self._waiting.remove(place)
        except ValueError:  # it was, or is being, handed one
            pass
        return handed

    def _hand_out(self) -> None:
        while self._waiting and not self._idle.empty():
            try:
                if boottime() < self._waiting[0].hurries_at:
                    self._waiting[0].wake()
                    break
                self._hand(self._idle.get_nowait())
            except (IndexError, queue.Empty):  # who was there has left, or what was idle is taken
                continue

    def _hand(self, connection: BlockingConnection) -> None:
        """An interrupt in between may cost the connection. It is never lent to two."""
        try:
            is_handed = self._waiting.popleft().hand(connection)
        except IndexError:  # nobody waits any more
            is_handed = False
        if not is_handed:
            self._idle.put(connection)
            if self._is_closed:
                self.close()

    def _borrow_reserve(self, until: float) -> BlockingConnection | Fault:
        """Whatever the others wait for, it is not waited for here."""
        if self._reserve is None or not self._reserve.is_open:
            try:
                self._reserve = self._dialled(until)
            except LinkDown as down:
                return down.fault
        return self._reserve

    def put_back(self, connection: BlockingConnection) -> None:
        if not connection.is_open:
            connection.close()
        elif connection is not self._reserve:
            self._idle.put(connection)
        if self._is_closed:
            self.close()
        elif self._waiting:
            self._hand_out()

    def close_idle(self, before: float) -> None:
        """Those that have not answered since."""
        for _ in range(self._idle.qsize()):
            connection = _taken(self._idle)
            if connection is None:
                return
            if connection.conversation.used_at < before:
                connection.close()
            else:
                self._idle.put(connection)
        self._hand_out()

    def close(self) -> None:
        self._is_closed = True  # what is still under way closes its own
        self.close_idle(math.inf)
        if self._reserve is not None:
            self._reserve.cut()  # the watchdog may be in the middle of a request

    def _grow(self, started: float, most: int, until: float) -> BlockingConnection | Fault | None:
        """One try for all who came while it was made; None if there are so many already."""
        if (idle := _taken(self._idle)) is not None:
            return idle
        if self._failure is not None and self._failed_at >= started:
            return self._failure
        if count_open(self._open) >= most or boottime() >= until:
            return None
        try:
            connection = self._dialled(until)
        except LinkDown as down:
            self._failed_at, self._failure = boottime(), down.fault
            return down.fault
        self._open.add(connection)
        return connection

    def _dialled(self, until: float) -> BlockingConnection:
        wire = self._dialect.dial(self._timeout, is_shared=True, within=until - boottime())
        return BlockingConnection(wire, self._dialect.where)


class BlockingLink(Link):
    def __init__(
        self,
        dialect: Dialect,
        timeout: float,
        most: int,
        queues: Queues | None = None,
        claims: Claims | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """With `queues` and `claims` it is the twin of a link on asyncio, whose loop reads the answers to claims."""
        super().__init__(dialect, timeout, most, queues, claims)
        self.new_inbox = BlockingInbox
        self.new_session_inbox = BlockingSessionInbox
        self.new_turn = BlockingTurn
        self.listener = self._listener = BlockingListener(dialect, timeout, self.queues)
        self._is_twin = claims is not None
        self._at_end = at_end
        self._shared = SharedConnections(dialect, timeout, self._shared_most)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this driver blocks

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
        connection = self._shared.borrow(started, ends, is_urgent)
        if isinstance(connection, Fault):
            return connection
        if owner is not None:
            if not self._takes_claims:  # what a closed client had is released already
                self._shared.put_back(connection)
                return closed(self.dialect.where)
            self.claims.note(owner, connection.conversation, 1 if decide is None else 2)
        answer = await connection.answer(ends, to=queries)
        if decide is not None:
            answer = await _ended(connection, answer, decide, ends)
        if not isinstance(answer, list):
            answer = self.judged(connection, answer, started, ends)
        self._shared.put_back(connection)
        return answer

    def _close_idle(self, before: float) -> None:
        self._shared.close_idle(before)

    async def await_claims(self, owners: Sequence[str]) -> None:
        ends = boottime() + AWAIT_CLAIMS
        while self._is_twin and boottime() < ends and any(map(self.claims.has_unanswered, owners)):
            time.sleep(0.002)  # noqa: ASYNC251 - this driver blocks

    async def dialled(self, is_shared: bool) -> BlockingConnection | Fault:
        try:
            return BlockingConnection(self.dialect.dial(self.timeout, is_shared), self.dialect.where)
        except LinkDown as down:
            return down.fault

    def reads(self, connection: Connection) -> bool:
        return isinstance(connection, BlockingConnection)

    def stop_waiting(self) -> None:
        super().stop_waiting()
        self._listener.stop()

    async def close(self) -> None:
        self._listener.stop()
        self._shared.close()
        self._own.close()
        self._at_end()


async def _ended(
    connection: BlockingConnection, answer: Answer | Fault | None, decide: Decide, until: float
) -> Answer | Fault | None:
    """A transaction, after the answer to its first request. If this is interrupted, nobody uses the connection again:
    the server rolls back."""
    if isinstance(answer, list):
        answer = await connection.answer(until, to=decide(answer))
    if isinstance(answer, Refusal) and connection.is_open:
        undone = await connection.answer(until, to=ROLLBACK)
        return undone if undone is None or isinstance(undone, Fault) else answer
    return answer


class BlockingTurn:
    """One thread at a time. A thread that is interrupted while it has it keeps it: then the session is cut."""

    def __init__(self) -> None:
        self._taken = allocate_lock()

    def take_now(self) -> bool:
        return self._taken.acquire(blocking=False)

    async def take(self, seconds: float) -> bool:
        return self._taken.acquire(timeout=max(0.0, seconds))

    def leave(self) -> None:
        self._taken.release()


class BlockingSessionInbox(BlockingInbox):
    """Receives what is delivered, and the answer of the connection on which its waiter is in the engine's queue."""

    __slots__ = ("_connection",)

    def __init__(self) -> None:
        super().__init__()
        self._connection: Connection | None = None

    def follow(self, connection: Connection) -> None:
        self._connection = connection

    async def hear(self, until: float) -> Granted | None:
        connection, self._connection = self._connection, None
        if connection is None:
            return await super().hear(until)
        push = self.take(0.0)
        if isinstance(push, Nothing) and connection.is_open:
            is_ready(connection.fileno(), until - boottime())
            return None
        return None if isinstance(push, Nothing) else push
