"""Who has left the line, in one session: it may be found there again.

An ensemble that changes its leader may forget a delete that it has answered. Seen with 3.8.0, where the logs of two of
three servers had the delete and all three had the node: ZOOKEEPER-4643 and ZOOKEEPER-4685 tell how. Such a node belongs
to a session that lives, and to nobody who would release it: the line would stand until the process ends.
"""

from __future__ import annotations

import contextlib
from collections import deque

from gripfast.stores.zookeeper.protocol import Contender

REMEMBERED = 1000
"""Owners. What is forgotten by an ensemble is what was answered just before its leader went."""


class Departed:
    """Without a mutex, for many threads: each step is one of the interpreter's own."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        """By owner."""
        self._order: deque[str] = deque()
        self._before: dict[str, str] = {}
        """Those who had left when the connection was made: no other can have come back."""
        self._untold: dict[str, str] = {}
        """Of those, the ones that were not seen yet."""

    def add(self, owner: str, parent: str) -> None:
        self._parents[owner] = parent
        self._order.append(owner)
        if len(self._order) > REMEMBERED:
            with contextlib.suppress(IndexError):
                self._parents.pop(self._order.popleft(), None)

    def remove(self, owner: str) -> None:
        """It stands in line again."""
        for known in (self._parents, self._before, self._untold):
            known.pop(owner, None)

    def reconnected(self) -> set[str]:
        """The lines in which they stood."""
        self._before = self._parents.copy()
        self._untold = self._before.copy()
        return set(self._before.values())

    def split(self, line: list[Contender]) -> tuple[list[Contender], list[Contender]]:
        """Those who are in line, and those who have left it and are to be deleted: once for each connection. A server
        that differs from its leader shows them after that, too."""
        before = self._before
        back = [each for each in line if each.owner in before] if before else []
        if not back:
            return line, []
        untold = [each for each in back if self._untold.pop(each.owner, None) is not None]
        return [each for each in line if each not in back], untold
