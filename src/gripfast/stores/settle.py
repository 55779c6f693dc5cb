"""Who has the lock now: the one decision of the stores that keep their own queue, as pure functions.

A row is a lock, a waiter a place in its line. Every request first settles: if nobody holds the lock (released,
expired, or its process is gone), the first waiter who is still there becomes the holder, and only if there is none
may the asker take it. So nobody passes the line, however the lock became free. The engine applies what a function
returns, in one atomic step.

Times are the engine's own clock in seconds; tokens are made from its wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gripfast.core import rules
from gripfast.errors import Reason


class Row(NamedTuple):
    """A name's row; it outlives its holders, so that the token does."""

    token: int = 0
    owner: str | None = None
    ttl: float = 0.0
    expires: float = 0.0
    since_us: int = 0
    """Held, or free, since then by the wall clock."""
    card: str = ""
    """Who the holder says it is: opaque here."""
    unheard: str = ""
    """The address of a holder that got the lock by push and has not been heard of since."""
    broken: str | None = None
    """The owner that was force-released last, so that it can be told why it lost the lock."""


class Waiter(NamedTuple):
    ticket: int
    """Its place in the line; 0 for one that has none yet."""
    owner: str
    ttl: float
    seen: float
    card: str
    address: str
    muted: bool = False
    """Its last push reached nobody: skipped until it asks again, but it keeps its place."""


class Now(NamedTuple):
    clock: float
    wall_us: int
    is_gone: Callable[[str], bool]
    """Whether the process behind a card is provably dead."""


class Outcome:
    """What the engine has to write, and what the asker is told."""

    __slots__ = ("dropped", "granted", "handed", "row")

    def __init__(self, row: Row, granted: bool = False) -> None:
        self.row = row
        self.granted = granted
        self.handed: Waiter | None = None
        """This waiter has the lock now: it must be pushed to."""
        self.dropped: list[Waiter] = []
        """These leave the line: the one who got the lock, and those who are no longer there."""


def is_free(row: Row, now: Now) -> bool:
    return row.owner is None or row.expires <= now.clock or now.is_gone(row.card)


def claim(row: Row, line: Iterable[Waiter], asker: Waiter, now: Now) -> Outcome:
    """The asker wants the lock. It may stand in the line already; if it is not granted it should."""
    if row.owner == asker.owner and row.expires > now.clock:
        return Outcome(row._replace(ttl=asker.ttl, expires=now.clock + asker.ttl, unheard=""), granted=True)
    if not is_free(row, now):
        return Outcome(row)
    outcome = _hand_over(row, line, now, asker)
    if outcome.handed is None:
        outcome.row, outcome.granted = _give(row, asker, now), True
    elif outcome.handed.owner == asker.owner:
        outcome.row, outcome.granted, outcome.handed = outcome.row._replace(unheard=""), True, None
    return outcome


def free(row: Row, line: Iterable[Waiter], now: Now) -> Outcome:
    """The holder is no longer there: hand over to the first in line, if there is one."""
    return _hand_over(row._replace(owner=None, unheard="", card="", since_us=now.wall_us), line, now, None)


def take_back(row: Row, line: Iterable[Waiter], deaf: Waiter, now: Now) -> Outcome:
    """A push reached nobody. Unless the waiter has found its grant by asking, it goes to the next one."""
    if row.owner != deaf.owner or not row.unheard:
        return Outcome(row)
    return free(row, line, now)


def gone_because(row: Row, owner: str, now: Now) -> Reason | None:
    """Why this owner does not have the lock; None if it has."""
    if row.owner == owner:
        return None if row.expires > now.clock else "expired"
    return "broken" if row.broken == owner else "taken"


def renewed(row: Row, ttl: float, now: Now) -> Row:
    return row._replace(ttl=ttl, expires=now.clock + ttl, unheard="")


def broken(row: Row) -> Row:
    return row._replace(broken=row.owner)


def is_forgettable(row: Row, now: Now) -> bool:
    """Idle for so long that the clock alone makes the next token larger, even if it is off by a day."""
    is_idle = row.owner is None or row.expires <= now.clock
    return is_idle and max(row.since_us, row.token) + rules.TOKEN_MEMORY_US < now.wall_us


def _hand_over(row: Row, line: Iterable[Waiter], now: Now, asker: Waiter | None) -> Outcome:
    outcome = Outcome(row)
    for waiter in line:
        mine = asker is not None and waiter.owner == asker.owner
        if not mine and has_left(waiter, now):
            outcome.dropped.append(waiter)
        elif mine or not waiter.muted:
            outcome.dropped.append(waiter)
            outcome.handed = waiter
            outcome.row = _give(row, waiter, now)._replace(unheard=waiter.address)
            break
    return outcome


def has_left(waiter: Waiter, now: Now) -> bool:
    return now.clock - waiter.seen > rules.WAITER_WINDOW or now.is_gone(waiter.card)


def _give(row: Row, waiter: Waiter, now: Now) -> Row:
    return Row(
        token=rules.next_token(row.token, now.wall_us),
        owner=waiter.owner,
        ttl=waiter.ttl,
        expires=now.clock + waiter.ttl,
        since_us=now.wall_us,
        card=waiter.card,
        broken=row.broken,
    )
