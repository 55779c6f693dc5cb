"""What an engine gives: connections that never block, and its texts. A driver waits for their descriptors.

An error that the server answers with is a Refusal, an answer like any other: its connection is still good. What is
wrong with a connection is a Fault by the time a store sees it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gripfast.stores.faults import TRANSIENT as TRANSIENT
from gripfast.stores.faults import Fault as Fault
from gripfast.stores.faults import Kind as Kind
from gripfast.stores.faults import LinkDown as LinkDown
from gripfast.stores.sql.statement import Query, Statement, Value

if TYPE_CHECKING:
    from gripfast.stores.sql.permit_ports import PermitScripts
    from gripfast.stores.sql.rw_ports import RWScripts


class Rows(NamedTuple):
    rows: list[tuple[bytes | None, ...]]
    """Raw, as the server wrote them."""
    affected: int
    """Rows written or returned."""


class Refusal(NamedTuple):
    """The server said no, in its words."""

    kind: Kind
    code: str
    message: str


Answer = list[Rows] | Refusal
"""To a request of one or more statements; the first that is refused ends it."""


class SessionGone(ConnectionResetError):
    """The connection has ended because the server has ended the session, and has said so."""


class Wire(Protocol):
    """One connection, used by one thread or loop at a time, with one request under way at most."""

    session: int
    """What the server calls it: backend pid, connection id."""
    birth: str
    """What tells it from another session that the server gives the same number later, after a restart for instance."""
    is_proxied: bool
    """Something between us and the server hands its sessions around: what is said to one is not remembered."""

    def fileno(self) -> int: ...

    def send(self, queries: Sequence[Query]) -> bool:
        """Begin a request, and write as much of it as goes now; True if that is all. OSError if the connection is
        broken."""
        ...

    def flush(self) -> bool:
        """Go on writing; True when all of it is written. OSError."""
        ...

    def receive(self) -> Answer | None:
        """Take in what has arrived; the answer, if it is complete. OSError if the connection has ended."""
        ...

    def pushes(self) -> list[str]:
        """Channels that were notified since the last call, each with a space and what was said, if anything was."""
        ...

    def cut(self) -> None:
        """From any thread, in the middle of anything: the server sees the end of the session."""
        ...

    def close(self) -> None: ...


class Scripts(Protocol):
    """The requests of one engine, each a list of statements that are sent together.

    Their answer is that of their last statement, as it is described here. `held` stands for the columns (owner, token,
    expires_in_us, ttl_us, since_us, holder) of a name, owner NULL if nobody has it. Times are microseconds since the
    epoch by the engine's own clock, at the statement. Names carry the prefix already.
    """

    SCHEMA: tuple[Statement, ...]
    """Makes the tables, and may be run again."""

    def layout_read(self, mode: str, /) -> list[Query]:
        """(number) of the layout, in a table that this mode may read; no row if there is none."""
        ...

    def layout_write(self, mode: str, number: str, /) -> list[Query]:
        """Write it there, unless there is one."""
        ...

    # -- leases; each request commits by itself ------------------------------------------------------------------

    def claim(self, name: str, owner: str, ttl_us: int, holder: str, /) -> list[Query]:
        """`held` afterwards: granted if the owner is this one. Otherwise whoever had it a moment ago, or nobody.

        Who has it already gets the full ttl and keeps the token. A lease that has run out is taken over.
        """
        ...

    def claim_taken(self, name: str, owner: str, ttl_us: int, holder: str, /) -> list[Query]:
        """As `claim`, for a name that seems to be another's: if it is, nothing is locked, not even for a moment."""
        ...

    def register(self, name: str, window_us: int, /) -> list[Query]:
        """`held`; from now on, for the window, somebody waits for it. No row: it was swept."""
        ...

    def renew(self, name: str, owner: str, ttl_us: int, shortens: bool, /) -> list[Query]:
        """One row affected if it was this owner's and had not run out. Never lowers the end unless told to. None, too,
        if somebody else has the row locked: that is not waited for, or it would be in the way of all others."""
        ...

    def renew_waiting(self, name: str, owner: str, ttl_us: int, shortens: bool, wait_us: int, /) -> list[Query]:
        """As `renew`, but waits for whoever has the row locked, queued with others who do: for so long at most, then it
        is refused as busy (MySQL: as soon as the session's own time-out is over)."""
        ...

    def why(self, name: str, owner: str, /) -> list[Query]:
        """(reason, note): broken, taken, expired, or held, if it is still this owner's; no row is expired. The note is
        what an owner that was broken is to be told, or NULL."""
        ...

    def release(self, name: str, owner: str, channel: str, /) -> list[Query]:
        """(was_held, is_waited_for), each 0 or 1. No row: it is not this owner's. was_held is 0 if it had run out,
        and nobody had taken it: then it is freed all the same. Notifies the channel if it is waited for."""
        ...

    def abandon(self, name: str, owner: str, channel: str, /) -> list[Query]:
        """As `release`, but a row that somebody else has locked is not waited for: any row says that it was so, and
        that this owner still has it."""
        ...

    def release_waiting(self, name: str, owner: str, channel: str, wait_us: int, /) -> list[Query]:
        """As `release`, and waits as `renew_waiting` does."""
        ...

    def force_release(self, name: str, channel: str, /) -> list[Query]:
        """As `release`, whoever has it; that owner counts as broken. What is marked as done stays: no row."""
        ...

    def force_release_noted(self, name: str, channel: str, note: str, /) -> list[Query]:
        """As `force_release`; that owner is told the note."""
        ...

    def keep(self, name: str, owner: str, marker: str, keep_us: int, /) -> list[Query]:
        """Any row if it is the marker's now. It was this owner's, and is the marker's for so long from now; or it was
        the marker's before, and nothing has changed. Nobody is notified."""
        ...

    def adopt(self, name: str, former: str, owner: str, ttl_us: int, holder: str, /) -> list[Query]:
        """(token) if it is the owner's now, with a new token. It was the former's, and had not run out; or it was the
        owner's before, and the token is that of then."""
        ...

    def look(self, name: str, /) -> list[Query]:
        """`held`, if somebody has it."""
        ...

    def page(self, after: str, prefix: str, count: int, /) -> list[Query]:
        """(name, *held) of the next `count` names with the prefix after `after`, in order, those included that nobody
        has; names compared byte by byte, by the primary key."""
        ...

    def sweep(self, count: int, idle_us: int, /) -> list[Query]:
        """Looks at up to `count` names that were not looked at for `idle_us`, found by an index. Those that are free,
        and whose `since` and token are both older than that, are forgotten; the others come again when they may be.
        (how many, `count` or more if there are more)."""
        ...

    def listen(self, channel: str, /) -> list[Query]: ...

    def unlisten(self, channel: str, /) -> list[Query]: ...

    # -- sessions; on the lock's own connection unless it is said ------------------------------------------------------

    def advisory_key(self, database: str, name: str, /) -> int | str: ...

    def row_make(self, name: str, /) -> list[Query]:
        """On a shared connection: the row to be locked, committed."""
        ...

    def row_exists(self, name: str, /) -> list[Query]:
        """On a shared connection: any row, if it is there. Waits for nobody who has it locked."""
        ...

    def row_try(self, name: str, ttl_us: int, /) -> list[Query]:
        """(mark) if it is locked now; refused as busy if somebody else has it; no row if there is none to lock."""
        ...

    def row_wait(self, name: str, ttl_us: int, wait_us: int, /) -> list[Query]:
        """As `row_try`, after waiting for so long at most."""
        ...

    def row_free(self) -> list[Query]: ...

    def advisory_try(self, key: Value, ttl_us: int, /) -> list[Query]:
        """(1) if it is ours now, otherwise (0)."""
        ...

    def advisory_wait(self, key: Value, ttl_us: int, wait_us: int, /) -> list[Query]:
        """As `advisory_try`, after waiting for so long at most; (0) or refused as busy when that is over."""
        ...

    def advisory_free(self, key: Value, /) -> list[Query]:
        """(1) if it was ours."""
        ...

    def ping(self, mode: str, ttl_us: int, /) -> list[Query]:
        """(1): the session is there, and will be for a ttl, on a server that takes writes. What is locked on one that
        was demoted excludes nobody any more."""
        ...

    def grant(
        self, mode: str, name: str, owner: str, session: int, mark: Value, ttl_us: int, holder: str, /
    ) -> list[Query]:
        """(token): the next one, committed, with who has it. For row locks on a shared connection. By the mark (what
        `row_try` gave, or the advisory key) others can see whether it is still held."""
        ...

    def grant_within(self, mode: str, name: str, owner: str, session: int, mark: Value, holder: str, /) -> list[Query]:
        """(token, shown): as `grant`, on a shared connection, for what a caller's own transaction has locked in that
        session. `shown` is what the transaction must see: the token, or on MySQL the one of its own grant before."""
        ...

    def set_ttl(self, mode: str, name: str, owner: str, ttl_us: int, /) -> list[Query]:
        """For those who look, on a shared connection."""
        ...

    def seen(self, mode: str, name: str, /) -> list[Query]:
        """(owner, token, ttl_us, since_us, holder, session, is_held) of the last grant, on a shared connection."""
        ...

    def seen_page(self, mode: str, after: str, prefix: str, count: int, /) -> list[Query]:
        """(name, owner, token, ttl_us, since_us, holder, session, is_held) of the next names, on a shared one."""
        ...

    def end_session(self, session: int, birth: str, /) -> list[Query]:
        """Have the server end another session of the same user; on a shared connection. None such is no error. Without
        its birth, whichever has that number."""
        ...

    def end_holder(self, mode: str, name: str, owner: str, /) -> list[Query]:
        """Have the server end the session in which this owner holds the lock now; nothing happens if none does. (gid),
        not NULL, if a prepared transaction holds it, which belongs to no session: then none is ended."""
        ...

    def end_wait(self, session: int, birth: str, /) -> list[Query]:
        """Have the server break off what another session of the same user does, and keep the session; on a shared
        connection. None such is no error."""
        ...

    def leave_wait(self, mode: str, key: Value, /) -> list[Query]:
        """After that, on the session itself: whatever it may have got all the same is freed."""
        ...

    def has_session(self, session: int, birth: str, /) -> list[Query]:
        """Any row, if the server still has it."""
        ...

    def sweep_sessions(self, mode: str, count: int, idle_us: int, /) -> list[Query]:
        """As `sweep`, for names that are locked in sessions; what is locked now stays."""
        ...


class Dialect(Protocol):
    """One server of one engine, as its factory describes it."""

    name: str
    """postgresql or mysql."""
    where: str
    """For messages; never with a password."""
    database: str
    pushes: bool
    """A release can wake other clients."""
    scripts: Scripts
    mode: str
    """Of the locks that its connections are for."""

    def dial(self, timeout: float, is_shared: bool, within: float = math.inf) -> Wire:
        """Blocks. LinkDown if there is no connection within so many seconds, or the time-out if that is shorter. A
        shared one gives up, at the server, what takes longer than the time-out: what was given up for lost does not
        arrive later."""
        ...

    def permit_scripts(self) -> PermitScripts:
        """Loaded when somebody uses permits."""
        ...

    rw_modes: Mapping[str, bool]
    """In which other modes there are read/write locks, and whether a writer can become a reader there."""

    def rw_scripts(self) -> RWScripts:
        """For these modes; loaded when somebody uses them."""
        ...

    def refused(self, refusal: Refusal) -> Fault:
        """What an operator can do about it."""
        ...
