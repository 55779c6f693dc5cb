"""Two hundred threads, and two hundred tasks, of one process that all want the same lock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import gripfast
from bench.crew import Shift
from bench.crew import turns as turns_of_a_thread
from bench.hand_off import ACQUIRED, HAND_OFFS, figures
from bench.promise import at_most
from bench.redis.waiters import turns as turns_of_a_task
from bench.scenario import CONTENDED, Contestant, Place, Sample, Scenario
from bench.sql.engines import LEASE, MARIA, MODES, POSTGRES, Engine, address, ours, ours_async
from bench.sql.wire import Wire, sessions, wire_to

WAITERS = (200, 20)
SECONDS = 1.0
QUICK_SECONDS = 0.3
SESSIONS = "sessions"

Crowd = Callable[[str, Wire, int, float], Sample]
"""So many that want one lock of a URL for so long; the wire is for looking at the server."""


def waiters(name: str, mode: str, crowd: Crowd, needs: tuple[str, ...]) -> Contestant:
    """Connects anew in every round, so that the sessions are all its own."""

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        seconds = QUICK_SECONDS if place.quick else SECONDS
        url = address(mode)(place)
        with closing(wire_to(url)) as wire:
            yield lambda: crowd(url, wire, place.size(*WAITERS), seconds)

    return Contestant(name, opened, needs)


def threads(url: str, wire: Wire, count: int, seconds: float) -> Sample:
    """Everybody asks again and again until the time is up; who waits by then is let in once more."""
    before = sessions(wire)
    with gripfast.connect(url) as client, ThreadPoolExecutor(count) as pool:
        with client.lock("bench"):
            begin = time.monotonic()
        shift = Shift(begin, begin + seconds, 0.0)
        turns = [pool.submit(turns_of_a_thread, client.lock("bench"), shift) for _ in range(count)]
        time.sleep(seconds)
        own = len(sessions(wire) - before)
        return figures(shift, [each.result() for each in turns]) | {SESSIONS: own}


def tasks(url: str, wire: Wire, count: int, seconds: float) -> Sample:
    async def crowd() -> Sample:
        before = sessions(wire)
        async with gripfast.connect_async(url) as client:
            async with client.lock("bench"):
                begin = time.monotonic()
            shift = Shift(begin, begin + seconds, 0.0)
            turns = [asyncio.create_task(turns_of_a_task(client.lock("bench"), shift)) for _ in range(count)]
            await asyncio.sleep(seconds)
            own = len(sessions(wire) - before)
            return figures(shift, await asyncio.gather(*turns)) | {SESSIONS: own}

    return asyncio.run(crowd())


def scenario(engine: Engine) -> Scenario:
    return Scenario(
        name=f"sql {WAITERS[0]} waiters, {engine.name}",
        about=f"{WAITERS[0]} threads, or tasks, of one process that want one lock of {engine.name}: how many sessions",
        contestants=(
            *(waiters(ours(mode), mode, threads, engine.needs) for mode in MODES),
            *(waiters(ours_async(mode), mode, tasks, engine.needs) for mode in MODES),
        ),
        figure=SESSIONS,
        promises=tuple(at_most(who, 2, SESSIONS, always=True) for who in (ours(LEASE), ours_async(LEASE))),
        charted=(ACQUIRED, HAND_OFFS),
        rounds=2,
        warm_up=False,
        server=engine.server,
        slower=CONTENDED,
    )


SQL_WAITERS_POSTGRES = scenario(POSTGRES)
SQL_WAITERS_MARIA = scenario(MARIA)
