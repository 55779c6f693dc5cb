"""Hand-offs: several processes want one lock all the time, each gives it to the next.

Every process takes the lock `TURNS` times and writes down when it asked and when it was let in, by the clock that all
processes of a machine share. A hand-off is an entry by another process than the one before.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

import holdfast
from bench.scenario import Contestant, Sample, Scenario

TURNS = 200
PATIENCE = 60.0
SPAWN = multiprocessing.get_context("spawn")


class Entry(NamedTuple):
    asked: float
    entered: float
    process: int


def take_turns(url: str, process: int, start: Barrier, entries: multiprocessing.Queue[list[Entry]]) -> None:
    """What each process does."""
    with holdfast.connect(url) as client:
        lock = client.lock("bench")
        lock.acquire(wait=PATIENCE).release()
        start.wait(PATIENCE)
        entries.put([_turn(lock, process) for _ in range(TURNS)])


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
    start, results = SPAWN.Barrier(count), SPAWN.Queue()
    workers = [SPAWN.Process(target=take_turns, args=(url, number, start, results)) for number in range(count)]
    for worker in workers:
        worker.start()
    try:
        entries = [entry for _ in workers for entry in results.get(timeout=2 * PATIENCE)]
    finally:
        for worker in workers:
            worker.join(PATIENCE)
            worker.kill()
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
