"""The engine: rows and queues in dictionaries, each request one step that no other thread sees half done.

An interrupt may still end a step half-way. Rows are written whole, and the owner of an interrupted request is
abandoned, which removes what it left, and notifies the waiter that was handed the lock and not notified.

A name is forgotten when it was idle for a day. `_due` tells when to look at which, the next one first: each request
looks at a few, so that what forgetting costs follows the rate of new names, and no request pays for all of them. A row
has an entry there before it is written; an entry without a row is harmless.
"""

from __future__ import annotations

import functools
import logging
import os
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from gripfast.core import rules
from gripfast.core.ports import (
    Broken,
    Claim,
    Granted,
    Hold,
    LockInfo,
    Loss,
    Page,
    Taken,
)
from gripfast.errors import Reason
from gripfast.interrupts.guard import Guard
from gripfast.interrupts.living import Living
from gripfast.machine import boottime, wall_us
from gripfast.stores import granting
from gripfast.stores.granting import Now, Outcome, Row, Waiter
from gripfast.stores.holder import without_process, write_holder
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.memory.spec import CAPABILITIES
from gripfast.stores.protocol import PAGE, lock_info

if TYPE_CHECKING:
    from gripfast.stores.memory.permits import MemoryPermits

_log = logging.getLogger("gripfast.client")

LOOK_AT = 4
"""Names that a newcomer looks at, of those whose day may be over. More than one, so that looking keeps pace."""


_MEMORY = rules.TOKEN_MEMORY_US / 1_000_000


