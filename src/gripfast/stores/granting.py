"""Who has the lock now: the one decision of the stores that keep their own queue, as pure functions.

A row is a lock, a waiter a position in its queue. Every request first looks who is next: if nobody holds the lock
(released, expired, or its process is gone), the first waiter that is still there becomes the holder, and only if there
is none may the claimant take it. So nobody passes the queue, however the lock became free. The engine applies what a
function returns, in one atomic step.

Times are the engine's own clock in seconds; tokens are made from its wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gripfast.core import rules
from gripfast.core.kept import Keep, kept
from gripfast.errors import Reason


class Row(NamedTuple):
    """A name's row; it outlives its holders, so that the token does."""

    token: int = 0
    owner: str | None = None
    ttl: float = 0.0
    expires: float = 0.0
    since_us: int = 0
    """Held, or free, since then by the wall clock."""
    details: str = ""
    """Of the holder; opaque here."""
    unconfirmed: str = ""
    """The address of a holder that got the lock by push and has not claimed or renewed it since."""
    broken: str | None = None
    """The owner that was force-released last, so that it can be told why it lost the lock."""


class Waiter(NamedTuple):
    ticket: int
    """Its position in the queue; 0 if it has none yet."""
    owner: str
    ttl: float
    seen: float
    details: str
    address: str
    muted: bool = False
    """Its last push reached nobody: skipped until it claims again, but it keeps its position."""


class Now(NamedTuple):
    clock: float
    wall_us: int
    is_gone: Callable[[str], bool]
    """Whether the process of these holder details is provably dead."""


class Outcome:
    """What the engine has to write, and what the claimant is answered."""

    __slots__ = ("dropped", "granted", "handed", "row")

    def __init__(self, row: Row, granted: bool = False) -> None:
        self.row = row
        self.granted = granted
        self.handed: Waiter | None = None
        """This waiter has the lock now: it must be pushed to."""
        self.dropped: list[Waiter] = []
        """These leave the queue: the one that got the lock, and those that are no longer there."""


def is_free(row: Row, now: Now) -> bool:
    return row.owner is None or row.expires <= now.clock or now.is_gone(row.details)


def claim(row: Row, queue: Iterable[Waiter], claimant: Waiter, now: Now) -> Outcome:
    """It may be queued already; if it is not granted it should be."""
    if row.owner == claimant.owner and row.expires > now.clock:
        return Outcome(row._replace(ttl=claimant.ttl, expires=now.clock + claimant.ttl, unconfirmed=""), granted=True)
    if not is_free(row, now):
        return Outcome(row)
    outcome = _hand_over(row, queue, now, claimant)
    if outcome.handed is None:
        outcome.row, outcome.granted = _give(row, claimant, now), True
    elif outcome.handed.owner == claimant.owner:
        outcome.row, outcome.granted, outcome.handed = outcome.row._replace(unconfirmed=""), True, None
    return outcome


def free(row: Row, queue: Iterable[Waiter], now: Now) -> Outcome:
    """The holder is no longer there: hand over to the first in the queue, if there is one."""
    return _hand_over(Row(row.token, since_us=now.wall_us, broken=row.broken), queue, now, None)


def take_back(row: Row, queue: Iterable[Waiter], unreached: Waiter, now: Now) -> Outcome:
    """A push reached nobody. Unless the waiter has found its grant by a claim, it goes to the next one."""
    if row.owner != unreached.owner or not row.unconfirmed:
        return Outcome(row)
    return free(row, queue, now)


def gone_because(row: Row, owner: str, now: Now) -> Reason | None:
    """Why this owner does not have the lock; None if it has."""
    if row.owner == owner:
        return None if row.expires > now.clock else "expired"
    return "broken" if row.broken == owner else "taken"


def renewed(row: Row, ttl: float, now: Now) -> Row:
    return row._replace(ttl=ttl, expires=now.clock + ttl, unconfirmed="")


def broken(row: Row) -> Row:
    return row._replace(broken=row.owner)


def keep(row: Row, keep: Keep, details: str, now: Now) -> Row:
    """The holder leaves it to a marker. The waiters stay queued."""
    return row._replace(
        owner=keep.owner,
        ttl=keep.seconds,
        expires=now.clock + keep.seconds,
        since_us=now.wall_us,
        details=details,
        unconfirmed="",
    )


def is_done(row: Row) -> bool:
    return row.owner is not None and kept(row.owner) == "done"


def adopt(row: Row, former: str, adopter: Waiter, now: Now) -> Row | Reason:
    """The adopter's row, or why the former owner does not have it."""
    if row.owner == adopter.owner and row.expires > now.clock:
        return renewed(row, adopter.ttl, now)
    reason = gone_because(row, former, now)
    return _give(row, adopter, now) if reason is None else reason


def is_forgettable(row: Row, now: Now) -> bool:
    """Idle for so long that the clock alone makes the next token larger, even if it is off by a day."""
    is_idle = row.owner is None or row.expires <= now.clock
    return is_idle and max(row.since_us, row.token) + rules.TOKEN_MEMORY_US < now.wall_us


def _hand_over(row: Row, queue: Iterable[Waiter], now: Now, claimant: Waiter | None) -> Outcome:
    outcome = Outcome(row)
    for waiter in queue:
        mine = claimant is not None and waiter.owner == claimant.owner
        if not mine and has_left(waiter, now):
            outcome.dropped.append(waiter)
        elif mine or not waiter.muted:
            outcome.dropped.append(waiter)
            outcome.handed = waiter
            outcome.row = _give(row, waiter, now)._replace(unconfirmed=waiter.address)
            break
    return outcome


def has_left(waiter: Waiter, now: Now) -> bool:
    return now.clock - waiter.seen > rules.WAITER_WINDOW or now.is_gone(waiter.details)


def _give(row: Row, waiter: Waiter, now: Now) -> Row:
    return Row(
        token=rules.next_token(row.token, now.wall_us),
        owner=waiter.owner,
        ttl=waiter.ttl,
        expires=now.clock + waiter.ttl,
        since_us=now.wall_us,
        details=waiter.details,
        broken=row.broken,
    )
