"""Who gets permits now: the one decision of the stores that keep their own queue, as pure functions (the rules that
they follow are in `core/permits.py`; `stores/granting.py` is the same for locks).

Each function takes a name's pool, its holders and its queue, and returns a Settlement. This says what the engine has to
write, in the same atomic step: first delete (`gone`, `dropped`), then write (`pool`, `written`). After that it pushes
(`handed`, `told`). If there is more to do, it makes another step at once.

Times are the engine's own clock in seconds; tokens are made from its wall clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gripfast.core import rules
from gripfast.core.ports import RW_LIMIT
from gripfast.stores.granting import Now

GRANTS_MOST = 100
"""Waiters that one step serves: others get their turn in between."""


class Pool(NamedTuple):
    """A name. It outlives its holders, so that the token and the limit do."""

    token: int = 0
    limit: int = 0
    """The limit in force; 0 if nobody has set one yet."""
    since_us: int = 0
    """When somebody last got something or gave it back, by the wall clock."""


class Holder(NamedTuple):
    owner: str
    n: int
    slots: tuple[int, ...]
    token: int
    ttl: float
    expires: float
    since_us: int
    details: str
    unconfirmed: str = ""
    """The address of a holder that got its permits by push, and has not claimed or renewed them since."""


class Waiter(NamedTuple):
    ticket: int
    """Its position in the queue; 0 if it has none yet."""
    owner: str
    n: int
    ttl: float
    seen: float
    details: str
    address: str
    muted: bool = False
    """Its last push reached nobody: skipped until it claims again, but it keeps its position."""
    asks: bool = False
    """It can't be pushed to: it takes its permits when it claims again, and nobody passes it."""


class Settlement:
    def __init__(self, pool: Pool, holders: Iterable[Holder], queue: Iterable[Waiter], now: Now) -> None:
        self.pool = pool
        self.holders: dict[str, Holder] = {}
        """Those who have permits now."""
        self.queue = list(queue)
        """Those who wait now."""
        self.granted: Holder | None = None
        """What the claimant has."""
        self.limit_in_force: int | None = None
        """The claimant is refused because of it."""
        self.removed: list[Holder] = []
        """Those whose time was not over, and who were to be removed."""
        self.written: dict[str, Holder] = {}
        self.gone: list[str] = []
        """Owners whose entry is to be deleted."""
        self.dropped: list[Waiter] = []
        """These leave the queue."""
        self.handed: list[tuple[Waiter, Holder]] = []
        """These waiters have permits now: each must be pushed to."""
        self.told: list[Waiter] = []
        """These must be told to retry."""
        self.more = False
        """There are more waiters to serve: make another step."""
        self._now = now
        self._free_slots: Iterator[int] | None = None
        for holder in holders:
            if holder.expires > now.clock:
                self.holders[holder.owner] = holder
            else:
                self.gone.append(holder.owner)
        self._used = sum(holder.n for holder in self.holders.values())

    def settle(self, claimant: str | None = None) -> None:
        """Serve the queue. Whoever claims just now is still there, and needs no push."""
        for waiter in list(self.queue):
            is_mine = waiter.owner == claimant
            if not is_mine and has_left(waiter, self._now):
                self.drop(waiter)
            elif is_mine or not waiter.muted:
                if (waiter.asks and not is_mine) or not self.fits(waiter.n):
                    return
                if len(self.handed) >= GRANTS_MOST:
                    self.more = True
                    return
                self.drop(waiter)
                if is_mine:
                    self.granted = self.give(waiter)
                else:
                    self.handed.append((waiter, self.give(waiter, waiter.address)))

    def fits(self, n: int) -> bool:
        """If it does not, holders are probed: a dead one keeps nobody waiting."""
        if self._used + n <= self.pool.limit:
            return True
        for holder in [holder for holder in self.holders.values() if self._now.is_gone(holder.details)]:
            self.remove(holder)
        return self._used + n <= self.pool.limit

    def is_passable(self) -> bool:
        """Whether a newcomer passes nobody. The queue is settled: who is left in it waits."""
        return all(waiter.muted for waiter in self.queue)

    def give(self, waiter: Waiter, unconfirmed: str = "") -> Holder:
        now = self._now
        token = rules.next_token(self.pool.token, now.wall_us)
        self.pool = self.pool._replace(token=token, since_us=now.wall_us)
        holder = Holder(
            waiter.owner, waiter.n, self._take_slots(waiter.n), token, waiter.ttl, now.clock + waiter.ttl, now.wall_us,
            waiter.details, unconfirmed,
        )  # fmt: skip
        self._used += waiter.n
        self.write(holder)
        return holder

    def write(self, holder: Holder) -> None:
        self.holders[holder.owner] = self.written[holder.owner] = holder

    def remove(self, holder: Holder) -> None:
        del self.holders[holder.owner]
        self.written.pop(holder.owner, None)
        self.gone.append(holder.owner)
        self.pool = self.pool._replace(since_us=self._now.wall_us)
        self._used -= holder.n
        self._free_slots = None

    def lower(self, holder: Holder, n: int) -> None:
        self.write(holder._replace(n=n, slots=holder.slots[:n]))
        self._used -= holder.n - n
        self._free_slots = None

    def drop(self, waiter: Waiter) -> None:
        self.queue.remove(waiter)
        self.dropped.append(waiter)

    def first_to_expire(self) -> Holder | None:
        return min(self.holders.values(), key=lambda holder: holder.expires, default=None)

    def _take_slots(self, n: int) -> tuple[int, ...]:
        """The lowest free ones below the limit. There are enough: those in use are no more than the permits in use."""
        if self.pool.limit == RW_LIMIT:
            return ()
        if self._free_slots is None:
            taken = {slot for holder in self.holders.values() for slot in holder.slots}
            self._free_slots = (slot for slot in range(self.pool.limit) if slot not in taken)
        return tuple(next(self._free_slots) for _ in range(n))


