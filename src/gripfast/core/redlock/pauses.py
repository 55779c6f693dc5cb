"""How long to pause after a vote that was lost, or that nobody won.

Two clients that have split the votes must not do so again and again: the pause is random, and grows. A waiter is
notified when the holder releases the lock; the pause is for notifications that got lost.
"""

from __future__ import annotations

SPLIT_FIRST = 0.004
"""Seconds; a few times what a vote takes."""
SPLIT_MOST = 0.25
HELD_FIRST = 0.05
HELD_MOST = 1.0
AT_EXPIRY = 0.001
"""Seconds after which a node has surely let go of what has run out."""


def after_split(splits: int, chance: float) -> float:
    """Nobody has a majority, so many times in a row: whoever comes back first may get one."""
    return _grown(SPLIT_FIRST, SPLIT_MOST, splits) * chance


def while_held(tries: int, chance: float, expires_in: float) -> float:
    """Somebody has it, for so long unless it is renewed. Those who wait for its end do not come all at once."""
    pause = _grown(HELD_FIRST, HELD_MOST, tries) * (0.5 + 0.5 * chance)
    return min(pause, max(0.0, expires_in) + AT_EXPIRY + after_split(1, chance))


def _grown(first: float, most: float, tries: int) -> float:
    return min(most, first * 2.0 ** min(tries, 16))
