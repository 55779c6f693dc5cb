"""What a driver, blocking or asyncio, offers the stores: the connections of one client to its server."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from gripfast.core.ports import Inbox
from gripfast.machine import boottime
from gripfast.stores.sql.conversation import Claims, verdict
from gripfast.stores.sql.pool import Connection, OwnConnections
from gripfast.stores.sql.ports import Answer, Dialect, Fault, Refusal, Rows
from gripfast.stores.sql.queues import Queues
from gripfast.stores.sql.statement import Query, Statement

HURRY = 0.05
"""Seconds that a request waits for a connection in use before another one is made."""
SHARED_MOST = 4
"""Connections that requests share."""

Decide = Callable[[list[Rows]], Sequence[Query]]
"""Of a transaction: what was answered to its first request, to its second and last one, which ends it."""
ROLLBACK = (Query(Statement("ROLLBACK")),)


class SessionInbox(Inbox, Protocol):
    def follow(self, connection: Connection) -> None:
        """Have its waiter claim again when this connection has an answer."""
        ...


class Turn(Protocol):
    """Of those who use one connection."""

    def take_now(self) -> bool:
        """Whether it was free."""
        ...

    async def take(self, seconds: float) -> bool:
        """Whether it was free within so many seconds."""
        ...

    def leave(self) -> None: ...


class Listener(Protocol):
    """Has the first waiter for a name claim again when its channel is notified."""

    def listens_to(self, channel: str) -> bool: ...

    async def listen(self, channel: str) -> Fault | None: ...

    def unlisten(self, channel: str) -> None: ...

    def session(self) -> int:
        """In which it listens; 0 if it does not."""
        ...


class Link:
    """With what both drivers have."""

    new_inbox: type[Inbox]
    new_session_inbox: type[SessionInbox]
    new_turn: type[Turn]
    listener: Listener

    def __init__(
        self, dialect: Dialect, timeout: float, most: int, queues: Queues | None = None, claims: Claims | None = None
    ) -> None:
        """`most` connections for one lock each."""
        self.dialect = dialect
        self.timeout = timeout
        """Seconds for one request."""
        self.queues = Queues() if queues is None else queues
        self.claims = Claims() if claims is None else claims
        self.now = boottime
        self.chance = random.random
        self._shared_most = min(most, SHARED_MOST)
        self._own = OwnConnections(dialect.where, most)
        self._takes_claims = True

    async def pause(self, seconds: float) -> None:
        raise NotImplementedError

    # -- shared connections --------------------------------------------------------------------------------------

    async def request(
        self,
        queries: Sequence[Query],
        owner: str | None = None,
        until: float | None = None,
        is_urgent: bool = False,
        decide: Decide | None = None,
    ) -> Answer | Fault:
        """On a connection that is shared. With `owner` this is a claim. What has not left until then, or when nobody
        waits for it any more, never leaves. What is urgent does not queue; there is one such request at a time.

        With `decide` this is a transaction, which `queries` begin. The answer is that of its second request. What is
        refused is rolled back."""
        raise NotImplementedError

    def judged(
        self, connection: Connection, answer: Refusal | Fault | None, started: float, until: float
    ) -> Answer | Fault:
        """An answer without rows, for the caller; connections that must not be used after it are closed."""
        judged = verdict(self.dialect, answer, until - started)
        if judged.leaves_server:
            self.leave_server()
        if judged.closes:
            connection.close()
            self._close_idle(started)
        return judged.answer

    def _close_idle(self, before: float) -> None:
        """Those that have not answered since."""
        raise NotImplementedError

    def leave_server(self) -> None:
        """It takes no writes: connections that nobody uses are closed, and the next request makes a new one."""
        self._close_idle(math.inf)
        self._own.close_idle()

    async def await_claims(self, owners: Sequence[str]) -> None:
        """Give the claims of these a moment to be answered, where another thread reads the answers."""

    # -- connections for one lock each ---------------------------------------------------------------------------

    async def open(self) -> Connection | Fault:
        if (idle := self._own.take_idle()) is not None:
            return idle
        reserved = self._own.reserve()
        if isinstance(reserved, Fault):
            return reserved
        made = await self.dialled(is_shared=False)
        if not isinstance(made, Fault):
            self._own.add(made)
        return made

    async def dialled(self, is_shared: bool) -> Connection | Fault:
        raise NotImplementedError

    def put_back(self, connection: Connection) -> None:
        """It is as it was when it was opened."""
        self._own.put_back(connection)

    def reads(self, connection: Connection) -> bool:
        """Whether its answers can be awaited here."""
        raise NotImplementedError

    # -- the end -------------------------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        """The client is being closed: claims that have not left do not leave any more."""
        self._takes_claims = False

    async def close(self) -> None:
        raise NotImplementedError
