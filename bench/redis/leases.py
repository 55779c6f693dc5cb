"""Many leases at once: what it costs to keep them alive, and how much memory each takes."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection

import gripfast
from bench.crew import SPAWN
from bench.locks import Locks, Make
from bench.promise import at_most
from bench.redis.peers import GRIPFAST, PEERS, REDIS_PY
from bench.redis.server import redis_server
from bench.redis.wire import Wire
from bench.scenario import Contestant, Place, Sample, Scenario

LEASES = (50_000, 200)
TTL = 30.0
QUICK_TTL = 0.6
LIFETIMES = 1.2
"""How long they are held, in ttls: none lives that long unless it was renewed."""
BLOCKING = "gripfast"
ASYNC = "gripfast, asyncio"
CPU = "cpu %"
LOST = "lost"

HELD = (20_000, 500)
BYTES = "bytes/lease"
PATIENCE = 600.0


def names(place: Place) -> list[str]:
    return [f"bench:{number}" for number in range(place.size(*LEASES))]


@contextmanager
def blocking(place: Place) -> Iterator[Callable[[], Sample]]:
    ttl = QUICK_TTL if place.quick else TTL

    def measure() -> Sample:
        with gripfast.connect(place.url) as client:
            leases = [client.lock(name, ttl=ttl).acquire() for name in names(place)]
            before = cpu_clock()
            time.sleep(ttl * LIFETIMES)
            sample = {CPU: share_since(before), LOST: lost(place, [lease.held for lease in leases])}
            for lease in leases:
                with suppress(gripfast.LeaseLost):
                    lease.release()
            return sample

    yield measure


@contextmanager
def on_a_loop(place: Place) -> Iterator[Callable[[], Sample]]:
    ttl = QUICK_TTL if place.quick else TTL

    async def hold() -> Sample:
        async with gripfast.connect_async(place.url) as client:
            leases = [await client.lock(name, ttl=ttl).acquire() for name in names(place)]
            before = cpu_clock()
            await asyncio.sleep(ttl * LIFETIMES)
            sample = {CPU: share_since(before), LOST: lost(place, [lease.held for lease in leases])}
            for lease in leases:
                with suppress(gripfast.LeaseLost):
                    await lease.release()
            return sample

    yield lambda: asyncio.run(hold())


def lost(place: Place, held: Sequence[bool]) -> float:
    """By what the leases say, or by what the server has: the worse of the two."""
    with closing(Wire(place.url)) as wire:
        keys = [f"lock:{name}".encode() for name in names(place)]
        there = sum(wire.ask(b"EXISTS", *keys[start : start + 1000]) for start in range(0, len(keys), 1000))
    return float(len(keys) - min(there, sum(held)))


def cpu_clock() -> tuple[float, float]:
    """What this process, with all its threads, has used so far, and when that was."""
    return time.process_time(), time.monotonic()


def share_since(before: tuple[float, float]) -> float:
    """Of one core, in per cent."""
    used, now = cpu_clock()
    return (used - before[0]) / (now - before[1]) * 100


def memory(make: Make) -> Contestant:
    """In a process of its own each time, so that nobody's garbage is counted; it is ended with all it holds."""

    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        yield lambda: {BYTES: _in_a_process(make.locks, place)}

    return Contestant(make.name, opened, make.needs)


def _in_a_process(locks: Locks, place: Place) -> float:
    with closing(Wire(place.url)) as wire:
        wire.ask(b"FLUSHALL")
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=_hold_many, args=(there, locks, place.url, place.size(*HELD)), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(PATIENCE):
            raise TimeoutError("the process that holds leases does not answer")
        return float(here.recv())
    finally:
        here.close()
        process.kill()
        process.join()


def _hold_many(told: Connection, locks: Locks, url: str, count: int) -> None:
    """The growth of this process while it takes `count` leases, for each of them."""
    with locks(url) as lock_of:
        with lock_of("warm-up"):
            before = resident()
        held: list[object] = []
        for number in range(count):
            lock = lock_of(f"bench:{number}")
            held.append((lock, lock.acquire()))
        told.send((resident() - before) / count)
        told.poll(None)


def resident() -> float:
    """The bytes of memory that this process has now; where the system does not tell, the most it ever had."""
    gc.collect()
    try:
        with open("/proc/self/statm") as statm:
            return float(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


REDIS_LEASES = Scenario(
    name="redis 50,000 leases",
    about="50,000 leases of 30 s held by one process for longer: CPU that renewing takes, and how many are lost",
    contestants=(Contestant(BLOCKING, blocking, ("redis",)), Contestant(ASYNC, on_a_loop, ("redis",))),
    figure=CPU,
    promises=tuple(
        at_most(who, limit, figure, always=figure == LOST)
        for who in (BLOCKING, ASYNC)
        for figure, limit in ((LOST, 0), (CPU, 15))
    ),
    rounds=1,
    warm_up=False,
    server=redis_server,
)

REDIS_MEMORY = Scenario(
    name="redis bytes per lease",
    about="memory that a held lease takes in the client, over 20,000 of them, beside other libraries",
    contestants=tuple(memory(make) for make in (GRIPFAST, *PEERS)),
    figure=BYTES,
    against=REDIS_PY.name,
    rounds=3,
    warm_up=False,
    server=redis_server,
)
