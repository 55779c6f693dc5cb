"""A thousand tasks of one process that all want the same lock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing, contextmanager

from bench.crew import Shift, Turn
from bench.hand_off import ACQUIRED, HAND_OFFS, figures
from bench.promise import at_most
from bench.redis.aio import GRIPFAST, REDIS_PY, AsyncMake
from bench.redis.server import connections, redis_server
from bench.redis.wire import Wire
from bench.scenario import CONTENDED, Contestant, Place, Sample, Scenario

WAITERS = (1000, 20)
SECONDS = 3.0
QUICK_SECONDS = 0.3


def waiters(make: AsyncMake) -> Contestant:
    """Connects anew in every round, so that the connections are all its own."""

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        seconds = QUICK_SECONDS if place.quick else SECONDS
        with closing(Wire(place.url)) as wire:
            yield lambda: asyncio.run(crowd(make, place.url, wire, place.size(*WAITERS), seconds))

    return Contestant(make.name, opened, make.needs)


async def crowd(make: AsyncMake, url: str, wire: Wire, count: int, seconds: float) -> Sample:
    """Everybody asks again and again until the time is up; who waits by then is let in once more, uncounted."""
    before = connections(wire)
    async with make.locks(url) as lock_of:
        async with lock_of("bench"):
            begin = time.monotonic()
        shift = Shift(begin, begin + seconds, 0.0)
        tasks = [asyncio.create_task(turns(lock_of("bench"), shift)) for _ in range(count)]
        await asyncio.sleep(seconds)
        own = connections(wire) - before
        return figures(shift, await asyncio.gather(*tasks)) | {"connections": own}


async def turns(lock: AbstractAsyncContextManager[object], shift: Shift) -> list[Turn]:
    had = []
    while (asked := time.monotonic()) < shift.end:
        async with lock:
            entered = time.monotonic()
            had.append(Turn(asked, entered, entered))
    return had


REDIS_WAITERS = Scenario(
    name="redis 1,000 waiters",
    about="1,000 tasks of one process that want one lock of Redis, beside redis-py's asyncio lock",
    contestants=(waiters(GRIPFAST), waiters(REDIS_PY)),
    figure=ACQUIRED,
    against=REDIS_PY.name,
    promises=(at_most(GRIPFAST.name, 2, "connections", always=True),),
    charted=(HAND_OFFS, "wait max ms", "connections"),
    rounds=5,
    server=redis_server,
    slower=CONTENDED,
)
