"""Which connections carried the claims of an owner that were not answered there.

A clean-up must not overtake the claim that it cleans up, so it follows on the same connection. A claim that was given
up for lost may still arrive, even after the owner got the lock by asking again and has released it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

W = TypeVar("W")


class Trail(Generic[W]):
    def __init__(self) -> None:
        self._unanswered: dict[str, W] = {}
        self._late: dict[str, list[W]] = {}

    def leaves(self, owner: str, wire: W) -> None:
        if owner in self._unanswered:
            self._late.setdefault(owner, []).append(self._unanswered[owner])
        self._unanswered[owner] = wire

    def is_answered(self, owner: str) -> bool:
        """False if a clean-up has followed meanwhile, so that its reply is still to come."""
        return self._unanswered.pop(owner, None) is not None

    def is_late(self, owner: str) -> bool:
        """A claim of this owner may still arrive although another one was answered."""
        return bool(self._late) and owner in self._late

    def end(self, owner: str) -> list[W]:
        """The connections that a clean-up has to follow on; the owner is done with."""
        wires = self._late.pop(owner, []) if self._late else []
        wire = self._unanswered.pop(owner, None)
        return wires if wire is None else [*wires, wire]

    def clear(self) -> None:
        self._unanswered.clear()
        self._late.clear()
