"""The earliest of the moments that many threads announce, kept for the one that looks.

`self.moment = min(moment, self.moment)` will not do: what another thread announces between the reading and the storing
is overwritten, and a lease whose moment it was is never renewed, or its loss never told. Nor will `if moment <
self.moment: self.moment = moment`: of two who announce at once the later moment may be stored last.

So nobody stores a moment over another. Announcing appends to a deque, unless the last one there is as early: then that
one speaks for both. Only the keeper, one thread or loop, takes moments out, all of them, before it looks at everything.
Between two looks there is always a moment in the deque, infinity if nothing is due: announcing is one comparison.

Why no announcement is lost, with or without a global interpreter lock. Steps of one deque are atomic and come one
after the other: the interpreter lock sees to it, or else the deque's own. Whoever announces has written its lease into
the ledger before its first step here; the keeper empties the deque before it looks through the ledger.

- If the announcer's step came before the keeper found the deque empty, its lease was in the ledger before the look,
  and the look sees it.
- If it came after, the announcer found the deque empty, and appends; or found a moment as early that was appended after
  that, and stays until the keeper takes it next time; or found a later one, and appends.

The same order is what sleeping relies on: a keeper shows when it will wake (`Ticker.wakes_at`) as "never" before it
empties the deque, so an announcer whose step came after that sees either "never", or the new time, and calls it if that
is too late.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque


class Soonest:
    def __init__(self) -> None:
        self._moments: deque[float] = deque([math.inf])
        self._is_looking = False
        """Of the keeper's alone. An interrupt or a cancel in the middle of a look leaves it set."""

    def announce(self, moment: float) -> None:
        """From any thread. What is due at that moment must be where the keeper looks for it."""
        try:
            if moment >= self._moments[-1]:
                return
        except IndexError:  # the keeper is about to look
            pass
        self._moments.append(moment)

    def next(self) -> float:
        """By the keeper: the earliest moment. A look that was begun and not ended must be made again."""
        return -math.inf if self._is_looking else min(self._moments.copy(), default=math.inf)

    def begin(self) -> None:
        """By the keeper, before it looks: what is announced from now on counts for the next time."""
        self._is_looking = True
        with contextlib.suppress(IndexError):
            while True:
                self._moments.popleft()

    def end(self, moment: float) -> None:
        """By the keeper: it has seen everything that is due before this moment."""
        self.announce(moment)
        self._is_looking = False
