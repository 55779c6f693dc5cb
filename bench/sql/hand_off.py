"""Handing a lock over: one process has it, another waits, and the clock runs from `release()` until it is let in."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import gripfast
from bench.promise import at_most
from bench.scenario import CONTENDED, Contestant, Place, Sample, Scenario
from bench.sql.engines import LEASE, MARIA, MODES, POSTGRES, Engine, address, ours, ours_async
from bench.sql.limit import commit
from bench.sql.pair import COMMIT
from bench.sql.waiter import Waits, in_a_thread, on_a_loop, waiter

TIMES = (10, 2)
COMMITS = (30, 3)

P50 = "p50 ms"
WORST = "worst ms"


def handing_over(name: str, mode: str, waits: Waits, needs: tuple[str, ...]) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        url, lock_name = address(mode)(place), f"bench {name}"
        with waiter(waits, url, lock_name) as other, gripfast.connect(url) as client:
            lock = client.lock(lock_name)

            def hand_over() -> float:
                lease = lock.acquire()
                other.ask()
                began = time.monotonic()
                lease.release()
                return other.entered() - began

            yield lambda: figures([hand_over() for _ in range(place.size(*TIMES))])

    return Contestant(name, opened, needs)


def committing(engine: Engine) -> Contestant:
    """One after the other, as the two of a hand-off are: some disks answer the first one sooner."""

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with commit(place.url) as update:

            def timed() -> float:
                began = time.monotonic()
                update()
                return time.monotonic() - began

            yield lambda: figures([timed() for _ in range(place.size(*COMMITS))])

    return Contestant(COMMIT, opened, engine.needs)


def figures(seconds: Sequence[float]) -> Sample:
    return {P50: statistics.median(seconds) * 1e3, WORST: max(seconds) * 1e3}


def hand_off(engine: Engine) -> Scenario:
    return Scenario(
        name=f"sql hand-off, {engine.name}",
        about=f"from release() until another process that waits is let in, on {engine.name}, beside one commit",
        contestants=(
            committing(engine),
            *(handing_over(ours(mode), mode, in_a_thread, engine.needs) for mode in MODES),
            *(handing_over(ours_async(mode), mode, on_a_loop, engine.needs) for mode in MODES),
        ),
        figure=P50,
        against=COMMIT,
        # Where releases are not told to those who wait, they poll: a hand-off takes as long as their pause.
        promises=tuple(at_most(who, 3, P50, against=COMMIT) for who in (ours(LEASE), ours_async(LEASE)))
        if engine is POSTGRES
        else (),
        rounds=5,
        pinned=False,
        server=engine.server,
        slower=CONTENDED,
    )


SQL_HAND_OFF_POSTGRES = hand_off(POSTGRES)
SQL_HAND_OFF_MARIA = hand_off(MARIA)
