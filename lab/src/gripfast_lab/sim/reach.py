"""Which nodes something was in the way of, for whom and when: with several nodes, a fault at a few of them excuses
nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

EVERYBODY = ""


class _Obstacle(NamedTuple):
    at: float
    until: float
    process: str
    nodes: frozenset[int]


class Reach:
    def __init__(self, nodes: int, needed: int) -> None:
        self._everywhere = frozenset(range(nodes))
        self.needed = needed
        self._obstacles: list[_Obstacle] = []
        self._abstentions: list[_Obstacle] = []

    def obstruct(self, at: float, until: float, process: str, nodes: Iterable[int]) -> None:
        """No nodes: all of them."""
        self._obstacles.append(_Obstacle(at, until, process, frozenset(nodes) or self._everywhere))

    def abstains(self, at: float, until: float, node: int) -> None:
        """It is reached, but does not vote."""
        self._abstentions.append(_Obstacle(at, until, EVERYBODY, frozenset((node,))))

    def is_free(self, process: str, node: int, since: float, until: float) -> bool:
        """Nothing was in the way between these two."""
        return node not in self._met(self._obstacles, process, since, until)

    def is_in_the_way(self, process: str, since: float, until: float) -> bool:
        """Anything at all."""
        return bool(self._met(self._obstacles, process, since, until))

    def has_majority(self, process: str, since: float, until: float) -> bool:
        """So many nodes were reached, and voted, that nothing else mattered."""
        met = self._met([*self._obstacles, *self._abstentions], process, since, until)
        return len(self._everywhere - met) >= self.needed

    def is_quorate(self, since: float, until: float) -> bool:
        """So many nodes voted, whether they were reached or not."""
        return len(self._everywhere - self._met(self._abstentions, EVERYBODY, since, until)) >= self.needed

    @staticmethod
    def _met(obstacles: list[_Obstacle], process: str, since: float, until: float) -> frozenset[int]:
        met: frozenset[int] = frozenset()
        for each in obstacles:
            if each.at <= until and each.until >= since and each.process in (EVERYBODY, process):
                met |= each.nodes
        return met
