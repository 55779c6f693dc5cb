"""Which lease does release() mean? The standard library's lock objects do not say, so they keep book here.

One lock object may stand for several leases: a thread lost its lease without knowing, and the next thread got a new one
through the same object. If the object had room for one lease only, the first thread's release() would free the lock of
the second. So every lease is kept with who acquired it, and release() means

- the latest lease of the one who calls, if there is one (lost or not: a lost one raises LeaseLost, which is the truth);
- otherwise the oldest of all: these locks may be released by someone else, and whoever came first is due first.

There is no mutex that an interrupt or a fork could leave locked: a dict's own operations are atomic, and the one who
pops a hold has it. A hold is entered by a plain assignment, `holdings[hold] = None`, as the last thing an acquire does:
an interrupt before it drops the lease, which releases the lock, and Python looks for signals at calls and jumps only.
"""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

L = TypeVar("L")


class Hold(Generic[L]):
    """A lease that waits for its release. With `keep=False` someone else keeps it, and it may die."""

    __slots__ = ("_kept", "lease", "who")

    def __init__(self, who: object, lease: L, keep: bool = True) -> None:
        self.who = who
        self.lease = weakref.ref(lease)
        self._kept = lease if keep else None


class Holdings(dict[Hold[L], None]):
    """The holds of one lock object, oldest first."""

    def living(self) -> list[tuple[Hold[L], L]]:
        """All holds with their leases; those that died are let go."""
        found = []
        for hold in list(self):
            lease = hold.lease()
            if lease is None:
                self.pop(hold, None)
            else:
                found.append((hold, lease))
        return found

    def pick(self, who: object) -> tuple[Hold[L], L] | None:
        """What release() would mean, if `who` called it now."""
        living = self.living()
        mine = [entry for entry in living if entry[0].who == who]
        return mine[-1] if mine else living[0] if living else None

    def take(self, who: object) -> L | None:
        """Take it off the book: whoever gets a lease here is the only one who does."""
        while (entry := self.pick(who)) is not None:
            if self._popped(entry[0]):
                return entry[1]
        return None

    def take_this(self, lease: L) -> bool:
        """Take this very lease off, if nobody has."""
        return any(self._popped(hold) for hold, other in self.living() if other is lease)

    def _popped(self, hold: Hold[L]) -> bool:
        return self.pop(hold, hold) is None
