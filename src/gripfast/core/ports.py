"""What the recipes may await, and which answers they get.

The recipes of this package are `async def` and await nothing but the methods of these ports. On asyncio the ports
really suspend. In the blocking runtime they are coroutines that block and never suspend, so that one `send(None)`
runs a recipe to its end. A recipe never runs two coroutines at once: waiting for one of several things happens inside
a port.

That an engine can't be reached is an answer, `Unreachable`, not an exception: the recipe has to look at it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, cast

from gripfast.core.kept import Keep as Keep
from gripfast.core.kept import kept
from gripfast.core.lease import RW_LIMIT as RW_LIMIT
from gripfast.core.lease import Broken as Broken
from gripfast.core.lease import Kind as Kind
from gripfast.core.lease import Label as Label
from gripfast.core.lease import LeaseState, Want
from gripfast.core.lease import Loss as Loss
from gripfast.core.lease import Share as Share
from gripfast.core.lease import Traced as Traced
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
    """The holder gets the `reason` of a `force_release()`."""
    semaphores: bool = False
    """`client.semaphore()` works."""
    rwlocks: bool = False
    """`client.rwlock()` works."""
    downgrades: bool = False
    """The lease of a writer has `downgrade()`: it becomes a reader's, and no other writer comes in between."""
    keeps: bool = False
    """A released name can stay taken: `lock(min_hold=…)` works."""
    once: bool = False
    """`client.once()` works: what is recorded as done is not forgotten while the engine keeps its data."""
    hands_over: bool = False
    """Another process can take over a held lock: `lease.detach()` and `client.adopt()` work."""
    lazy_release: bool = False
    """`lock(lazy_release=True)` works: `release()` returns when the request has left."""


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
    """How many waiters there are. In the `holder` of a LockTimeout this is a lower bound. Always 0 if
    `Capabilities.waiters_seen` is false."""
    trace: str | None = None
    """The trace that the holder's request belongs to, as W3C's `traceparent`, if the holder has an observer that
    returns it, such as OpenTelemetry's."""

    @property
    def kept(self) -> Literal["min_hold", "done"] | None:
        """Why the name is taken although nobody holds it: `"min_hold"`, or `"done"` (see `Client.once`). None if
        somebody holds it."""
        return kept(self.owner)

    def __repr__(self) -> str:
        """With `kept`: without it, a record of once() looks like a lock that somebody holds."""
        return f"LockInfo({_shown(self)}, kept={self.kept!r})"


@dataclass(frozen=True, slots=True, repr=False)
class PermitHolder:
    """One holder of a semaphore's permits, or one reader or writer."""

    owner: str
    n: int
    """How many permits it has; `RW_LIMIT` if it is a writer."""
    slots: tuple[int, ...]
    """The numbers of its permits, from 0 on, ascending; empty if it is a reader or writer."""
    token: int
    label: str | None
    host: str
    pid: int
    since: datetime | None
    expires_in: float
    """Seconds until its permits expire if they are not renewed; infinite if they never expire."""

    @property
    def is_writer(self) -> bool:
        return self.n == RW_LIMIT

    def __repr__(self) -> str:
        """Of a read/write lock, it says which one this is, not how many permits stand for that."""
        role = "" if self.slots else "writer, " if self.is_writer else "reader, "
        return f"PermitHolder({role}{_shown(self, ('n', 'slots') if role else ())})"


@dataclass(frozen=True, slots=True, repr=False)
class PermitInfo:
    """Who holds the permits of a semaphore, or who reads and writes, according to the engine."""

    name: str
    kind: Literal["semaphore", "rwlock"]
    limit: int
    """The limit in force; `RW_LIMIT` if it is a read/write lock."""
    holders: tuple[PermitHolder, ...]
    """At least one, in the order of their tokens."""
    waiters: int
    """How many waiters there are; 0 if the store can't tell."""

    def __repr__(self) -> str:
        """A read/write lock has no limit that anybody has chosen."""
        return f"PermitInfo({_shown(self, ('limit',) if self.kind == 'rwlock' else ())})"


