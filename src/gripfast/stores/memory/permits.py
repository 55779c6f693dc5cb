"""Permits in the memory of this process: semaphores and read/write locks.

A name is one object that no step changes: each step makes a new one and puts it in the place of the old one, in one
step of C. So an interrupt leaves a name as it was before or after. It may strike between that and the pushes; then the
request is repeated, or its owner is abandoned, and that pushes again to everybody who was not heard of since.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gripfast.core.ports import Broken, Claim, Granted, Hold, Kind, Label, Loss, PermitInfo, PermitPage, Share, Taken
from gripfast.interrupts.guard import Guard
from gripfast.machine import boottime, wall_us
from gripfast.stores import permits
from gripfast.stores.granting import Now
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.permit_info import holder_info, permit_info
from gripfast.stores.permits import Holder, Pool, Settlement, Waiter
from gripfast.stores.protocol import PAGE

Key = tuple[Kind, str]

LOOK_AT = 2
"""Names that are looked at for each new one, whether they were idle for a day: so that looking keeps pace."""


class _Name(NamedTuple):
    pool: Pool
    holders: Mapping[str, Holder]
    queue: Mapping[str, Waiter]
    """By owner, the first one first."""


_UNKNOWN = _Name(Pool(), {}, {})


class MemoryPermits:
    def __init__(self, inboxes: Inboxes, details: Callable[[Label], str]) -> None:
        self._inboxes = inboxes
        self._details = details
        self._names: dict[Key, _Name] = {}
        self._order: deque[Key] = deque()
        self._broken: dict[str, tuple[float, str | None]] = {}
        """Owners that were force-released: when their time would have been over, and what they are to be told."""
        self._listed: list[str] = []
        self._tickets = 0
        self._guard = Guard()

    def claim(self, claim: Claim, share: Share) -> Granted | Taken:
        while True:
            settlement, answer = self._guard.run(self._claim, claim, share)
            self._push((share.kind, claim.name), settlement)
            if not settlement.more or isinstance(answer, Granted):
                return answer

    def renew(self, hold: Hold, kind: Kind) -> Loss | None:
        return self._guard.run(self._renew, hold, (kind, hold.name))

    def release(self, hold: Hold, kind: Kind) -> Loss | None:
        settlement = self._step((kind, hold.name), permits.leave, hold.owner)
        return None if settlement.removed else self._why_gone(hold.owner)

    def abandon(self, hold: Hold, kind: Kind) -> None:
        self._push_again(self._step((kind, hold.name), permits.leave, hold.owner))

    def downgrade(self, hold: Hold, n: int) -> Loss | None:
        settlement = self._step(("rwlock", hold.name), permits.downgrade, hold.owner, n)
        self._push_again(settlement)
        return None if settlement.granted is not None else self._why_gone(hold.owner)

    def resize(self, name: str, limit: int) -> None:
        self._step(("semaphore", name), permits.resize, limit)

    def inspect(self, name: str, kind: Kind) -> PermitInfo | None:
        found = self._find((kind, name))
        return permit_info(name, kind, found.pool, found.holders.values(), len(found.queue), _now())

    def page(self, kind: Kind, prefix: str, after: str | None) -> PermitPage:
        if after is None:
            self._listed = sorted(name for each, name in self._names.copy() if each == kind)
        listed = self._listed
        start = bisect_left(listed, prefix) if after is None else bisect_right(listed, after)
        names = [name for name in listed[start : start + PAGE] if name.startswith(prefix)]
        infos = [info for name in names if (info := self.inspect(name, kind)) is not None]
        return PermitPage(infos, names[-1] if len(names) == PAGE else None)

    def force_release(self, name: str, kind: Kind, owner: str | None, slot: int | None, note: str | None) -> bool:
        settlement = self._step((kind, name), permits.force_release, owner, slot, note=note, is_forced=True)
        return bool(settlement.removed)

    # -- each one step that no other thread sees half done ---------------------------------------------------------

    def _claim(self, claim: Claim, share: Share) -> tuple[Settlement, Granted | Taken]:
        now, key = _now(), (share.kind, claim.name)
        found = self._find(key)
        self._tickets += 1
        ticket, details = self._tickets, self._details(claim.told)
        claimant = found.queue.get(claim.owner) or Waiter(
            ticket, claim.owner, share.n, claim.ttl, now.clock, details, claim.owner
        )
        settlement = permits.claim(found.pool, found.holders.values(), found.queue.values(), claimant, share.limit, now)
        granted = settlement.granted
        if granted is None and settlement.limit_in_force is None and claim.inbox is not None:
            self._inboxes.add(claim.owner, claim.inbox)
            others = [waiter for waiter in settlement.queue if waiter.owner != claim.owner]
            settlement.queue = sorted([*others, claimant._replace(ttl=claim.ttl, seen=now.clock)])
        self._write(key, settlement)
        if granted is not None:
            return settlement, _grant(granted)
        first = settlement.first_to_expire()
        holder = None if first is None else holder_info(claim.name, first, len(settlement.queue), now)
        return settlement, Taken(holder, settlement.pool.token, limit_in_force=settlement.limit_in_force)

    def _renew(self, hold: Hold, key: Key) -> Loss | None:
        now, found = _now(), self._find(key)
        holder = found.holders.get(hold.owner)
        if holder is None or holder.expires <= now.clock:
            return self._why_gone(hold.owner)
        renewed = permits.renewed(holder, hold.ttl, now)
        self._names[key] = found._replace(holders={**found.holders, hold.owner: renewed})
        return None

    def _step(
        self,
        key: Key,
        decide: Callable[..., Settlement],
        *args: object,
        note: str | None = None,
        is_forced: bool = False,
    ) -> Settlement:
        settlement = self._guard.run(self._decide, key, decide, *args, note=note, is_forced=is_forced)
        self._push(key, settlement)
        return settlement

    def _decide(
        self, key: Key, decide: Callable[..., Settlement], *args: object, note: str | None, is_forced: bool
    ) -> Settlement:
        now, found = _now(), self._find(key)
        settlement = decide(found.pool, found.holders.values(), found.queue.values(), *args, now)
        if is_forced:
            living = {owner: told for owner, told in self._broken.items() if told[0] > now.clock}
            self._broken = {**living, **{each.owner: (each.expires, note) for each in settlement.removed}}
        self._write(key, settlement)
        return settlement

    def _take_back(self, key: Key, unreached: Waiter) -> Settlement | None:
        """Of an attempt that is over: nobody waits there any more."""
        found = self._find(key)
        holder = found.holders.get(unreached.owner)
        if holder is None or not holder.unconfirmed:
            return None
        settlement = permits.leave(found.pool, found.holders.values(), found.queue.values(), unreached.owner, _now())
        self._write(key, settlement)
        return settlement

    # ----------------------------------------------------------------------------------------------------------------

    def _find(self, key: Key) -> _Name:
        return self._names.get(key, _UNKNOWN)

    def _write(self, key: Key, settlement: Settlement) -> None:
        if not settlement.pool.limit:
            return  # nobody has ever used it
        if key not in self._names:
            self._forget_idle()
            self._order.append(key)
        queue = {waiter.owner: waiter for waiter in settlement.queue}
        self._names[key] = _Name(settlement.pool, settlement.holders, queue)

    def _forget_idle(self) -> None:
        now = _now()
        for _ in range(min(LOOK_AT, len(self._order))):
            key = self._order[0]
            found = self._find(key)
            if all(each.expires <= now.clock for each in found.holders.values()) and permits.is_forgettable(
                found.pool, now
            ):
                self._names.pop(key, None)
                self._order.popleft()
            else:
                self._order.rotate(-1)

    def _push(self, key: Key, settlement: Settlement) -> None:
        """A waiter whose attempt is over hears nothing, and the next one gets its turn."""
        to_do: deque[Settlement] = deque([settlement])
        while to_do:
            settlement = to_do.popleft()
            for waiter in settlement.told:
                self._inboxes.deliver(waiter.owner, None)
            for waiter, holder in settlement.handed:
                if not self._inboxes.deliver(waiter.owner, _grant(holder)):
                    next_one = self._guard.run(self._take_back, key, waiter)
                    if next_one is not None:
                        to_do.append(next_one)
            if settlement.more:
                to_do.append(self._guard.run(self._decide, key, permits.settle, note=None, is_forced=False))

    def _push_again(self, settlement: Settlement) -> None:
        """This request may repeat one that was interrupted between handing over and telling."""
        handed = {waiter.owner for waiter, _ in settlement.handed}
        for holder in settlement.holders.values():
            if holder.unconfirmed and holder.owner not in handed:
                self._inboxes.deliver(holder.owner, _grant(holder))

    def _why_gone(self, owner: str) -> Loss:
        told = self._broken.get(owner)
        if told is None:
            return "expired"
        return "broken" if told[1] is None else Broken(told[1])


def _grant(holder: Holder) -> Granted:
    return Granted(holder.token, holder.ttl, slots=holder.slots)


def _now() -> Now:
    return Now(boottime(), wall_us(), _never)


def _never(details: str) -> bool:
    return False
