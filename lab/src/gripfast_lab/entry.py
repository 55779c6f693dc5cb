"""What an entry of the lab is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gripfast_lab.world import Protocol


@dataclass(frozen=True)
class Entry:
    name: str
    title: str
    protocol: Callable[[], Protocol]
    """New for each search: engines remember what they were asked."""
    breaks: str
    idea: str
    """Why somebody would build it like this."""
    happens: str
    """What the history shows, in words."""
    notes: str
    """What the notes that Gripfast grew out of say about it; empty: nothing."""
    answer: str
    """The rule of Gripfast that answers it."""
    seen: str = ""
    """Where others have met it, if the notes say nothing."""
