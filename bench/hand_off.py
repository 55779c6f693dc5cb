"""Hand-offs: several processes want one lock all the time, each gives it to the next.

For `SECONDS` every process takes the lock again and again, and writes down when it asked and when it was let in, by the
clock that all processes of a machine share. Only the time when all of them are at it counts. A hand-off is an entry by
another process than the one before.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Barrier
from typing import NamedTuple

import holdfast
from bench.scenario import Contestant, Sample, Scenario

SECONDS = 1.0
PATIENCE = 30.0
SPAWN = multiprocessing.get_context("spawn")


class Entry(NamedTuple):
    asked: float
    entered: float
    process: int


def take_turns(url: str, process: int, start: Barrier) -> list[Entry]:
    """What each process does."""
    with holdfast.connect(url) as client:
        lock = client.lock("bench")
        lock.acquire(wait=PATIENCE).release()
        start.wait(PATIENCE)
        end = time.monotonic() + SECONDS
        return [_turn(lock, process) for _ in iter(lambda: time.monotonic() < end, False)]


def _turn(lock: holdfast.Lock, process: int) -> Entry:
    asked = time.monotonic()
    with lock.acquire(wait=PATIENCE):
        return Entry(asked, time.monotonic(), process)


def processes(count: int, address: Callable[[Path], str]) -> Contestant:
    @contextmanager
    def opened(folder: Path) -> Iterator[Callable[[], Sample]]:
        yield lambda: figures(_entries(count, address(folder)))

    return Contestant(f"{count} processes", opened)


def _entries(count: int, url: str) -> list[Entry]:
    """New processes each time; one that fails breaks the barrier for all."""
    with SPAWN.Manager() as manager, ProcessPoolExecutor(count, mp_context=SPAWN) as pool:
        start = manager.Barrier(count)
        turns = [pool.submit(take_turns, url, number, start) for number in range(count)]
        return while_all_are_at_it([turn.result() for turn in turns])


def while_all_are_at_it(turns: Sequence[Sequence[Entry]]) -> list[Entry]:
    """The entries of all processes, in order, without those before the last one came and after the first one left."""
    begin = max(own[0].entered for own in turns)
    end = min(own[-1].entered for own in turns)
    entries = (entry for own in turns for entry in own if begin <= entry.entered <= end)
    return sorted(entries, key=lambda entry: entry.entered)


def figures(entries: Sequence[Entry]) -> Sample:
    """Of entries in the order in which they happened."""
    waits = [(entry.entered - entry.asked) * 1e3 for entry in entries]
    percentiles = statistics.quantiles(waits, n=100, method="inclusive")
    changes = sum(before.process != after.process for before, after in pairwise(entries))
    return {
        "hand-offs/s": changes / (entries[-1].entered - entries[0].entered),
        "wait p50 ms": percentiles[49],
        "wait p99 ms": percentiles[98],
        "wait max ms": max(waits),
    }


EMBEDDED_HAND_OFF = Scenario(
    name="embedded hand-off",
    about="processes that hand one embedded lock around",
    contestants=tuple(processes(count, lambda folder: f"sqlite:///{folder}/locks.db") for count in (2, 4, 8)),
    figure="hand-offs/s",
    against="2 processes",
    at_most={},
    rounds=5,
    pinned=False,
)
