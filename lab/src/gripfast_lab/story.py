"""A history as a story: who did what in which order, ready to be told or drawn.

It knows no protocol and no engine. The lab makes one of a path that its search found, the simulation one of a failing
seed; `gripfast_lab.pictures` makes text, SVG and HTML of either.

Time is the order of things: every moment is one event and takes one column, however long the world waited before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Part = Literal["client", "node", "world"]
"""World: what belongs to nobody, such as time that passes."""

Sign = Literal[
    "ask",  # a request was sent and answered
    "enter",  # it has the lock, as far as it knows
    "leave",  # it is done, and knows so
    "refused",
    "lost",  # a message, or its answer
    "slow",
    "pause",
    "resume",
    "crash",
    "restart",  # a node, without its memory
    "jump",  # a clock
    "cut",  # off from the others
    "time",  # it passes
    "other",
]


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    part: Part


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message in one moment: a request if it goes to a node, with what was answered in `back`."""

    start: str
    end: str
    text: str = ""
    back: str = ""
    """The answer; empty: none is drawn."""
    is_lost: bool = False
    """It did not arrive."""
    is_back_lost: bool = False
    """It arrived; its answer did not."""


@dataclass(frozen=True, slots=True)
class Moment:
    lane: str
    """Whose moment it is."""
    sign: Sign
    text: str
    """One line that says what happens, with the name of who does it: "A: SET lock A NX EX 30 → OK"."""
    brief: str = ""
    """A word or two for a picture."""
    at: float | None = None
    """Seconds since the story began, if they are told."""
    arrows: tuple[Arrow, ...] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """Somebody holds the lock, as far as it knows, from one moment to another (both are numbers of moments)."""

    lane: str
    begins: int
    ends: int | None = None
    """None: until the end of the story."""
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """The rule that is broken, and where it can be seen."""

    rule: str
    """One of `gripfast_lab.judging`, or one of the simulation's."""
    text: str
    lanes: tuple[str, ...] = ()
    begins: int | None = None
    ends: int | None = None
    """The moments between which the bars of these lanes overlap."""


@dataclass(frozen=True, slots=True)
class Story:
    name: str
    title: str
    lanes: tuple[Lane, ...]
    moments: tuple[Moment, ...]
    bars: tuple[Bar, ...]
    broken: Broken | None = None
    goes_on: str = ""
    """What happens again and again after the last moment, if something does."""
    verbs: tuple[str, str] = field(default=("holds", "hold"), repr=False)
    """What bars stand for: of one client, of several."""
