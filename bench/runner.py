"""How a scenario is run.

All contestants are opened, warmed up, and then take turns round by round, the order turning with each round, so that
whatever disturbs the machine disturbs them alike. A ratio is the median of the ratios of each round. A contestant that
is not installed or fails is told with the reason, and the others go on without it.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.promise import Verdict, judged
from bench.scenario import Contestant, Place, Round, Sample, Scenario, Spread, ratio

QUICK_ROUNDS = 2

Measure = Callable[[], Sample]


@dataclass(frozen=True)
class Standing:
    """How one contestant did."""

    contestant: str
    figures: Mapping[str, Spread]
    ratio: Spread | None
    """To the one that the scenario compares with, if there is one and it took part."""


@dataclass(frozen=True)
class Outcome:
    standings: Sequence[Standing]
    verdicts: Sequence[Verdict]
    absent: Mapping[str, str]
    """Contestants that were not measured → why."""

    @property
    def kept(self) -> bool:
        return all(verdict.kept for verdict in self.verdicts)


def run(scenario: Scenario, folder: Path, rounds: int | None = None, quick: bool = False) -> Outcome:
    absent: dict[str, str] = {}
    with pinned(scenario.pinned), served(scenario, folder) as url, ExitStack() as stack:
        measures: dict[str, Measure] = {}
        for contestant in _installed(scenario.contestants, absent):
            place = Place(folder / slug(contestant.name), url, quick)
            with _telling(contestant.name, absent):
                measures[contestant.name] = stack.enter_context(_opened(contestant, place))
        if scenario.warm_up:
            _round(measures, list(measures), absent)
        samples = _take_turns(measures, rounds or (QUICK_ROUNDS if quick else scenario.rounds), absent)
    return _outcome(scenario, samples, absent)


def _outcome(scenario: Scenario, rounds: Sequence[Round], absent: Mapping[str, str]) -> Outcome:
    """Whoever failed in one round is left out of all."""
    rounds = [{name: sample for name, sample in each.items() if name not in absent} for each in rounds]
    present = [each.name for each in scenario.contestants if each.name not in absent]
    standings = [_compared(scenario, name, rounds) for name in present]
    return Outcome(standings, [judged(promise, rounds) for promise in scenario.promises], absent)


def _compared(scenario: Scenario, name: str, rounds: Sequence[Round]) -> Standing:
    alone = standing(name, rounds)
    if scenario.against is None or scenario.against not in rounds[0]:
        return alone
    ratios = [ratio(each[name][scenario.figure], each[scenario.against][scenario.figure]) for each in rounds]
    return replace(alone, ratio=Spread.of(ratios))


def standing(name: str, rounds: Sequence[Round]) -> Standing:
    figures = {figure: Spread.of([each[name][figure] for each in rounds]) for figure in rounds[0][name]}
    return Standing(name, figures, None)


def _take_turns(measures: dict[str, Measure], rounds: int, absent: dict[str, str]) -> list[Round]:
    samples: list[Round] = []
    for number in range(rounds):
        names = list(measures)
        first = number % max(1, len(names))
        samples.append(_round(measures, names[first:] + names[:first], absent))
    return samples


def _round(measures: dict[str, Measure], order: Sequence[str], absent: dict[str, str]) -> Round:
    """One turn of each; who fails loses its further turns."""
    samples: dict[str, Sample] = {}
    for name in order:
        with _telling(name, absent):
            samples[name] = measures[name]()
        if name in absent:
            del measures[name]
    return samples


@contextmanager
def _telling(name: str, absent: dict[str, str]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        absent[name] = f"failed: {type(error).__name__}: {error}"


def _installed(contestants: Sequence[Contestant], absent: dict[str, str]) -> Iterator[Contestant]:
    for contestant in contestants:
        missing = [package for package in contestant.needs if not is_installed(package)]
        if missing:
            absent[contestant.name] = f"not installed: pip install {' '.join(missing)}"
        else:
            yield contestant


def is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


@contextmanager
def _opened(contestant: Contestant, place: Place) -> Iterator[Measure]:
    place.folder.mkdir(parents=True)
    with contestant.open(place) as measure:
        yield measure


@contextmanager
def served(scenario: Scenario, folder: Path) -> Iterator[str]:
    """Started by a process that is pinned, a server is pinned too."""
    if scenario.server is None:
        yield ""
        return
    with scenario.server(folder) as url:
        yield url


@contextmanager
def pinned(wanted: bool) -> Iterator[None]:
    """Keep this process on one core, where the system can: on the last, because the first serves most interrupts."""
    if not wanted or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def slug(name: str) -> str:
    """A name as a file is called."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
