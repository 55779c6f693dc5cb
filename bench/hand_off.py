"""Hand-offs: several processes want one lock all the time, each gives it to the next.

`acquired/s` has every entry, by whomever; a hand-off is an entry by another process than the one before. A library that
lets the same process in again and again has many of the first and few of the second. Waits are those of hand-offs: who
takes again what it has just given back did not wait, and its thousands of entries would hide those who do.

The first part of a round does not count: not everybody waits yet. A process that asked in time and was let in only
after the end counts among the waits, so a starving one is seen.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise

from bench.crew import Shift, Turn, crew
from bench.locks import Make, gripfast_locks
from bench.scenario import CONTENDED, Contestant, Place, Sample, Scenario

PROCESSES = 8
QUICK_PROCESSES = 2
SECONDS = 3.0
QUICK_SECONDS = 0.3
UNCOUNTED = 0.1
"""The share of a round before everybody is at it."""

ACQUIRED = "acquired/s"
HAND_OFFS = "hand-offs/s"

Counters = Callable[[str], AbstractContextManager[Callable[[], Sample]]]
"""For a URL: a function that tells what the server has counted so far. Shown per entry."""


def processes(
    name: str,
    make: Make,
    address: Callable[[Place], str],
    count: int = PROCESSES,
    section: float = 0.0,
    counters: Counters | None = None,
    seconds: float = SECONDS,
) -> Contestant:
    """Processes that pass a lock of one make around."""

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        url = address(place)
        with (
            crew(place.size(count, QUICK_PROCESSES), make.locks, url, f"bench {name}") as workers,
            (counters or _none)(url) as counted,
        ):

            def measure() -> Sample:
                before = counted()
                shift, turns = workers.work(QUICK_SECONDS if place.quick else seconds, section)
                spent = {what: number - before[what] for what, number in counted().items()}
                return figures(shift, turns) | {what: spent[what] / sum(map(len, turns)) for what in spent}

            yield measure

    return Contestant(name, opened, make.needs)


@contextmanager
def _none(_: str) -> Iterator[Callable[[], Sample]]:
    yield dict


def figures(shift: Shift, turns: Sequence[Sequence[Turn]]) -> dict[str, float]:
    """Of the turns of each process."""
    begin = shift.begin + (shift.end - shift.begin) * UNCOUNTED
    span = shift.end - begin
    changes = [turn for turn in hand_offs(turns) if turn.entered >= begin]
    # Where nobody was let in after another, everybody waited all the time.
    waits = [(turn.entered - turn.asked) * 1e3 for turn in changes] or [span * 1e3]
    percentiles = statistics.quantiles(waits, n=100, method="inclusive") if len(waits) > 1 else waits * 99
    numbers = [sum(begin <= turn.entered < shift.end for turn in own) for own in turns]
    section = statistics.mean((turn.left - turn.entered) * 1e3 for own in turns for turn in own)
    return {
        ACQUIRED: sum(numbers) / span,
        HAND_OFFS: sum(turn.entered < shift.end for turn in changes) / span,
        "wait p50 ms": percentiles[49],
        "wait p99 ms": percentiles[98],
        "wait max ms": max(waits),
        "workers apart %": (max(numbers) - min(numbers)) / max(statistics.mean(numbers), 1) * 100,
    } | ({"section ms": section} if shift.section else {})


def hand_offs(turns: Sequence[Sequence[Turn]]) -> list[Turn]:
    """Those by another process than the one before."""
    entries = sorted((turn.entered, number, turn) for number, own in enumerate(turns) for turn in own)
    return [turn for (_, before, _), (_, number, turn) in pairwise(entries) if before != number]


EMBEDDED = Make("gripfast", gripfast_locks)

EMBEDDED_HAND_OFF = Scenario(
    name="embedded hand-off",
    about="processes that hand one embedded lock around, eight beside two and four",
    contestants=tuple(
        processes(f"gripfast, {count} processes", EMBEDDED, lambda place: f"sqlite:///{place.folder}/locks.db", count)
        for count in (2, 4, 8)
    ),
    figure=HAND_OFFS,
    against="gripfast, 2 processes",
    charted=("wait p99 ms",),
    rounds=5,
    pinned=False,
    slower=CONTENDED,
)
