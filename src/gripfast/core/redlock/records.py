"""What a client knows of its own claims, by owner id: from before the first vote leaves until the owner is done."""

from __future__ import annotations

from gripfast.core.ports import Claim, Label


class Record:
    __slots__ = ("asked", "attempt", "is_over", "label", "splits", "token", "tries")

    def __init__(self, label: Label) -> None:
        self.attempt = 0
        """The number of the last attempt; with the owner's id it is what nodes have as the value of the lock."""
        self.asked: frozenset[int] = frozenset()
        """The nodes that something was sent to: they may have the lock, or a position in the queue."""
        self.token = 0
        """Of the grant."""
        self.label = label
        self.is_over = False
        """It is being released."""
        self.tries = 0
        """Attempts that failed because somebody has it."""
        self.splits = 0
        """Attempts that failed, one after the other, because nobody got it."""


class Records:
    """One per client: both of its colours use it, from several threads."""

    def __init__(self) -> None:
        self._by_owner: dict[str, Record] = {}

    def of(self, claim: Claim) -> Record:
        record = self._by_owner.get(claim.owner)
        if record is None:
            record = self._by_owner[claim.owner] = Record(claim.told)
        return record

    def find(self, owner: str) -> Record | None:
        return self._by_owner.get(owner)

    def end(self, owner: str) -> Record | None:
        return self._by_owner.pop(owner, None)
