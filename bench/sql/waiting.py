"""What a server has to do while one process has a lock and another waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gripfast
from bench.promise import at_most
from bench.scenario import Contestant, Place, Sample, Scenario
from bench.sql.engines import LEASE, MARIA, MODES, POSTGRES, Engine, address, ours, ours_async
from bench.sql.waiter import Waits, in_a_thread, on_a_loop, waiter
from bench.sql.wire import COUNTED, counters

WATCHED = (5.0, 0.3)
"""How long statements are counted, in seconds, in a full and in a quick round."""
WATCHED_COUNT = "statements/5 s"


def waiting(name: str, mode: str, waits: Waits, engine: Engine) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        seconds = WATCHED[1] if place.quick else WATCHED[0]
        url, lock_name = address(mode)(place), f"bench {name}"
        with (
            waiter(waits, url, lock_name) as other,
            gripfast.connect(url) as client,
            counters(url) as counted,
        ):

            def measure() -> Sample:
                with client.lock(lock_name):
                    other.ask()
                    time.sleep(seconds / 10)  # what a late waiter asks when it comes is not what waiting costs
                    before = counted()[COUNTED]
                    time.sleep(seconds)
                    number = counted()[COUNTED] - before
                other.entered()
                return {WATCHED_COUNT: number / seconds * 5}

            yield measure

    return Contestant(name, opened, engine.needs)


def idle(engine: Engine) -> Scenario:
    return Scenario(
        name=f"sql waiting, {engine.name}",
        about=f"statements that {engine.name} is sent in 5 s while one process has a lock and another waits for it",
        contestants=(
            *(waiting(ours(mode), mode, in_a_thread, engine) for mode in MODES),
            waiting(ours_async(LEASE), LEASE, on_a_loop, engine),
        ),
        figure=WATCHED_COUNT,
        promises=tuple(at_most(who, 2, WATCHED_COUNT, always=True) for who in (ours(LEASE), ours_async(LEASE)))
        if engine is POSTGRES
        else (),
        rounds=1,
        warm_up=False,
        pinned=False,
        server=engine.counting,
    )


SQL_WAITING_POSTGRES = idle(POSTGRES)
SQL_WAITING_MARIA = idle(MARIA)
