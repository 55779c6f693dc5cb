"""Clocks that differ from the true one: by an offset, by a rate, by jumps, and by standing still.

The true time is the world's; nobody in it can read it. Processes read boot clocks, nodes wall clocks. A rate within
half a per cent of 1 is what is promised (any two differ by 1 % at most); everything else here is a declared fault.
"""

from __future__ import annotations

import math

RATE_PROMISED = 0.005
"""How much a clock's rate may be off, so that two clocks differ by no more than `rules.CLOCK_RATES`."""


class Clock:
    __slots__ = ("_factor", "_local", "_rate", "_speed", "_stops", "_true")

    def __init__(self, offset: float, rate: float = 1.0) -> None:
        self._true = 0.0
        self._local = offset
        self._rate = rate
        self._factor = 1.0
        self._stops = 0
        self._speed = rate
        """What comes of the three: local seconds in a true one."""

    def read(self, true: float) -> float:
        return self._local + (true - self._true) * self._speed

    def true_at(self, local: float) -> float:
        """When it will show this, if nothing happens to it; never, if it stands still."""
        if local == math.inf:
            return math.inf
        ahead = local - self._local
        if self._speed == 0.0:
            return self._true if ahead <= 0.0 else math.inf
        return self._true + ahead / self._speed

    def jump(self, true: float, by: float) -> None:
        self._local, self._true = self.read(true) + by, true

    def speed_up(self, true: float, factor: float) -> None:
        """Beyond what is promised; by 1/factor it is over."""
        self._factor *= factor
        self._change(true)

    def stop(self, true: float) -> None:
        self._stops += 1
        self._change(true)

    def go_on(self, true: float) -> None:
        self._stops -= 1
        self._change(true)

    def _change(self, true: float) -> None:
        self.jump(true, 0.0)
        self._speed = 0.0 if self._stops else self._rate * self._factor
