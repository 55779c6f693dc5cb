"""Which waiters wait for a lock in which slot: if the slot moves, they retry at once, and subscribe at its new node."""

from __future__ import annotations

from gripfast.core.ports import Inbox
from gripfast.stores.inboxes import Inboxes


class Waiting:
    def __init__(self) -> None:
        self._by_slot: dict[int, Inboxes] = {}

    def add(self, slot: int, owner: str, inbox: Inbox) -> None:
        self._by_slot.setdefault(slot, Inboxes()).add(owner, inbox)

    def slots(self) -> list[int]:
        return list(self._by_slot)

    def moved(self, slot: int) -> None:
        """Another node has it now."""
        inboxes = self._by_slot.pop(slot, None)
        if inboxes is not None:
            inboxes.ask_again()
