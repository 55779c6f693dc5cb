"""What a benchmark is.

A scenario has contestants, which take turns round by round (`runner.py`), and promises about them (`promise.py`).

To add a scenario: describe it in a module of this folder and list it in `catalogue.py`. A contestant that needs a
package names it; without that package it is told as missing, and the others run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.promise import Promise

OURS = "gripfast"
"""How the name of a contestant begins that is Gripfast's."""

CONTENDED = 1.10
"""`Scenario.slower` where several want one lock: who gets it when differs from run to run."""

Sample = Mapping[str, float]
"""One round of one contestant: figure → value."""

Round = Mapping[str, Sample]
"""One round of all: contestant → its sample."""


@dataclass(frozen=True)
class Place:
    """Where a contestant works."""

    folder: Path
    """Its own."""
    url: str = ""
    """The server of the scenario, which all its contestants share; empty without one."""
    quick: bool = False
    """Only to see that it works: as small as it goes."""

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True)
class Contestant:
    """Something that can be measured: opened at its place, it gives a function that measures one round."""

    name: str
    open: Callable[[Place], AbstractContextManager[Callable[[], Sample]]]
    needs: tuple[str, ...] = ()
    """The packages it is made of, by the names that pip knows."""


@dataclass(frozen=True, eq=False)
class Scenario:
    name: str
    about: str
    """In one line: what is measured, beside what."""
    contestants: tuple[Contestant, ...]
    figure: str
    """The figure that ratios are taken of; the other figures of a sample are shown beside it."""
    against: str | None = None
    """The contestant that the others are compared with."""
    promises: tuple[Promise, ...] = ()
    charted: tuple[str, ...] = ()
    """Figures that the chart shows besides the main one."""
    rounds: int = 21
    warm_up: bool = True
    pinned: bool = True
    """On one core, the server too: a wake-up across cores would hide everything else."""
    server: Callable[[Path], AbstractContextManager[str]] | None = None
    """Starts what the contestants share, in a folder, and gives its URL."""
    slower: float = 1.05
    """How many times as slow as another tree this one may be (`against.py`)."""


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    """The middle four fifths of the rounds lie between low and high."""
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        ordered = sorted(values)
        tenth = len(ordered) // 10
        return cls(statistics.median(ordered), ordered[tenth], ordered[-1 - tenth], ordered[0], ordered[-1])


def more_is_better(figure: str) -> bool:
    return figure.endswith(("/s", "one round %"))


def ratio(mine: float, other: float) -> float:
    """A contestant that got nothing done is beaten by any factor."""
    return mine / other if other else math.inf
