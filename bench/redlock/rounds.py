"""How many acquisitions of a free lock need one round trip only.

Counted at the nodes. A pair in one round trip is two scripts on each; whatever is more belongs to second rounds and
second attempts, and each of these asks a majority at least.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice, product

import gripfast
from bench.promise import at_least
from bench.redlock.nodes import MAJORITY, NODES, five_nodes, script_calls
from bench.redlock.peers import NEEDS
from bench.scenario import Contestant, Place, Sample, Scenario

BLOCKING = "gripfast"
ASYNC = "gripfast, asyncio"
ACQUISITIONS = (1000, 20)
NAMES = [f"bench:{number}" for number in range(20)]
ONE_ROUND = "one round %"


@contextmanager
def blocking(place: Place) -> Iterator[Callable[[], Sample]]:
    """Two clients that take turns on every name: each meets the tokens of the other."""
    with gripfast.connect(place.url) as one, gripfast.connect(place.url) as other:
        turns = list(islice(cycle(product(NAMES, (one, other))), place.size(*ACQUISITIONS)))

        def take_all() -> None:
            for name, client in turns:
                client.lock(name).acquire().release()

        with counted(place, take_all) as measure:
            yield measure


@contextmanager
def on_a_loop(place: Place) -> Iterator[Callable[[], Sample]]:
    with asyncio.Runner() as runner:
        clients = [gripfast.connect_async(place.url) for _ in range(2)]
        turns = list(islice(cycle(product(NAMES, clients)), place.size(*ACQUISITIONS)))

        async def take_all() -> None:
            for name, client in turns:
                lease = await client.lock(name).acquire()
                await lease.release()

        with counted(place, lambda: runner.run(take_all())) as measure:
            yield measure
        for client in clients:
            runner.run(client.aclose())


@contextmanager
def counted(place: Place, take_all: Callable[[], None]) -> Iterator[Callable[[], Sample]]:
    with script_calls(place.url) as calls:

        def measure() -> Sample:
            before = calls()
            take_all()
            return figures(place.size(*ACQUISITIONS), calls() - before)

        yield measure


def figures(acquired: int, scripts: int) -> Sample:
    more = max(0, scripts - 2 * NODES * acquired) / MAJORITY
    return {ONE_ROUND: max(0.0, 1 - more / acquired) * 100, "scripts/pair/node": scripts / NODES / acquired}


REDLOCK_ROUNDS = Scenario(
    name="redlock one round",
    about="how many acquisitions of free locks, by two clients that take turns, need a single round trip",
    contestants=(Contestant(BLOCKING, blocking, NEEDS), Contestant(ASYNC, on_a_loop, NEEDS)),
    figure=ONE_ROUND,
    promises=tuple(at_least(who, 99, ONE_ROUND, always=True) for who in (BLOCKING, ASYNC)),
    rounds=5,
    server=five_nodes,
)
