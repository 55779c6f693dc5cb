"""What a caller of a lock notes: what it does and is told, as `gripfast_lab.sim.history` has it.

Dated so that it believes rather too little than too much: a grant after it was returned, what a lease says of itself
before it is asked.
"""

from collections.abc import Callable
from typing import Any

import gripfast
from gripfast_lab.sim.history import Event, Kind
from gripfast_lab.verify.journal import now

AT_ONCE = 0.001
LOOKS = 20


def looked_at(lease: Any) -> tuple[float, float]:
    """When, and how much time it had left. Again, if others were served by the machine between the two: their sum would
    be an earlier deadline than the lease has, and what it says later be taken for a lie.
    """
    for _ in range(LOOKS):
        at = now()
        left: float = lease.remaining()
        if now() - at < AT_ONCE:
            break
    return at, left


class Notes:
    """Of one thread or task."""

    def __init__(self, who: str, keep: Callable[[Event], object]) -> None:
        self._who = who
        self._keep = keep

    def note(self, kind: Kind, name: str, **what: Any) -> None:
        self._keep(Event(**{"at": now(), "who": self._who, "name": name, "kind": kind, **what}))

    def asked(self, name: str, wait: float, request_timeout: float, **what: Any) -> None:
        """Before it asks."""
        at = now()
        self.note("asked", name, at=at, until=at + wait, patience=at + max(wait, request_timeout), **what)

    def answered(self, name: str, lease: Any, note: str = "") -> None:
        """None is a refusal. `note`: of a grant."""
        if lease is None:
            self.note("refused", name)
        else:
            at, left = looked_at(lease)
            self.note("granted", name, at=at, token=lease.token, until=at + left, note=note)

    def held(self, lease: Any) -> bool:
        at, left = looked_at(lease)
        if left > 0.0:
            self.note("held", lease.name, at=at, token=lease.token, until=at + left, ttl=lease.ttl)
        return bool(left > 0.0)

    def error(self, name: str, error: BaseException) -> None:
        """How an attempt ended without a lease, or a lease otherwise than by its release."""
        if isinstance(error, gripfast.LockTimeout):
            self.note("refused", name)
        elif isinstance(error, gripfast.StoreUnavailable):
            self.note("unreachable", name, note=f"{type(error).__name__}: {error}")
        elif isinstance(error, gripfast.LeaseLost):
            self.note("lost", name, note=error.reason)
        elif isinstance(error, TimeoutError):
            self.note("cancelled", name)
        else:
            self.note("failed", name, note=repr(error))