def settle(pool: Pool, holders: Iterable[Holder], queue: Iterable[Waiter], now: Now) -> Settlement:
    settlement = Settlement(pool, holders, queue, now)
    settlement.settle()
    return settlement


def claim(
    pool: Pool, holders: Iterable[Holder], queue: Iterable[Waiter], claimant: Waiter, limit: int, now: Now
) -> Settlement:
    """`granted` is what the claimant has. If that is nothing, and `limit_in_force` neither, it should be queued; it may
    be queued already."""
    settlement = Settlement(pool, holders, queue, now)
    mine = settlement.holders.get(claimant.owner)
    if mine is not None:
        settlement.granted = mine._replace(ttl=claimant.ttl, expires=now.clock + claimant.ttl, unconfirmed="")
        settlement.write(settlement.granted)
        settlement.settle()
        return settlement
    waiting = next((waiter for waiter in settlement.queue if waiter.owner == claimant.owner), None)
    if not pool.limit:
        settlement.pool = pool._replace(limit=limit, since_us=now.wall_us)
    if waiting is None:
        _claim_new(settlement, claimant, limit)
    elif waiting.n > settlement.pool.limit:
        settlement.drop(waiting)
        settlement.limit_in_force = settlement.pool.limit
        settlement.settle()
    else:
        settlement.settle(claimant.owner)
    return settlement


def _claim_new(settlement: Settlement, claimant: Waiter, limit: int) -> None:
    settlement.settle()
    if settlement.pool.limit != limit:
        settlement.limit_in_force = settlement.pool.limit
    elif settlement.is_passable() and settlement.fits(claimant.n):
        settlement.granted = settlement.give(claimant)


def leave(pool: Pool, holders: Iterable[Holder], queue: Iterable[Waiter], owner: str, now: Now) -> Settlement:
    """Whatever this owner has is free: permits, or a position."""
    settlement = Settlement(pool, holders, queue, now)
    if owner in settlement.holders:
        settlement.removed.append(settlement.holders[owner])
        settlement.remove(settlement.holders[owner])
    for waiter in [waiter for waiter in settlement.queue if waiter.owner == owner]:
        settlement.drop(waiter)
    settlement.settle()
    return settlement


def downgrade(
    pool: Pool, holders: Iterable[Holder], queue: Iterable[Waiter], owner: str, n: int, now: Now
) -> Settlement:
    """`granted` is what the owner has then; None: it has nothing."""
    settlement = Settlement(pool, holders, queue, now)
    holder = settlement.holders.get(owner)
    if holder is not None and holder.n > n:
        settlement.lower(holder, n)
    settlement.granted = settlement.holders.get(owner)
    settlement.settle()
    return settlement


def resize(pool: Pool, holders: Iterable[Holder], queue: Iterable[Waiter], limit: int, now: Now) -> Settlement:
    settlement = Settlement(pool._replace(limit=limit, since_us=now.wall_us), holders, queue, now)
    settlement.told = [waiter for waiter in settlement.queue if waiter.n > limit]
    for waiter in settlement.told:
        settlement.drop(waiter)
    settlement.settle()
    return settlement


def force_release(
    pool: Pool, holders: Iterable[Holder], queue: Iterable[Waiter], owner: str | None, slot: int | None, now: Now
) -> Settlement:
    settlement = Settlement(pool, holders, queue, now)
    for holder in list(settlement.holders.values()):
        if (owner is None or holder.owner == owner) and (slot is None or slot in holder.slots):
            settlement.removed.append(holder)
            settlement.remove(holder)
    settlement.settle()
    return settlement


def take_back(
    pool: Pool, holders: Iterable[Holder], queue: Iterable[Waiter], unreached: Waiter, now: Now
) -> Settlement | None:
    """A push reached nobody. Unless the waiter has found its grant by a claim (None), it is queued again, at its old
    position but muted, and the next ones are served."""
    settlement = Settlement(pool, holders, queue, now)
    holder = settlement.holders.get(unreached.owner)
    if holder is None or not holder.unconfirmed:
        return None
    settlement.remove(holder)
    settlement.queue = sorted([*settlement.queue, unreached._replace(muted=True)])
    settlement.settle()
    return settlement


def renewed(holder: Holder, ttl: float, now: Now) -> Holder:
    return holder._replace(ttl=ttl, expires=now.clock + ttl, unconfirmed="")


def has_left(waiter: Waiter, now: Now) -> bool:
    return now.clock - waiter.seen > rules.WAITER_WINDOW or now.is_gone(waiter.details)


def is_forgettable(pool: Pool, now: Now) -> bool:
    """If nobody holds or waits: idle for so long that the clock alone makes the next token larger."""
    return max(pool.since_us, pool.token) + rules.TOKEN_MEMORY_US < now.wall_us
