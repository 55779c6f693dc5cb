"""Releases that leave the name taken for a while.

A kept name is held by a marker owner, which nobody renews, and which expires by itself. So everybody who respects the
lock respects it, older versions and other libraries included. There are two kinds: `kept:` for the rest of a
`min_hold`, and `done:` for what was done once (`core/once.py`).

The marker has the owner id of the lease in it. So a repeated request finds that it has done its work, and "not yours"
never counts as success.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Marker = Literal["kept:", "done:"]

MIN_HOLD: Marker = "kept:"
DONE: Marker = "done:"


class Keep(NamedTuple):
    """Leave the name taken by this marker owner, which nobody renews, for so many seconds from now."""

    owner: str
    seconds: float


class Keeping(NamedTuple):
    """How a lease is released, if the name is to stay taken. The ledger has it, so that every clean-up does the
    same."""

    marker: Marker
    seconds: float
    since: float | None = None
    """On the client's clock. None: they count from the moment at which the engine records it."""

    def now(self, owner: str, now: float) -> Keep | None:
        """None if its time is over."""
        left = self.seconds if self.since is None else self.since + self.seconds - now
        return Keep(self.marker + owner, left) if left > 0.0 else None


def kept(owner: str) -> Literal["min_hold", "done"] | None:
    """What kind of marker this owner is; None if it is a holder like any other."""
    if owner.startswith(MIN_HOLD):
        return "min_hold"
    return "done" if owner.startswith(DONE) else None
