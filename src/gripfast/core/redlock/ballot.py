"""Counting the answers of N nodes, decided as early as it can be.

"Taken" and "failed" are counted apart: that somebody else has the lock, and that too many nodes could not be reached,
are different results for the caller.
"""

from __future__ import annotations

from collections.abc import Iterable

from gripfast.core.redlock.nodes import Answer, Busy, Failed, Freed, Locked, Unmarked


def majority(nodes: int) -> int:
    return nodes // 2 + 1


class VoteBallot:
    """For rounds 1 and 2."""

    __slots__ = ("_is_first", "_majority", "accepted", "answers", "locked", "missing", "others", "pending", "unmarked")

    def __init__(self, nodes: int, asked: int, is_first: bool = True) -> None:
        self.answers: list[Answer] = [None] * nodes
        self.pending = asked
        self.locked = 0
        self.accepted = 0
        self.unmarked = 0
        self.missing = 0
        """Nodes that have no say: they failed, or must not vote yet."""
        self.others = 0
        """Answers other than that it is locked."""
        self._majority = majority(nodes)
        self._is_first = is_first

    @property
    def is_won(self) -> bool:
        """A majority has locked and accepted."""
        return self.accepted >= self._majority

    @property
    def is_plain(self) -> bool:
        """Won, and there is nothing else to see to."""
        return self.accepted >= self._majority and self.accepted == self.locked and not self.others

    @property
    def is_lost(self) -> bool:
        """It has less than it needs, and was decided."""
        return not self.is_won and not self.is_locked

    @property
    def is_locked(self) -> bool:
        return self.locked >= self._majority

    def add(self, node: int, answer: Answer) -> bool:
        if self.answers[node] is not None:
            raise ValueError(f"node {node} has voted before")  # counted twice, two nodes would be a majority
        self.answers[node] = answer
        self.pending -= 1
        if isinstance(answer, Locked):
            self.locked += 1
            self.accepted += answer.has_accepted
        else:
            self.others += 1
            self.missing += not isinstance(answer, Busy)
            self.unmarked += isinstance(answer, Unmarked)
        return self.pending == 0 or self._is_decided()

    def _is_decided(self) -> bool:
        if self.accepted >= self._majority:
            return True
        if self._is_first and self.locked >= self._majority and self.accepted < self.locked:
            return True  # a second round is sooner than whoever is late
        if self.unmarked and self.unmarked + self.pending == len(self.answers):
            return False  # the cluster may be new: that takes all of them
        most = self.locked if self._is_first else self.accepted
        if most + self.pending >= self._majority:
            return False
        # It is lost. Whether for want of nodes or because others have them must not depend on who answers first.
        short = len(self.answers) - self._majority + 1
        return self.missing >= short or self.missing + self.pending < short


class Roll:
    """Everybody's answer."""

    __slots__ = ("answers", "pending")

    is_lost = False

    def __init__(self, nodes: int, asked: int) -> None:
        self.answers: list[Answer] = [None] * nodes
        self.pending = asked

    def add(self, node: int, answer: Answer) -> bool:
        self.answers[node] = answer
        self.pending -= 1
        return self.pending == 0


class FreeBallot(Roll):
    """For the release of a lease: free as soon as a majority is."""

    __slots__ = ("_majority", "freed")

    def __init__(self, nodes: int, asked: int) -> None:
        super().__init__(nodes, asked)
        self.freed = 0
        self._majority = majority(nodes)

    @property
    def is_free(self) -> bool:
        return self.freed >= self._majority

    def add(self, node: int, answer: Answer) -> bool:
        is_last = super().add(node, answer)
        self.freed += isinstance(answer, Freed) and answer.was_held
        return is_last or self.freed >= self._majority


def failures(answers: Iterable[Answer]) -> list[Failed]:
    return [answer for answer in answers if isinstance(answer, Failed)]
