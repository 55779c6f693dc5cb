"""What a benchmark is, and how it is run.

A scenario has contestants and names the one that the ratios are against. All are opened, warmed up, and then
take turns round by round, the order turning with each round, so that whatever disturbs the machine disturbs them alike.
A ratio is the median of the ratios of each round.

To add a scenario: describe it in a module of this folder and list it in `catalogue.py`.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

Sample = Mapping[str, float]
"""One round of one contestant: figure → value."""

Samples = dict[str, list[Sample]]


@dataclass(frozen=True)
class Contestant:
    """Something that can be measured: opened in a folder of its own, it gives a function that measures one round."""

    name: str
    open: Callable[[Path], AbstractContextManager[Callable[[], Sample]]]


@dataclass(frozen=True, eq=False)
class Scenario:
    name: str
    about: str
    contestants: tuple[Contestant, ...]
    figure: str
    """The figure that ratios are taken of; the other figures of a sample are shown beside it."""
    against: str
    """The contestant that the others are compared with."""
    at_most: Mapping[str, float]
    """Contestant → the largest ratio that is promised."""
    rounds: int = 21
    pinned: bool = True
    """On one core, so that the scheduler's choices do not enter the figures."""


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    """The middle four fifths of the rounds lie between low and high."""
    most: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        ordered = sorted(values)
        tenth = len(ordered) // 10
        return cls(statistics.median(ordered), ordered[tenth], ordered[-1 - tenth], ordered[-1])


@dataclass(frozen=True)
class Standing:
    """How one contestant did."""

    contestant: str
    figures: Mapping[str, Spread]
    ratio: Spread
    at_most: float | None

    @property
    def kept(self) -> bool:
        """Whether it stayed within what is promised."""
        return self.at_most is None or self.ratio.median <= self.at_most


def run(scenario: Scenario, folder: Path, rounds: int | None = None) -> list[Standing]:
    with _pinned(scenario.pinned), ExitStack() as stack:
        measures = {each.name: stack.enter_context(_opened(each, folder)) for each in scenario.contestants}
        for measure in measures.values():
            measure()
        samples = _take_turns(measures, rounds or scenario.rounds)
    return [_standing(scenario, each.name, samples) for each in scenario.contestants]


@contextmanager
def _opened(contestant: Contestant, folder: Path) -> Iterator[Callable[[], Sample]]:
    own = folder / contestant.name.replace(" ", "-").replace("/", "-")
    own.mkdir(parents=True)
    with contestant.open(own) as measure:
        yield measure


def _take_turns(measures: Mapping[str, Callable[[], Sample]], rounds: int) -> Samples:
    names = list(measures)
    samples: Samples = {name: [] for name in names}
    for round_number in range(rounds):
        first = round_number % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(measures[name]())
    return samples


def _standing(scenario: Scenario, name: str, samples: Samples) -> Standing:
    figures = {figure: Spread.of([sample[figure] for sample in samples[name]]) for figure in samples[name][0]}
    pairs = zip(samples[name], samples[scenario.against], strict=True)
    ratio = Spread.of([mine[scenario.figure] / other[scenario.figure] for mine, other in pairs])
    return Standing(name, figures, ratio, scenario.at_most.get(name))


@contextmanager
def _pinned(wanted: bool) -> Iterator[None]:
    """Keep this process on one core, where the system can."""
    if not wanted or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