def _shown(info: Any, without: tuple[str, ...] = ()) -> str:
    return ", ".join(f"{each.name}={getattr(info, each.name)!r}" for each in fields(info) if each.name not in without)


class Claim(NamedTuple):
    """Take the lock for this owner if it is free; if it is not and `inbox` is given, join its queue.

    With a share: take `share.n` permits instead (`core/permits.py`)."""

    name: str
    owner: str
    ttl: float
    label: str | None
    inbox: Inbox | None
    share: Share | None = None
    trace: str | None = None
    """W3C's `traceparent` of the caller, if an observer tells it: for the holder's details, if the store has them."""

    @property
    def told(self) -> Label:
        """What goes into the holder's details."""
        return self.label if self.trace is None else Traced(self.label, self.trace)


class Hold(NamedTuple):
    """What an owner may have at an engine: the lock, permits, or a position in the queue."""

    name: str
    owner: str
    ttl: float
    shortens: bool = False
    """A renewal for less time than is left. Any other may arrive late, and must not."""
    share: Share | None = None
    """Not None: it is about permits. Only `share.kind` counts: how many they are is what the engine has recorded."""
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
    slots: tuple[int, ...] = ()
    """The numbers of a semaphore's permits, as many as were claimed, ascending. All of them were taken in one step, and
    `token` is the number of that step. So `(name, slot)` can be fenced with it."""


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
    may_follow: bool = False
    """An earlier try of the same claim got no answer and may still take effect: clean up although this is a no."""
    limit_in_force: int | None = None
    """Not None: this is a final no. A newcomer came with another limit than this one, or a waiter wants more permits
    than this one allows (`Store.resize`). Nothing of the owner is left at the engine."""


class Unreachable(NamedTuple):
    error: StoreUnavailable | ClientClosed
    was_sent: bool = True
    """False only if nothing of the request left this machine: there is nothing to clean up."""
    was_refused: bool = False
    """The connection was refused, by too many servers for anything to come of it: an answer for a caller who does not
    want to wait. One that was cut, or not made in time, is none."""
    is_permanent: bool = False
    """Asking again will not help, however long the caller would wait: a wrong password."""
    ready_in: float | None = None
    """Seconds after which the engine will serve, if it has said so: who waits for ever waits for that."""


def unreachable(
    error: StoreUnavailable | ClientClosed,
    was_sent: bool = True,
    was_refused: bool = False,
    is_permanent: bool = False,
    ready_in: float | None = None,
) -> Unreachable:
    """An answer is kept for a while: it must not keep the frames that it came through, and with them a lease."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return Unreachable(error, was_sent, was_refused, is_permanent, ready_in)


def to_raise(error: Raised, is_permanent: bool = False) -> Raised:
    """A copy: the frames that it is raised through have the answer it came in, and it would keep them, in a cycle."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    if is_permanent and isinstance(copy, StoreUnavailable):
        copy._is_permanent = True
    return copy


class Page(NamedTuple):
    infos: Sequence[LockInfo]
    after: str | None
    """Where the next page starts; None after the last one."""


class PermitPage(NamedTuple):
    infos: Sequence[PermitInfo]
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

    A request with a share is about permits. Only stores that say so (`Capabilities.semaphores`, `.rwlocks`) get one;
    they are a `PermitStore`, too. What they must do is in `core/permits.py`.
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


