"""Random numbers that one seed decides, the same on every machine and Python.

The generator is SplitMix64: a counter and a mix, so that a stream costs nothing to make. Whoever needs chance forks a
stream of its own by a label: what one of them draws shifts nobody else's numbers, and a history stays recognisable when
something is left out of its plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


class Chance:
    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = _mixed(seed & _MASK)

    def fork(self, label: str) -> Chance:
        """Does not draw: the same label gives the same stream."""
        return Chance(self._state ^ crc32(label.encode()) * _STEP)

    def random(self) -> float:
        """From 0 up to, not including, 1."""
        self._state = state = (self._state + _STEP) & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK  # _mixed, on the hot path
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        return ((state ^ state >> 31) >> 11) * 2.0**-53

    def below(self, limit: int) -> int:
        return int(self.random() * limit)

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def happens(self, probability: float) -> bool:
        return self.random() < probability

    def pick(self, among: Sequence[T]) -> T:
        return among[int(self.random() * len(among))]


def _mixed(state: int) -> int:
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
    return state ^ state >> 31
