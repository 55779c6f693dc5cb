"""Requests to a node that is taking over a slot: each with ASKING before it, on the same connection.

Claims are noted as they are everywhere (`stores/redis/conversation.py`, rules 3 and 4), and so the clean-up of one that
was not answered follows it, with ASKING before it, too. Where the slot has arrived meanwhile, ASKING changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gripfast.core.ports import Inbox
from gripfast.stores.faults import Fault
from gripfast.stores.redis.protocol import ASKING
from gripfast.stores.redis.store import Link
from gripfast.stores.redis.unread import Unread


class NodeLink(Link, Protocol):
    """What a Link of a node has besides."""

    def ask_behind(self, first: bytes, packed: bytes, owner: str | None = None) -> Any: ...

    def hears(self, inbox: Inbox) -> None: ...

    def disconnect(self) -> None: ...


class Asking:
    """The connections of another Link."""

    def __init__(self, link: NodeLink) -> None:
        self._link = link
        self.suspends = link.suspends
        self.server = link.server
        self.inboxes = link.inboxes
        self.clean_up = link.clean_up
        self.aside = link.aside
        self.listen = link.listen
        self.stop_listening = link.stop_listening
        self.stop_waiting = link.stop_waiting

    @property
    def inbox(self) -> Callable[[], Inbox]:
        return self._link.inbox

    def ask(self, packed: bytes, owner: str | None = None, name: str | None = None) -> Any:
        return self._link.ask_behind(ASKING, packed, owner)

    def send(self, unread: Unread) -> bool:
        """Whoever has to ask first waits for the answer."""
        return False

    async def read_late(self, within: float = 0.0) -> bool:
        return False

    def ask_many(self, commands: Sequence[bytes], within: float = math.inf) -> Any:
        replies = self._link.ask_many([each for command in commands for each in (ASKING, command)], within)
        return _answers_to_come(replies) if self.suspends else _answers(replies)

    def ask_acked(
        self, commands: Sequence[bytes], wait: Sequence[bytes], within: float = math.inf, owner: str | None = None
    ) -> Any:
        behind = [each for command in commands for each in (ASKING, command)]
        replies = self._link.ask_acked(behind, wait, within, owner)
        return _acked_to_come(replies, len(wait)) if self.suspends else _acked(replies, len(wait))

    async def close(self) -> None:
        """Whoever has made the other one closes it."""


def follows_asking(clean_up: Callable[[str, bytes], bool | None]) -> Callable[[str, bytes], bool | None]:
    """The same behind every claim: it may have been one of these."""
    return lambda owner, packed: clean_up(owner, ASKING + packed)


def _answers(replies: Any) -> Any:
    return replies if isinstance(replies, Fault) else replies[1::2]


def _acked(replies: Any, last: int) -> Any:
    """`last`: how many replies are to what follows the commands."""
    return replies if isinstance(replies, Fault) else [*replies[1:-last:2], *replies[-last:]]


async def _acked_to_come(replies: Any, last: int) -> Any:
    return _acked(await replies, last)


async def _answers_to_come(replies: Any) -> Any:
    return _answers(await replies)
