"""Which connections carried the claims of an owner that were not answered there.

A clean-up must not overtake the claim that it cleans up, so it follows on the same connection. A claim that was given
up for lost may still arrive, even after the owner got the lock by asking again and has released it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

W = TypeVar("W")


class Trail(Generic[W]):
    def __init__(self) -> None:
        self.unanswered: dict[str, W] = {}
        """The connection of each owner's last claim, from before it leaves until its reply is read. On the hot path,
        so whoever sends a claim does this: `if owner in unanswered: repeats(owner)`, then sets, then pops it."""
        self.late: dict[str, list[W]] = {}
        """Those of earlier claims, of owners who had to ask again."""

    def repeats(self, owner: str) -> None:
        self.late.setdefault(owner, []).append(self.unanswered[owner])

    def of(self, owner: str) -> list[W]:
        """The connections that a clean-up would have to follow on."""
        wire = self.unanswered.get(owner)
        return [*self.late.get(owner, ()), *([] if wire is None else [wire])]

    def end(self, owner: str) -> list[W]:
        """The connections that a clean-up has to follow on; the owner is done with."""
        wires = self.late.pop(owner, []) if self.late else []
        wire = self.unanswered.pop(owner, None)
        return wires if wire is None else [*wires, wire]

    def follows(self, owner: str, wire: W) -> None:
        """A clean-up leaves on this connection: whatever it carried of this owner is followed."""
        if self.unanswered.get(owner) is wire:
            del self.unanswered[owner]
        if owner in self.late:
            others = [each for each in self.late.pop(owner) if each is not wire]
            if others:
                self.late[owner] = others

    def clear(self) -> None:
        self.unanswered.clear()
        self.late.clear()
