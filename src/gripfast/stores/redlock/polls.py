"""Who hears, in the asyncio colour, what nodes answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from gripfast.core.redlock.nodes import Answer, Ballot
from gripfast.stores.redis.faults import Fault
from gripfast.stores.redlock.health import withdrawn


class Asked(Protocol):
    """A node."""

    place: int
    where: str
    trouble: Fault | None


class Poll:
    """A ballot, and whoever waits for its end."""

    __slots__ = ("_ballot", "_heard", "_pending", "decided", "is_dropped", "is_over")

    def __init__(self, ballot: Ballot, asked: int, decided: asyncio.Future[None]) -> None:
        self.decided = decided
        self.is_over = False
        """Nobody waits for answers any more."""
        self.is_dropped = False
        """And nobody wants what it was for: it was cancelled."""
        self._ballot = ballot
        self._pending = asked
        self._heard = 0
        """A bit for each node."""

    def withdraw(self, unasked: Iterable[Asked]) -> None:
        """It is lost: what has not left yet never will, and the ballot has to know."""
        self.is_dropped = True
        for node in unasked:
            if not self._heard >> node.place & 1:
                self._ballot.add(node.place, withdrawn(node.where, node.trouble))

    def tell(self, place: int, answer: Answer) -> None:
        if self.is_over:
            return
        self._pending -= 1
        self._heard |= 1 << place
        if self._ballot.add(place, answer) or self._pending == 0:
            self.is_over = True
            if not self.decided.done():
                self.decided.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.is_over and not self.decided.done():
            self.is_over = True
            self.decided.set_exception(error)


class Nobody:
    """Instead of a poll, for what was only sent."""

    is_over = is_dropped = False

    def tell(self, place: int, answer: Answer) -> None:
        pass

    def fail(self, error: Exception) -> None:
        pass


NOBODY = Nobody()
