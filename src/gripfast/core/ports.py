"""What the recipes may await, and what they are told.

The recipes of this package are `async def` and await nothing but the methods of these ports. On asyncio the ports
really suspend. In the blocking runtime they are coroutines that block and never suspend, so that one `send(None)`
runs a recipe to its end. A recipe never runs two coroutines at once: waiting for one of several things happens inside
a port.

An engine that could not be asked is an answer, `Unreachable`, not an exception: the recipe has to look at it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

from gripfast.core.kept import Keep as Keep
from gripfast.core.kept import kept
from gripfast.core.lease import Broken as Broken
from gripfast.core.lease import LeaseState, Want
from gripfast.core.lease import Loss as Loss
from gripfast.core.ledger import Ledger
from gripfast.errors import ClientClosed, Reason, StoreUnavailable

if TYPE_CHECKING:
    from gripfast.core.stories import Stories

Raised = TypeVar("Raised", bound=Exception)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do. Check these in your code, not the store's name."""

    fair: bool = False
    """Waiters get the lock in the order in which they came."""
    push: bool = False
    """Waiters are notified; they do not poll."""
    session: bool = False
    """A lease lives in a session with the server, and ends with it. `ttl` is the time-out that is requested for the
    session; the server may grant less."""
    durable_fence: bool = False
    """Tokens survive a power cut of the engine's machine."""
    lists: bool = False
    """`client.list()` works."""
    waiters_seen: bool = False
    """`LockInfo.waiters` counts the queue."""
    processes: bool = False
    """Other processes see the locks and are excluded by them."""
    sees_death: bool = False
    """If a holder's process dies on the same machine, the lock is free at once, not after its ttl."""
    tells_reason: bool = False
    """The holder is told the `reason` of a `force_release()`."""
    keeps: bool = False
    """A released name can stay taken: `lock(min_hold=…)` and `once()` work."""
    hands_over: bool = False
    """Another process can take over a held lock: `lease.detach()` and `client.adopt()` work."""


@dataclass(frozen=True, slots=True)
class LockInfo:
    """Who holds a lock, according to the engine."""

    name: str
    owner: str
    token: int
    label: str | None
    host: str
    pid: int
    since: datetime | None
    """None if another library has set the lock on the same Redis key. Then only `owner` and `expires_in` are known."""
    expires_in: float
    """Seconds until the lock expires if it is not renewed; infinite if it never expires."""
    waiters: int
    """How many waiters there are. Always 0 if `Capabilities.waiters_seen` is false."""

    @property
    def kept(self) -> Literal["min_hold", "done"] | None:
        """Why the name is taken although nobody holds it: `"min_hold"`, or `"done"` (see `Client.once`). None if
        somebody holds it."""
        return kept(self.owner)


class Claim(NamedTuple):
    """Take the lock for this owner if it is free; if it is not and `inbox` is given, join its queue."""

    name: str
    owner: str
    ttl: float
    label: str | None
    inbox: Inbox | None


class Hold(NamedTuple):
    """What an owner may have at an engine: the lock, or a position in its queue."""

    name: str
    owner: str
    ttl: float
    shortens: bool = False
    """A renewal for less time than is left. Any other may arrive late, and must not."""
    keep: Keep | None = None
    """For a release or an abandonment: the name stays taken by this marker."""


class Granted(NamedTuple):
    token: int
    ttl: float
    """For how long; a push may bring less than was asked for, and a renewal then the rest."""
    sent: float | None = None
    """When the request left that it is dated by, if a claim was several and the last of them dates it."""
    most: float = math.inf
    """No renewal brings more than this: the engine's session decides."""
    source: bytes = b""
    """Where it was pushed from, if the store tells its sources apart."""


class Taken(NamedTuple):
    holder: LockInfo | None
    token: int
    """The last one granted: a push counts only with a larger one, otherwise it is of an earlier time."""
    again_in: float | None = None
    """When to retry, if the store knows better than the rules."""
    is_split: bool = False
    """Nobody has it: of those who asked at the same time, none got enough."""
    source: bytes = b""
    """A push counts only from here: it is dated by this answer, so it has to be of the same server."""


class Unreachable(NamedTuple):
    error: StoreUnavailable | ClientClosed
    was_sent: bool = True
    """False only if nothing of the request left this machine: there is nothing to clean up."""
    was_refused: bool = False
    """The connection was refused, by too many servers for anything to come of it: an answer for a caller who does not
    want to wait. One that was cut, or not made in time, is none."""
    is_permanent: bool = False
    """Asking again will not help, however long the caller would wait: a wrong password."""


