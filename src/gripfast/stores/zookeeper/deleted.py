"""Deleted nodes that may reappear, in one session.

An ensemble that changes its leader may forget a delete that it has answered. Measured with 3.8.0: the logs of two of
three servers had the delete, and all three had the node; ZOOKEEPER-4643 and ZOOKEEPER-4685 tell how. Such a node
belongs to a session that lives, and to no owner that would release it: everybody behind it in the queue would wait
until the process ends. So with each new connection the session looks for the nodes of owners that have left; they are
passed over, and deleted once more.
"""

from __future__ import annotations

import contextlib

from gripfast.stores.zookeeper.protocol import Queued

REMEMBERED = 1000
"""Owners. What an ensemble forgets was answered just before its leader went."""


class DeletedNodes:
    """Without a mutex, for many threads: each step is one of the interpreter's own."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}
        """By owner."""
        self.before: dict[str, str] = {}
        """Owners that had left when the connection was made: no other node can have reappeared."""
        self._unseen: dict[str, str] = {}
        """Of those, the ones whose node was not seen again yet."""

    def add(self, owner: str, parent: str) -> None:
        self.parents[owner] = parent
        if len(self.parents) > REMEMBERED:
            with contextlib.suppress(KeyError, RuntimeError, StopIteration):  # another thread has just done that
                del self.parents[next(iter(self.parents))]

    def remove(self, owner: str) -> None:
        """It is queued again."""
        for known in (self.parents, self.before, self._unseen):
            known.pop(owner, None)

    def reconnected(self) -> set[str]:
        """Where their nodes were."""
        self.before = self.parents.copy()
        self._unseen = self.before.copy()
        return set(self.before.values())

    def split(self, queue: list[Queued]) -> tuple[list[Queued], list[Queued]]:
        """Those that are queued, and the reappeared ones to delete: once for each connection. A server that differs
        from its leader shows them after that, too."""
        back = [each for each in queue if each.owner in self.before]
        unseen = [each for each in back if self._unseen.pop(each.owner, None) is not None]
        return [each for each in queue if each not in back], unseen