class MemoryEngine:
    capabilities = CAPABILITIES

    def __init__(self, is_private: bool = False) -> None:
        self._is_private = is_private
        self.inboxes = Inboxes()
        self._rows: dict[str, Row] = {}
        self._queues: dict[str, dict[str, Waiter]] = {}
        self._due: list[tuple[float, str]] = []
        self._listed: list[str] = []
        self._notes: dict[str, tuple[float, str]] = {}
        """Of owners that were force-released: when their lease would have ended, and what they are to be told."""
        self._details = functools.lru_cache(maxsize=256)(write_holder)
        self._tickets = 0
        self._guard = Guard()
        self._permits_made: MemoryPermits | None = None

    def claim(self, claim: Claim) -> Granted | Taken:
        if claim.share is not None:
            return self.permits().claim(claim, claim.share)
        if claim.name not in self._rows and self._is_private:
            self._tell_of_others(claim.name)
        return self._guard.run(self._claim, claim)

    def renew(self, holds: Sequence[Hold]) -> Sequence[Loss | None]:
        return [
            self._guard.run(self._renew, hold) if hold.share is None else self.permits().renew(hold, hold.share.kind)
            for hold in holds
        ]

    def release(self, hold: Hold) -> Loss | None:
        if hold.share is not None:
            return self.permits().release(hold, hold.share.kind)
        return self._guard.run(self._release, hold)

    def abandon(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            if hold.share is not None:
                self.permits().abandon(hold, hold.share.kind)
            else:
                self._guard.run(self._abandon, hold)

    def inspect(self, name: str) -> LockInfo | None:
        return self._guard.run(self._inspect, name)

    def page(self, prefix: str, after: str | None) -> Page:
        """Which names were held when the list began is found out while others go on."""
        if after is None:
            self._listed = sorted(name for name, row in self._rows.copy().items() if row.owner is not None)
        return self._guard.run(self._page, prefix, after)

    def force_release(self, name: str, note: str | None = None) -> bool:
        return self._guard.run(self._force_release, name, note)

    def permits(self) -> MemoryPermits:
        """Most programs have none."""
        if self._permits_made is None:
            from gripfast.stores.memory.permits import MemoryPermits

            self._guard.run(self._make_permits, MemoryPermits)
        assert self._permits_made is not None
        return self._permits_made

    def _make_permits(self, make: type[MemoryPermits]) -> None:
        if self._permits_made is None:
            self._permits_made = make(self.inboxes, self._details)

    def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss:
        return self._guard.run(self._adopt, hold, claim)

    def detach(self, hold: Hold) -> None:
        """Memory ends with its process, and so does everything in it."""

    def vouch(self, hold: Hold, pid: int) -> None:
        """Memory ends with its process: there is nobody to vouch to."""

    def close(self) -> None:
        """Other clients may share this engine; it ends with the last of them."""

    def _claim(self, claim: Claim) -> Granted | Taken:
        now = _now()
        queue = self._queues.get(claim.name, {})
        claimant = queue.get(claim.owner) or self._newcomer(claim, now)
        row = self._rows.get(claim.name)
        if row is None:
            row = Row()
            heappush(self._due, (now.clock + _MEMORY, claim.name))
        outcome = granting.claim(row, queue.values(), claimant, now)
        self._apply(claim.name, outcome)
        if outcome.granted:
            return Granted(outcome.row.token, claim.ttl)
        if claim.inbox is not None:
            self.inboxes.add(claim.owner, claim.inbox)
            self._queues.setdefault(claim.name, {})[claim.owner] = claimant._replace(seen=now.clock)
        return Taken(self._info(claim.name, now), outcome.row.token)

    def _tell_of_others(self, name: str) -> None:
        """When a name is first used here: whoever makes a client for each thread believes to share its locks. Rows are
        never changed, so the others may go on meanwhile."""
        now = _now()
        if any(engine is not self and not granting.is_free(engine._row(name), now) for engine in _privates):
            _log.warning(
                "%r is held by another client of memory:// in this process, but is free for this one: each "
                "connect('memory://') has locks of its own. Use one client, or a name: connect('memory://name')",
                name,
                extra={"gripfast_name": name},
            )

    def _newcomer(self, claim: Claim, now: Now) -> Waiter:
        self._tickets += 1
        if self._due and self._due[0][0] <= now.clock:
            self._forget_idle(now)
        return Waiter(self._tickets, claim.owner, claim.ttl, now.clock, self._details(claim.told), claim.owner)

    def _forget_idle(self, now: Now) -> None:
        self._forget_notes(now)
        for _ in range(LOOK_AT):
            if not self._due or self._due[0][0] > now.clock:
                return
            name = self._due[0][1]
            for waiter in [waiter for waiter in self._queues.get(name, {}).values() if granting.has_left(waiter, now)]:
                self._leave(name, waiter.owner)
            if name in self._rows and not granting.is_forgettable(self._rows[name], now):
                heapreplace(self._due, (now.clock + _days_rest(self._rows[name], now), name))
            else:
                self._rows.pop(name, None)
                heappop(self._due)

    def _forget_notes(self, now: Now) -> None:
        self._notes = {owner: noted for owner, noted in self._notes.items() if noted[0] > now.clock}

    def _renew(self, hold: Hold) -> Loss | None:
        now = _now()
        row = self._row(hold.name)
        reason = granting.gone_because(row, hold.owner, now)
        if reason is None:
            self._rows[hold.name] = granting.renewed(row, hold.ttl, now)
        return self._noted(hold.owner, reason)

    def _release(self, hold: Hold) -> Loss | None:
        now = _now()
        row = self._row(hold.name)
        if row.owner != hold.owner:
            if hold.keep is not None and row.owner == hold.keep.owner:
                return None
            return self._noted(hold.owner, granting.gone_because(row, hold.owner, now))
        if hold.keep is None:  # as `_give_back`, without a call
            self._free(hold.name, row, now)
        else:
            self._give_back(hold, row, now)
        return None

    def _give_back(self, hold: Hold, row: Row, now: Now) -> None:
        if hold.keep is None:
            self._free(hold.name, row, now)
        else:
            self._rows[hold.name] = granting.keep(row, hold.keep, without_process(row.details), now)

    def _noted(self, owner: str, reason: Reason | None) -> Loss | None:
        noted = self._notes.get(owner) if reason == "broken" else None
        return reason if noted is None else Broken(noted[1])

    def _abandon(self, hold: Hold) -> None:
        self._leave(hold.name, hold.owner)
        row = self._row(hold.name)
        if row.owner == hold.owner:
            self._give_back(hold, row, _now())
        elif row.unconfirmed and row.owner:
            self.inboxes.deliver(row.owner, Granted(row.token, row.ttl))

    def _force_release(self, name: str, note: str | None) -> bool:
        now = _now()
        row = self._row(name)
        if granting.is_free(row, now) or granting.is_done(row):
            return False
        if note is not None and row.owner is not None:
            self._forget_notes(now)
            self._notes[row.owner] = (row.expires, note)
        self._free(name, granting.broken(row), now)
        return True

    def _adopt(self, hold: Hold, claim: Claim) -> Granted | Loss:
        now = _now()
        adopter = Waiter(0, claim.owner, claim.ttl, now.clock, self._details(claim.told), claim.owner)
        adopted = granting.adopt(self._row(hold.name), hold.owner, adopter, now)
        if not isinstance(adopted, Row):
            return self._noted(hold.owner, adopted) or adopted
        self._rows[hold.name] = adopted
        return Granted(adopted.token, claim.ttl)

    def _inspect(self, name: str) -> LockInfo | None:
        return self._info(name, _now())

    def _page(self, prefix: str, after: str | None) -> Page:
        now, listed = _now(), self._listed
        start = bisect_left(listed, prefix) if after is None else bisect_right(listed, after)
        names = [name for name in listed[start : start + PAGE] if name.startswith(prefix)]
        infos = [info for name in names if (info := self._info(name, now)) is not None]
        return Page(infos, names[-1] if len(names) == PAGE else None)

    def _row(self, name: str) -> Row:
        return self._rows.get(name) or Row()

    def _info(self, name: str, now: Now) -> LockInfo | None:
        return lock_info(name, self._row(name), len(self._queues.get(name, ())), now)

    def _free(self, name: str, row: Row, now: Now) -> None:
        self._apply(name, granting.free(row, self._queues.get(name, {}).values(), now))

    def _apply(self, name: str, outcome: Outcome) -> None:
        """Write, then push; a waiter whose attempt is over hears nothing, and the next one gets its turn."""
        while True:
            self._rows[name] = outcome.row
            for waiter in outcome.dropped:
                self._leave(name, waiter.owner)
            handed = outcome.handed
            if handed is None or self.inboxes.deliver(handed.owner, Granted(outcome.row.token, handed.ttl)):
                return
            outcome = granting.free(outcome.row, self._queues.get(name, {}).values(), _now())

    def _leave(self, name: str, owner: str) -> None:
        queue = self._queues.get(name)
        if queue is not None:
            queue.pop(owner, None)
            if not queue:
                del self._queues[name]


def _days_rest(row: Row, now: Now) -> float:
    """Seconds until it is worth looking at the row again; a second at least, whatever the wall clock says."""
    return max(1.0, _MEMORY - (now.wall_us - max(row.since_us, row.token)) / 1_000_000)


def _now() -> Now:
    return Now(boottime(), wall_us(), _never)


def _never(details: str) -> bool:
    return False


_privates: Living[MemoryEngine] = Living()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_privates.clear)  # what the parent holds, this process does not


def private_engine() -> MemoryEngine:
    """Of one client."""
    engine = MemoryEngine(is_private=True)
    _privates.add(engine)
    return engine


_shared: weakref.WeakValueDictionary[tuple[int, str], MemoryEngine] = weakref.WeakValueDictionary()
_sharing = Guard()


def shared_engine(name: str) -> MemoryEngine:
    """The engine of this name in this process; a forked child has its own."""
    return _sharing.run(_find_or_make, (os.getpid(), name))


def _find_or_make(key: tuple[int, str]) -> MemoryEngine:
    engine = _shared.get(key)
    if engine is None:
        engine = _shared[key] = MemoryEngine()
    return engine