def unreachable(
    error: StoreUnavailable | ClientClosed, was_sent: bool = True, was_refused: bool = False, is_permanent: bool = False
) -> Unreachable:
    """An answer is kept for a while: it must not keep the frames that it came through, and with them a lease."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return Unreachable(error, was_sent, was_refused, is_permanent)


def to_raise(error: Raised) -> Raised:
    """A copy: the frames that it is raised through have the answer it came in, and it would keep them, in a cycle."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy


class Page(NamedTuple):
    infos: Sequence[LockInfo]
    after: str | None
    """Where the next page starts; None after the last one."""


class Inbox(Protocol):
    """Where the pushes for one waiting owner arrive. The recipe holds it; the store knows it only weakly."""

    def deliver(self, push: Granted | None) -> bool:
        """Hand in a grant, or None for "retry"; from any thread. False if nobody can receive it any more."""
        ...

    async def hear(self, until: float) -> Granted | None:
        """The grant that was pushed, or None: it is time to retry."""
        ...


class Store(Protocol):
    """One engine. Every request may be repeated: claims, renewals and releases are recognised by their owner id.

    Names are those of the engine, with the client's prefix: in requests, and in what is told of holders.
    """

    capabilities: Capabilities

    def inbox(self) -> Inbox:
        """Where pushes arrive; a claim that carries it joins the queue if need be."""
        ...

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable: ...

    async def renew(
        self, holds: Sequence[Hold], within: float = math.inf
    ) -> Sequence[Loss | Unreachable | None] | Unreachable:
        """For each hold None, or why it is gone, or that it could not be asked. Never sets what is absent.

        `within`: seconds that each request may take, if that is less than the store's own time-out: a connection
        that is silent for longer is left, and the next try gets another.
        """
        ...

    async def release(self, hold: Hold) -> Loss | Unreachable | None:
        """None if it was freed; otherwise why it was not this owner's.

        With `hold.keep` the lock becomes the marker's, and nobody is handed it: the waiters stay queued. None, too, if
        it is the marker's already: then this was done before.
        """
        ...

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        """Remove whatever these owners have, lock or position; or leave the lock to `hold.keep`, as `release` does. For
        each hold None if nothing of it is left, or why that is not known. What is wrong with one name costs that name
        alone."""
        ...

    def forget(self, owner: str) -> None:
        """The engine has forgotten, by itself, whatever this owner had, though nobody could ask it. Most stores keep
        nothing of owners."""
        return

    async def inspect(self, name: str) -> LockInfo | Unreachable | None: ...

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable: ...

    async def force_release(self, name: str, note: str | None = None) -> bool | Unreachable:
        """`note`: what the holder is told when it next renews or releases (`Broken`). Only stores that can do that
        (`tells_reason`) get one. The engine forgets it by itself. What is marked as done stays: False."""
        ...

    async def vouch(self, hold: Hold, pid: int) -> Unreachable | None:
        """The hold counts as alive while this process lives, too. Most engines do not look at processes."""
        return None

    def look(self) -> Sequence[tuple[str, Reason]]:
        """Owners whose session has ended, and why, seen without waiting for anything. Most stores have no sessions."""
        return ()

    def stop_waiting(self) -> None:
        """The client is being closed: have every waiter retry now, to be refused. A claim that still waits for a
        connection must not leave any more."""
        ...

    async def close(self) -> None: ...


class HandsOver(Protocol):
    """What a store can do besides, if its capabilities say `hands_over`."""

    async def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss | Unreachable:
        """In one step: if the lock is the owner's of this hold, it becomes that of the claim, with a larger token. If
        it is that of the claim already, the token of then: this was done before."""
        ...

    async def detach(self, hold: Hold) -> Loss | Unreachable | None:
        """From now on the hold does not end with this process. Most engines do not look at processes."""
        return None


def _unwatched() -> None:
    return


@dataclass(slots=True)
class Env:
    """Everything a recipe works with; made by a runtime, one per client and process."""

    store: Store
    ledger: Ledger
    now: Callable[[], float]
    pause: Callable[[float], Awaitable[None]]
    new_owner: Callable[[], str]
    announce: Callable[[LeaseState], None]
    """A lease was granted or its moments moved: the watchdog and the notices must not sleep past them."""
    request_timeout: float
    connect_patience: float
    watch: Callable[[Want, Taken | Unreachable], Callable[[], None]] = lambda want, answer: _unwatched
    """A claim got this answer, and now waits. What is returned is called when its wait is over."""
    is_closed: bool = False
    """The client is closed, or being closed (`core/closing.py`)."""
    observers: Stories | None = None
    """None if there are none: the usual case, which must cost nothing."""
