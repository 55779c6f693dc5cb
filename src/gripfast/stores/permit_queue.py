"""Who of a queue of contenders has permits, and whom the others wait for: for engines where a queue is nothing but its
contenders, in the order in which they came (ZooKeeper, etcd). Pure.

Holders stay in the queue. Those of a semaphore have slots; a reader or writer holds when nobody before it keeps it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal, Protocol, TypeVar

from gripfast.core.ports import RW_LIMIT

ANY: Literal["any"] = "any"
"""Not one contender: a waiter goes on when any of the holders ends."""


class Contender(Protocol):
    @property
    def n(self) -> int: ...
    @property
    def slots(self) -> tuple[int, ...]: ...


C = TypeVar("C", bound=Contender)


def waits_for(queue: Sequence[C], place: int, n: int, limit: int) -> C | Literal["any"] | None:
    """Who must end, or get its permits, before the contender at this place, which wants n and has none, can go on; None
    if it may take them. The place behind everybody is that of a newcomer."""
    before = queue[:place]
    if limit == RW_LIMIT:
        if n == RW_LIMIT:
            return before[-1] if before else None
        return next((each for each in reversed(before) if each.n == RW_LIMIT), None)
    waiters = [each for each in before if not each.slots and each.n <= limit]  # who wants more can't ever go on
    if sum(each.n for each in queue if each.slots) + sum(each.n for each in waiters) + n <= limit:
        return None
    return waiters[-1] if waiters else ANY


def free_slots(queue: Iterable[Contender], limit: int, n: int) -> tuple[int, ...]:
    """The lowest ones."""
    taken = {slot for each in queue for slot in each.slots}
    return tuple(islice((slot for slot in range(limit) if slot not in taken), n))


def ranges_of(slots: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of slots, which are ascending."""
    ranges: list[tuple[int, int]] = []
    for slot in slots:
        if ranges and ranges[-1][1] == slot - 1:
            ranges[-1] = ranges[-1][0], slot
        else:
            ranges.append((slot, slot))
    return ranges
