"""What a driver, blocking or asyncio, offers the stores: the connections of one client to its server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gripfast.core.ports import Inbox
from gripfast.stores.sql.conversation import Claims, Conversation
from gripfast.stores.sql.ports import Answer, Dialect, Fault
from gripfast.stores.sql.queues import Queues
from gripfast.stores.sql.statement import Query


class Connection(Protocol):
    conversation: Conversation
    is_open: bool

    def fileno(self) -> int: ...

    def send(self, queries: Sequence[Query]) -> None:
        """What goes wrong is told by the answer."""
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


class SessionInbox(Inbox, Protocol):
    def follow(self, connection: Connection) -> None:
        """Have its waiter ask when this connection has an answer."""
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
    """Has the first waiter for a name ask when its channel is notified."""

    def listens_to(self, channel: str) -> bool: ...

    async def listen(self, channel: str) -> Fault | None: ...

    def unlisten(self, channel: str) -> None: ...


class Link(Protocol):
    dialect: Dialect
    queues: Queues
    claims: Claims
    timeout: float
    """Seconds for one request."""
    now: Callable[[], float]
    chance: Callable[[], float]
    """Between 0 and 1."""

    @property
    def listener(self) -> Listener: ...

    def new_inbox(self) -> Inbox: ...

    def new_session_inbox(self) -> SessionInbox: ...

    def new_turn(self) -> Turn: ...

    async def pause(self, seconds: float) -> None: ...

    async def request(
        self, queries: Sequence[Query], owner: str | None = None, until: float | None = None, is_urgent: bool = False
    ) -> Answer | Fault:
        """On a connection that is shared. With `owner` this is a claim. What has not left until then, or when nobody
        waits for it any more, never leaves. What is urgent does not queue; there is one such request at a time."""
        ...

    async def await_claims(self, owners: Sequence[str]) -> None:
        """Give the claims of these a moment to be answered, where another thread reads the answers."""
        ...

    async def open(self) -> Connection | Fault:
        """A connection for one lock alone."""
        ...

    def put_back(self, connection: Connection) -> None:
        """It is as it was when it was opened."""
        ...

    def reads(self, connection: Connection) -> bool:
        """Whether its answers can be awaited here."""
        ...

    def leave_server(self) -> None:
        """It takes no writes: connections that nobody uses are closed, and the next request makes a new one."""
        ...

    def stop_waiting(self) -> None:
        """The client is being closed: claims that have not left do not leave any more."""
        ...

    async def close(self) -> None: ...