class PermitStore(Protocol):
    """What a Store has besides, if it has permits. They may be called only if `Capabilities` says so."""

    async def downgrade(self, hold: Hold, n: int) -> Loss | Unreachable | None:
        """Keep n permits of those that this owner has, and free the others, in one step. The token and the expiry stay.
        If the owner has n or fewer (a retry), nothing changes. None if it has them now; otherwise why it has nothing.

        Only for read/write locks, from a writer to a reader (n=1), if `Capabilities.downgrades`."""
        ...

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        """From now on this is the limit of the semaphore, also if nobody has used it before. Growth serves waiters in
        the same step. After shrinking, holders keep what they have, and nobody is granted anything until it fits.
        Waiters that want more than the new limit are told to retry (their inbox gets None), and are refused then."""
        ...

    async def inspect_permits(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        """None if nobody has a permit. Holders whose time is over are left out."""
        ...

    async def page_permits(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        """As `page`: the names of this kind of which somebody has a permit. Only if `Capabilities.lists`."""
        ...

    async def force_release_permits(
        self, name: str, kind: Kind, owner: str | None = None, slot: int | None = None, note: str | None = None
    ) -> bool | Unreachable:
        """Remove the holder with this owner id, or the one that has this slot, with all its permits. If neither is
        given, remove all holders. At most one of the two is given. Waiters stay, and are served in the same step. True
        if a holder was removed whose time was not over.

        A removed owner that renews or releases is answered "broken", or `Broken(note)`. The engine remembers it until
        the holder's time would have been over, at least. `note`: as in `force_release`."""
        ...


def permits_of(store: Store) -> PermitStore:
    """Of a store with permits. A protocol of its own: a store without them need not know of it."""
    return cast(PermitStore, store)


class HandsOver(Protocol):
    """What a store can do besides, if its capabilities say `hands_over`."""

    async def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss | Unreachable:
        """In one step: if the lock is the owner's of this hold, it becomes that of the claim, with a larger token. If
        it is that of the claim already, the token of then: this was done before."""
        ...

    async def detach(self, hold: Hold, token: int) -> Loss | Unreachable | None:
        """From now on the hold does not end with this process. Most engines do not look at processes.

        A claim of this owner that was not answered, and was repeated, may arrive later than this. It must not bring the
        owner back when the lease with this token is over."""
        return None


class ReleasesLazily(Protocol):
    """What a store can do besides, if its capabilities say `lazy_release`."""

    async def release_lazily(self, hold: Hold, told: Callable[[bool], None]) -> None:
        """Return when the request has left. Whoever reads the answer calls `told`, from any thread: whether it was
        this owner's. If the answer can't be read any more, `told` is dropped: its death is what a clean-up follows.

        Until the answer is read, the claims of this client for the same name arrive behind it."""
        ...

    async def read_late(self, within: float = 0.0) -> bool:
        """Read the answers that are there, or that come within so many seconds. True if some are still to come, and
        nobody but this reads them."""
        ...


class Prepared(NamedTuple):
    """What `gripfast init` has done."""

    max_ttl: float
    """The largest ttl in force."""
    unaware: int
    """Copies of the engine that have not confirmed that they know of it."""
    grace: float = 0.0
    """Seconds for which it grants nothing: leases of an engine before it may be left."""
    why_not: str = ""
    """If nothing was done: why the engine is not new."""


class Prepares(Protocol):
    """What a store can do besides, if it needs to be prepared before it is used (`gripfast init`)."""

    async def prepare(self, max_ttl: float | None, ends_grace: bool = True) -> Prepared | Unreachable:
        """It is new: it need not wait for leases of an engine before it. `max_ttl`: raise the largest ttl to this.
        `ends_grace`: also if it does wait for them."""
        ...


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
    look_at: Callable[[float], None] = lambda moment: None
    """The watchdog must not sleep past this moment: an answer is to be read that nobody waits for."""
    watch: Callable[[Want, Taken | Unreachable], Callable[[], None]] = lambda want, answer: _unwatched
    """A claim got this answer, and now waits. What is returned is called when its wait is over."""
    is_closed: bool = False
    """The client is closed, or being closed (`core/closing.py`)."""
    observers: Stories | None = None
    """None if there are none: the usual case, which must cost nothing."""
    silence_told: float = -math.inf
    """When the log has last said at WARNING that claims wait because the engine can't be reached."""
    sleepers: list[Callable[[], None]] = field(default_factory=list)
    """Called when the client is closed: whoever sleeps until then, or for a while, wakes up. From any thread."""
