"""Connections that belong to one lock each, while it needs one; those that are idle are kept for the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from gripfast.interrupts.guard import Guard
from gripfast.interrupts.living import Living
from gripfast.machine import boottime
from gripfast.stores.sql.conversation import Conversation
from gripfast.stores.sql.descriptors import is_ready
from gripfast.stores.sql.faults import all_in_use
from gripfast.stores.sql.ports import Answer, Fault
from gripfast.stores.sql.statement import Query

IDLE_MOST = 8
"""Connections that are kept."""
TRUSTED = 0.25
"""Seconds after its use in which a connection is not looked at before it is used again."""


class Connection(Protocol):
    conversation: Conversation
    is_open: bool

    def fileno(self) -> int: ...

    def send(self, queries: Sequence[Query]) -> None:
        """What goes wrong is in the answer."""
        ...

    async def answer(self, until: float, to: Sequence[Query] | None = None) -> Answer | Fault | None:
        """To what was sent, or is sent now; None if there is none by then: it is still under way."""
        ...

    def cut(self) -> None:
        """From any thread: the end of the session."""
        ...

    def close(self) -> None:
        """By its own thread or loop."""
        ...


class Reservation:
    """Of a connection that is being made; over when nobody has it, however that came."""


class OwnConnections:
    def __init__(self, where: str, most: int) -> None:
        self._where = where
        self._most = most
        self._idle: deque[Connection] = deque()
        self._open: Living[Connection] = Living()
        self._reserved: Living[Reservation] = Living()
        self._reserving = Guard()
        self._is_closed = False

    def take_idle(self) -> Connection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            is_fresh = boottime() - connection.conversation.used_at < TRUSTED
            # Nothing but the end of the session arrives on an idle one.
            if connection.is_open and (is_fresh or not is_ready(connection.fileno(), 0.0)):
                return connection
            connection.close()

    def reserve(self) -> Reservation | Fault:
        return self._reserving.run(self._reserve) or all_in_use(self._where, self._most)

    def _reserve(self) -> Reservation | None:
        if count_open(self._open) + len(self._reserved) >= self._most:
            return None
        reserved = Reservation()
        self._reserved.add(reserved)
        return reserved

    def add(self, connection: Connection) -> None:
        self._open.add(connection)

    def put_back(self, connection: Connection) -> None:
        if connection.is_open and not self._is_closed and len(self._idle) < IDLE_MOST:
            self._idle.append(connection)
        else:
            connection.close()

    def close_idle(self) -> None:
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def close(self) -> None:
        self._is_closed = True
        self.close_idle()


def count_open(connections: Iterable[Connection]) -> int:
    return sum(connection.is_open for connection in connections)
